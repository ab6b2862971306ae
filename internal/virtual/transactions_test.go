package virtual

import (
	"context"
	"testing"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestResolveNonsense: what is no transaction or no way to resolve one is refused before it is said what that would do.
func TestResolveNonsense(t *testing.T) {
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Next(topology.AddShard(topology.ShardSpec{Name: "s1", Primary: topology.InstanceSpec{Address: "localhost:1"}, Weight: 1})); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Map: func() *topology.Map { return m }})
	for _, c := range [][2]string{{"x", "maybe"}, {"x", "commit"}, {"cleave/0b5b6f3e/1/4711/1794808073143909/1/abcdefghij/0123456789abcdef", "maybe"}} {
		_, refused := s.Call(t.Context(), session.Call{
			Function: "resolve_transaction", Arguments: []session.Argument{{Text: &c[0]}, {Text: &c[1]}},
			OnShard: func(_ int, work func(shard.Asker) error) error {
				return work(func(context.Context, string) ([][]string, error) { return [][]string{{"t"}}, nil })
			},
			Notice: func(text string) { t.Errorf("%q was said of %v", text, c) },
		})
		if refused == nil || refused.Code != pgerr.InvalidParameterValue || refused.Hint == "" {
			t.Errorf("%v was answered with %v", c, refused)
		}
	}
}
