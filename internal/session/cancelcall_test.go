package session

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// lastingVirtual has functions that go on until they are cancelled, and then end in different ways.
type lastingVirtual struct {
	fakeVirtual
	begun chan struct{}
}

func (v *lastingVirtual) Call(ctx context.Context, call Call) (*string, *pgerr.Error) {
	v.begun <- struct{}{}
	<-ctx.Done()
	done := "done"
	switch call.Function {
	case "shard_table": // all of it is taken back
		return nil, pgerr.New(pgerr.ObjectNotInPrerequisite, "cleave.shard_table failed").WithDetail("%s", ctx.Err())
	case "reference_table": // too late
		return &done, nil
	default:
		return nil, pgerr.New(pgerr.OutcomeUnknown, "cleave.%s failed, or may yet be done", call.Function)
	}
}

// TestAFunctionOfTheRouterIsCancelled: it is told, and what it says in the end counts: it may have come too far to be cancelled.
func TestAFunctionOfTheRouterIsCancelled(t *testing.T) {
	t.Parallel()
	lasting := &lastingVirtual{begun: make(chan struct{})}
	w := newWorld(t, worldConfig{noPlain: true, config: Config{Virtual: lasting}})
	c := dialRaw(t, w.address, nil)
	for function, want := range map[string]string{"shard_table('x', 'a')": "57014", "reference_table('x')": "", "undistribute_table('x')": pgerr.OutcomeUnknown} {
		sql := "SELECT cleave." + function
		for name, sent := range map[string]step{"simple": query(sql), "extended": sent(pipeline(unnamed(sql), sync1)...), "in a text": query("SELECT 1; " + sql)} {
			c.send(sent.messages...)
			select {
			case <-lasting.begun:
			case <-time.After(patience):
				t.Fatalf("%s, %s: it is not run: %q", function, name, c.readyTimes(1))
			}
			w.cancel(t, c.pid, c.secret)
			wantCodes(t, c.readyTimes(1), want, "ready I")
			if said := c.query("SELECT note FROM orders WHERE id = 1"); !slices.Contains(said, "done SELECT 0") {
				t.Errorf("%s, %s, and then: %q", function, name, said)
			}
		}
	}
	w.settled(t)
}
