package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering serves one answer to everything and remembers the last request.
type answering struct {
	status int
	body   string

	request *http.Request
	content string
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body)
	a.request, a.content = r, string(content)
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func clientOf(t *testing.T, handler http.Handler) *api.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &api.Client{BaseURL: server.URL + "/", HTTP: server.Client()}
}

func TestErrorsOfTheAPIKeepTheirParts(t *testing.T) {
	client := clientOf(t, &answering{status: 422, body: `{"error": {"code": "refused", "message": "no", "detail": "because", "hint": "do this", "findings": [{"severity": "problem", "code": "x", "message": "m"}]}}`})
	_, err := client.CreateMap(t.Context())
	var refused *api.RequestError
	if !errors.As(err, &refused) {
		t.Fatalf("%v is no RequestError", err)
	}
	want := api.RequestError{Status: 422, Answer: api.Error{
		Code: "refused", Message: "no", Detail: "because", Hint: "do this", Findings: []api.Finding{{Severity: api.Problem, Code: "x", Message: "m"}},
	}}
	if diff := cmp.Diff(want, *refused); diff != "" {
		t.Error(diff)
	}
	if err.Error() != "no: because" {
		t.Errorf("message %q", err)
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String()
	_ = listener.Close()
	_, err = (&api.Client{BaseURL: address}).Status(t.Context())
	var unreachable *api.UnreachableError
	if !errors.As(err, &unreachable) || unreachable.BaseURL != address || !strings.Contains(err.Error(), "no cluster answers at "+address) {
		t.Errorf("got %v", err)
	}
}

func TestSomebodyElseAnswers(t *testing.T) {
	for _, answer := range []*answering{
		{status: 404, body: "<html>not found</html>"},
		{status: 502, body: ""},
		{status: 500, body: `{"message": "another API"}`},
	} {
		client := clientOf(t, answer)
		_, err := client.Shards(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is not the API of Cleave") {
			t.Errorf("%d %q: %v", answer.status, answer.body, err)
		}
	}
	client := clientOf(t, &answering{status: 200, body: "<html>welcome</html>"})
	if _, err := client.Shards(t.Context()); err == nil || !strings.Contains(err.Error(), "read the answer of "+strings.TrimSuffix(client.BaseURL, "/")) {
		t.Errorf("a page that is no answer: %v", err)
	}
}

func TestACallCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := clientOf(t, &answering{status: 200, body: "{}"}).Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsSent(t *testing.T) {
	server := &answering{status: 200, body: `{}`}
	client := clientOf(t, server)
	client.Token = "s3cret"
	weight := 2.0
	if _, err := client.UpdateShard(t.Context(), "a/../b c", api.UpdateShard{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
	r := server.request
	if r.Method != http.MethodPatch || r.URL.EscapedPath() != "/v1/shards/a%2F..%2Fb%20c" || server.content != `{"weight":2}` {
		t.Errorf("sent %s %s %s", r.Method, r.URL.EscapedPath(), server.content)
	}
	if r.Header.Get("Authorization") != "Bearer s3cret" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("sent %v", r.Header)
	}
}

func TestHowAnImportIsSent(t *testing.T) {
	server := &answering{status: 200, body: `{"map_version": 8, "changes": ["a line"]}`}
	client := clientOf(t, server)
	document := []byte("{ \"a\" : [ 1, 2 ] }\n")
	for _, c := range []struct {
		request     api.ImportMap
		path, match string
	}{
		{api.ImportMap{Document: document}, "/v1/map", ""},
		{api.ImportMap{Document: document, IfVersion: 7}, "/v1/map", `"7"`},
		{api.ImportMap{Document: document, DryRun: true}, "/v1/map?dry_run=true", ""},
		{api.ImportMap{Document: document, IfVersion: 7, Force: true, DryRun: true}, "/v1/map?dry_run=true&force=true", `"7"`},
	} {
		changed, err := client.ImportMap(t.Context(), c.request)
		if err != nil || changed.MapVersion != 8 || len(changed.Changes) != 1 {
			t.Errorf("%s: answered %+v, %v", c.path, changed, err)
		}
		r := server.request
		if r.Method != http.MethodPut || r.RequestURI != c.path || r.Header.Get("If-Match") != c.match || server.content != `{"a":[1,2]}` {
			t.Errorf("sent %s %s, If-Match %s, %s; want %s, If-Match %s", r.Method, r.RequestURI, r.Header.Get("If-Match"), server.content, c.path, c.match)
		}
	}
	server.request = nil
	if _, err := client.ImportMap(t.Context(), api.ImportMap{Document: []byte("{")}); err == nil || server.request != nil {
		t.Error("half a document was sent")
	}
}

// TestDescribedKeyspaceIsThatOfTheMap: put together from parts, it says what the whole description says.
func TestDescribedKeyspaceIsThatOfTheMap(t *testing.T) {
	m := mapWithKeyspaces(t)
	for _, k := range m.Keyspaces() {
		described, spec := api.DescribeKeyspace(k, true), k.Spec()
		if diff := cmp.Diff(spec.KeyspaceHead, described.KeyspaceHead); diff != "" {
			t.Errorf("head of %s: %s", k.Name(), diff)
		}
		if diff := cmp.Diff(spec.Ranges, described.Ranges); diff != "" {
			t.Errorf("ranges of %s: %s", k.Name(), diff)
		}
		if described.RangeCount != len(spec.Ranges) || described.PinCount != len(spec.Pins) {
			t.Errorf("%s has %d ranges and %d pins, described as %d and %d", k.Name(), len(spec.Ranges), len(spec.Pins), described.RangeCount, described.PinCount)
		}
		if api.DescribeKeyspace(k, false).Ranges != nil {
			t.Errorf("ranges of %s were not asked for", k.Name())
		}
	}
	want := []api.Share{{Shard: "two", Ranges: 1, Share: 0.25}, {Shard: "one", Ranges: 1, Share: 0.75}, {Shard: "three", Pins: 1}}
	if diff := cmp.Diff(want, api.DescribeKeyspace(m.Keyspace("hashed"), false).Shares); diff != "" {
		t.Errorf("shares by hash: %s", diff)
	}
	want = []api.Share{{Shard: "two", Ranges: 1}, {Shard: "one", Ranges: 2}}
	if diff := cmp.Diff(want, api.DescribeKeyspace(m.Keyspace("ranged"), false).Shares); diff != "" {
		t.Errorf("shares by range: %s", diff)
	}
}

func mapWithKeyspaces(t *testing.T) *topology.Map {
	t.Helper()
	m, err := topology.New("0192f0c1-2d3e-7a4b-8c5d-6e7f8a9b0c1d")
	if err != nil {
		t.Fatal(err)
	}
	hashed := topology.NewKeyspaceSpec("hashed", topology.ByHash, -5, "bigint", "text")
	hashed.Ranges = []topology.RangeSpec{{Shard: "two"}, {From: topology.Point{"4000000000000000"}, Shard: "one"}}
	hashed.Pins = []topology.PinSpec{{Key: topology.Point{"7", "x"}, Shard: "three"}}
	ranged := topology.NewKeyspaceSpec("ranged", topology.ByRange, 0, "date")
	ranged.Ranges = []topology.RangeSpec{{Shard: "one"}, {From: topology.Point{"2020-01-01"}, Shard: "two"}, {From: topology.Point{"2021-01-01"}, Shard: "one"}}
	tenants := topology.NewKeyspaceSpec("tenants", topology.BySchema, 9)
	tenants.Ranges = []topology.RangeSpec{{Shard: "one"}}
	m, err = m.Next(
		addShard("two"), addShard("one"), addShard("three"),
		topology.CreateKeyspace(hashed), topology.CreateKeyspace(ranged), topology.CreateKeyspace(tenants),
	)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func addShard(name string) topology.Change {
	return topology.AddShard(topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: name + ".test:5432"}})
}
