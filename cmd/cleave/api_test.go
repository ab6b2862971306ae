package main

import (
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
