package store

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// memberEnv makes the test binary an etcd member instead: its value is the member's EmbeddedConfig. So a member is a process
// of its own, and can be killed and stopped as one.
const memberEnv = "CLEAVE_STORE_TEST_MEMBER"

func TestMain(m *testing.M) {
	if config := os.Getenv(memberEnv); config != "" {
		os.Exit(runMember(config))
	}
	goleak.VerifyTestMain(m)
}

// runMember serves until standard input ends, which it also does when the test process dies.
func runMember(config string) int {
	var c EmbeddedConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-ended
		cancel()
	}()
	e, err := StartEmbedded(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer e.Close()
	fmt.Println(e.Endpoints()[0])
	select {
	case <-ended:
		return 0
	case <-e.Failed():
		fmt.Println(e.Err())
		return memberFailed
	}
}

// memberFailed is how a member ends whose server could not go on: by itself, not by a panic.
const memberFailed = 3
