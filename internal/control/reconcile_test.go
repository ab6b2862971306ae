package control

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestAShardThatHeardFirstIsNoFault: who changes the map tells the shards too, and this process may learn of it after them. It
// complains if it does not, once.
func TestAShardThatHeardFirstIsNoFault(t *testing.T) {
	var log bytes.Buffer
	c := &Cluster{config: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	told := &told{versions: map[int]uint64{}, failures: map[int]string{}, ahead: map[int]ahead{}}
	look := func(m *topology.Map, complaints int) {
		t.Helper()
		err := fmt.Errorf("record: %w", &shard.NewerError{Recorded: m.Version() + 1, Map: m.Version()})
		c.noteTold(t.Context(), m, told, inspected{spec: topology.ShardSpec{Name: "s1", Number: 1}, err: err})
		if n := strings.Count(log.String(), "level=ERROR"); n != complaints {
			t.Errorf("there were %d complaints, want %d: %s", n, complaints, log.String())
		}
		if again := told.versions[1] < m.Version(); again != (complaints == 0) {
			t.Errorf("it is looked at again: %v", again)
		}
	}
	first, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Next(topology.AddShard(topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: "127.0.0.1:1"}, Database: "d"}))
	if err != nil {
		t.Fatal(err)
	}
	look(first, 0)
	look(first, 0) // a moment later
	passed := func() { told.ahead[1] = ahead{told.ahead[1].version, time.Now().Add(-retryEvery)} }
	passed()
	look(second, 0) // the news came, and meanwhile there were more
	passed()
	look(second, 1)
	look(second, 1)
}
