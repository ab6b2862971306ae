package store

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestTraffic: the last report of each router is there, also when its lease was lost, and goes with the router.
func TestTraffic(t *testing.T) {
	etcd := startMember(t)
	s := openStore(t, etcd.endpoints())
	ctx := testContext(t)
	reports := func() []string {
		t.Helper()
		found, err := s.Traffic(ctx)
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{}
		for _, one := range found {
			texts = append(texts, string(one))
		}
		return texts
	}
	await := func(want ...string) {
		t.Helper()
		eventually(t, "the reports are there", func() bool { return slices.Equal(reports(), want) })
	}
	one, err := s.Register(ctx, Router{ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Register(ctx, Router{ID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	await([]string{}...)
	one.SetTraffic(json.RawMessage(`1`))
	other.SetTraffic(json.RawMessage(`2`))
	await("1", "2")
	one.SetTraffic(json.RawMessage(`3`))
	await("3", "2")
	if err := s.revoke(ctx, one.leaseID()); err != nil {
		t.Fatal(err)
	}
	await("3", "2") // it is written again under the next lease
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	await("2")
	if routers, err := s.Routers(ctx); err != nil || len(routers) != 1 {
		t.Errorf("%v, %v", routers, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
}
