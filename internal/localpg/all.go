package localpg

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// StartAll starts servers side by side. If one cannot be started none is left: those that run are stopped again, and
// those that were newly made are removed. The servers stand in the order of their configurations.
func StartAll(ctx context.Context, configs []Config) ([]*Server, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	servers := make([]*Server, len(configs))
	failures := make([]error, len(configs))
	var group sync.WaitGroup
	for i, config := range configs {
		group.Go(func() {
			servers[i], failures[i] = start(ctx, config, initialise)
			if failures[i] != nil {
				cancel()
			}
		})
	}
	group.Wait()
	if err := firstCause(failures); err != nil {
		return nil, errors.Join(err, abandon(servers))
	}
	return servers, nil
}

// firstCause leaves out the starts that were given up because another had failed.
func firstCause(failures []error) error {
	for _, err := range failures {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(failures...)
}

// abandon stops servers and removes what their start had made.
func abandon(servers []*Server) error {
	servers = slices.DeleteFunc(servers, func(s *Server) bool { return s == nil })
	var failures []error
	for _, s := range servers {
		failures = append(failures, s.abandon())
	}
	// A folder that one has made may have held the folders of others until now.
	for _, s := range servers {
		failures = append(failures, s.made.undo())
	}
	return errors.Join(failures...)
}

func (s *Server) abandon() error {
	switch {
	case s.current.Load() == nil: // it was never started
		return nil
	case s.made.data == "":
		return s.Stop(context.Background())
	default:
		return errors.Join(s.StopImmediately(), s.made.undo())
	}
}
