package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// TestNamesAreThoseOfTheMap: what is refused before anybody is asked is what the map would refuse, no more and no less.
func TestNamesAreThoseOfTheMap(t *testing.T) {
	m, err := topology.New("0192f0c1-2d3e-7a4b-8c5d-6e7f8a9b0c1d")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"", "a", "0", "a-b_c.d", "-a", "a-", ".", "..", "a.", "A", "ü", "a b", "a/b", "a?b", "a%2fb", "a\n", "a\x00",
		strings.Repeat("a", 62), strings.Repeat("a", 63), strings.Repeat("a", 64),
	}
	for _, name := range names {
		_, byMap := m.Next(topology.AddShard(topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: "a.test:5432"}}))
		if byCommand := checkName("shard", name); (byMap == nil) != (byCommand == nil) {
			t.Errorf("%q: the map says %v, the command %v", name, byMap, byCommand)
		}
	}
}

// TestWhoWatchesAMove goes on when there is no answer for a moment, but not if there never was one.
func TestWhoWatchesAMove(t *testing.T) {
	for name, one := range map[string]struct {
		answers []string
		want    string
	}{
		"a moment without etcd":        {[]string{"copying", "", "switching", "", "", "done"}, ""},
		"no answer from the beginning": {[]string{"", "done"}, "no answer from etcd"},
		"a move that is not there":     {[]string{"copying", "missing"}, "does not exist"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			phase := one.answers[0]
			one.answers = one.answers[1:]
			switch phase {
			case "":
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprint(w, `{"error": {"code": "unavailable", "message": "no answer from etcd"}}`)
			case "missing":
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"error": {"code": "not_found", "message": "move \"m\" does not exist"}}`)
			default:
				fmt.Fprintf(w, `{"id": "m", "phase": %q}`, phase)
			}
		}))
		cmd := newMove()
		cmd.SetArgs([]string{"watch", "m", "--api", server.URL})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		server.Close()
		if (err == nil) != (one.want == "") || err != nil && !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v, wanted %q", name, err, one.want)
		}
	}
}

// TestATokenStaysWithItsServer: who is sent elsewhere does not take the token along.
func TestATokenStaysWithItsServer(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	t.Setenv(tokenVariable, "s3cret")
	client, err := (&connection{address: server.URL}).client()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is not the API of Cleave") || asked != 1 {
		t.Errorf("asked %d times, got %v", asked, err)
	}
}
