package control

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestAShardThatHeardFirstIsNoFault: who changes the map tells the shards too, and this process may learn of it after them. It
// complains if it is so still at the next look, once.
func TestAShardThatHeardFirstIsNoFault(t *testing.T) {
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := &Cluster{config: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	told := &told{versions: map[int]uint64{}, failures: map[int]string{}, ahead: map[int]bool{}}
	for look, complaints := range []int{0, 1, 1} {
		err := fmt.Errorf("record: %w", &shard.NewerError{Recorded: m.Version() + 1, Map: m.Version()})
		c.noteTold(t.Context(), m, told, inspected{spec: topology.ShardSpec{Name: "s1", Number: 1}, err: err})
		if n := strings.Count(log.String(), "level=ERROR"); n != complaints {
			t.Errorf("look %d: there were %d complaints, want %d: %s", look+1, n, complaints, log.String())
		}
		if again := told.versions[1] < m.Version(); again != (complaints == 0) {
			t.Errorf("look %d: it is looked at again: %v", look+1, again)
		}
	}
}
