package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Profile writes what the router's processor does from now on, for as long, to a file that 'go tool pprof' reads. The router's program must have
// been built with profiles.
func (r *Router) Profile(ctx context.Context, length time.Duration, path string) (err error) {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", r.Profiles, max(1, int(length.Seconds())))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for the router's profile: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("the router gives no profile: %s", why)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make the file of the profile: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	if _, err := io.Copy(file, answer.Body); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}
