package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

func TestTheVerdictOfACheck(t *testing.T) {
	problem, warning := api.Finding{Severity: api.Problem, Message: "p"}, api.Finding{Severity: api.Warning, Message: "w"}
	for _, c := range []struct {
		findings []api.Finding
		printed  string
		fails    bool
	}{
		{nil, "ok\n", false},
		{[]api.Finding{warning}, "warning: w\nok, with 1 warning\n", false},
		{[]api.Finding{warning, warning}, "warning: w\nwarning: w\nok, with 2 warnings\n", false},
		{[]api.Finding{warning, problem}, "warning: w\nproblem: p\n", true},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		if err := reportCheck(cmd, c.findings); (err != nil) != c.fails || out.String() != c.printed {
			t.Errorf("%v: printed %q, %v, want %q", c.findings, out.String(), err, c.printed)
		}
	}
}

// TestAnImportNamesTheVersionThatItComparedWith, so that what is changed in between is not overwritten unseen.
func TestAnImportNamesTheVersionThatItComparedWith(t *testing.T) {
	m, err := topology.New("0192f0c1-2d3e-7a4b-8c5d-6e7f8a9b0c1d")
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Next(topology.RaiseVersion(7)); err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(m.Document())
	if err != nil {
		t.Fatal(err)
	}
	var matched string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write(document)
			return
		}
		matched = r.Header.Get("If-Match")
		_, _ = io.WriteString(w, `{"map_version": 8}`)
	}))
	t.Cleanup(server.Close)
	i := importer{file: "map.json", document: document, imported: m}
	changed, err := i.run(t.Context(), &api.Client{BaseURL: server.URL, HTTP: server.Client()})
	if err != nil || changed.MapVersion != 8 || matched != `"7"` {
		t.Errorf("imported %+v with If-Match %s, %v", changed, matched, err)
	}
}
