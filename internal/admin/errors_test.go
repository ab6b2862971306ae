package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestEveryErrorHasItsAnswer(t *testing.T) {
	findings := []api.Finding{{Severity: api.Problem, Code: "wal_level", Shard: "a", Message: "too low", Hint: "raise it"}}
	cases := []struct {
		name   string
		err    error
		status int
		code   string
		hint   string // a part of it
	}{
		{"not found", &topology.NotFoundError{Kind: "shard", Name: "a"}, 404, "not_found", ""},
		{"exists", &topology.ExistsError{Kind: "shard", Name: "a"}, 409, "exists", ""},
		{"stored already", fmt.Errorf("create map: %w", store.ErrExists), 409, "exists", ""},
		{"in use", &topology.InUseError{Kind: "shard", Name: "a", By: "it has ranges"}, 409, "in_use", ""},
		{"conflict", fmt.Errorf("swap: %w", &store.ConflictError{Base: 1, Current: 2}), 409, "conflict", "look again"},
		{"stale", &store.StaleError{Current: 2, Offered: 1}, 409, "conflict", "look again"},
		{"unavailable", &store.UnavailableError{Action: "read map", Cause: context.DeadlineExceeded}, 503, "unavailable", "Nothing was changed"},
		{"unknown outcome", &store.UnavailableError{Action: "write map", Cause: context.DeadlineExceeded, OutcomeUnknown: true}, 503, "unavailable", "may have been made"},
		{"no map", fmt.Errorf("update map: %w", store.ErrNoMap), 409, "no_map", "cleave map create"},
		{"newer schema", &topology.NewerSchemaError{Schema: 9, ReadableBy: 9}, 409, "newer_schema", "upgrade"},
		{"no active shard", topology.ErrNoActiveShard, 422, "refused", "cleave shard add"},
		{"refused", fmt.Errorf("add: %w", &control.RefusedError{Message: "not usable", Findings: findings}), 422, "refused", ""},
		{"invalid", &control.InvalidError{Message: "nonsense", Hint: "do better"}, 400, "invalid", "do better"},
		{"timeout", fmt.Errorf("inspect: %w", context.DeadlineExceeded), 504, "timeout", "may have been made"},
		{"cancelled", fmt.Errorf("inspect: %w", context.Canceled), 503, "unavailable", ""},
		{"anything else", errBroken, 500, "internal", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := ask(t, newServer(t, Config{Cluster: failing{c.err}}), request{method: "DELETE", path: "/v1/shards/a"})
			answered := errorIn(t, got)
			if got.status != c.status || answered.Code != c.code {
				t.Errorf("answered %d %s, want %d %s", got.status, answered.Code, c.status, c.code)
			}
			if answered.Message != c.err.Error() {
				t.Errorf("message %q, want %q", answered.Message, c.err)
			}
			if !strings.Contains(answered.Hint, c.hint) || c.hint == "" && c.code != "unavailable" && answered.Hint != "" {
				t.Errorf("hint %q, want %q", answered.Hint, c.hint)
			}
			var refused *control.RefusedError
			if errors.As(c.err, &refused) && !cmp.Equal(answered.Findings, findings) {
				t.Errorf("findings %v, want %v", answered.Findings, findings)
			}
		})
	}
}

// TestEveryOperationPassesErrorsOn: whatever the operation, a failure of the cluster is not swallowed.
func TestEveryOperationPassesErrorsOn(t *testing.T) {
	s := newServer(t, Config{Cluster: failing{&topology.InUseError{Kind: "thing", Name: "x", By: "test"}}})
	for _, r := range routes() {
		if r.path == "/healthz" || r.path == "/metrics" || r.path == "/v1/openapi.yaml" {
			continue
		}
		body := "{}"
		if r.path == "/v1/tables" {
			body = `{"tables": [{"name": "x"}]}`
		}
		got := ask(t, s, request{method: r.method, path: strings.ReplaceAll(r.path, "{name}", "x"), body: body, header: asJSON})
		want := http.StatusConflict
		if r.path == "/readyz" {
			want = http.StatusServiceUnavailable
		}
		if got.status != want || !strings.Contains(errorIn(t, got).Message, "cannot be removed") {
			t.Errorf("%s %s answered %d %s", r.method, r.path, got.status, got.body)
		}
	}
}

// TestReadinessSaysWhyNotOnce: whoever wraps the want of a map says the same again.
func TestReadinessSaysWhyNotOnce(t *testing.T) {
	for want, err := range map[string]error{
		"not ready: there is no shard map yet": fmt.Errorf("no shard map yet: %w", store.ErrNoMap),
		"not ready: it is broken":              errBroken,
	} {
		got := ask(t, newServer(t, Config{Ready: func() error { return err }}), request{method: "GET", path: "/readyz"})
		if answered := errorIn(t, got); got.status != 503 || answered.Message != want {
			t.Errorf("answered %d %q, want %q", got.status, answered.Message, want)
		}
	}
}

// TestListsAreNeverNull: a cluster that has nothing to list gives empty lists.
func TestListsAreNeverNull(t *testing.T) {
	s := newServer(t, Config{Cluster: failing{}})
	for path, list := range map[string]string{
		"/v1/status": `"routers":[],"shards":[]`, "/v1/routers": `"routers":[]`, "/v1/shards": `"shards":[]`, "/v1/map/check": `"findings":[]`, "/v1/schema/diff": `"findings":[]`,
		"/v1/sagas": `"sagas":[],"more":false,"findings":[]`,
	} {
		got := ask(t, s, request{method: "GET", path: path})
		if got.status != 200 || !strings.Contains(got.body, list) || strings.Contains(got.body, "null") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// panicking is a cluster with a fault in it.
type panicking struct{ failing }

func (panicking) Map(context.Context) (*topology.Map, error) { panic("a fault") }

func TestAPanicCostsOneAnswer(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, Config{Cluster: panicking{failing{errBroken}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	got := ask(t, s, request{method: "GET", path: "/v1/map"})
	if got.status != 500 || errorIn(t, got).Code != "internal" || !strings.Contains(log.String(), "a fault") {
		t.Errorf("answered %d %s, logged %q", got.status, got.body, log.String())
	}
}

func TestOnlyUnexpectedErrorsAreLogged(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	expected := newServer(t, Config{Cluster: failing{&topology.NotFoundError{Kind: "shard", Name: "a"}}, Logger: logger})
	if ask(t, expected, request{method: "DELETE", path: "/v1/shards/a"}); log.Len() > 0 {
		t.Errorf("a mistake of the caller was logged: %s", log.String())
	}
	unexpected := newServer(t, Config{Logger: logger})
	if ask(t, unexpected, request{method: "DELETE", path: "/v1/shards/a"}); !strings.Contains(log.String(), errBroken.Error()) {
		t.Errorf("an unexpected failure was not logged: %q", log.String())
	}
}
