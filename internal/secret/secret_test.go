package secret_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/secret"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]secret.Reference{
		"":                     {},
		"file:/run/secrets/pw": {File: "/run/secrets/pw"},
		"file: /run/pw":        {File: "/run/pw"},
		"env:ETCD_PASSWORD":    {Env: "ETCD_PASSWORD"},
	} {
		got, err := secret.Parse(text)
		if err != nil || got != want {
			t.Errorf("%q is %#v, %v; want %#v", text, got, err, want)
		}
		if again, err := secret.Parse(got.String()); err != nil || again != got {
			t.Errorf("%q does not come back: %#v, %v", got, again, err)
		}
	}
}

// TestRefusalsDoNotRepeat: what is refused may be the password itself.
func TestRefusalsDoNotRepeat(t *testing.T) {
	const password = "hunter2"
	for _, text := range []string{password, "file:" + password, "env:" + password + "!", "file:", "env:", "plain:" + password} {
		got, err := secret.Parse(text)
		if err == nil || !got.IsZero() || strings.Contains(err.Error(), password) {
			t.Errorf("%q is %#v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		`"hunter2"`, `{"file":"hunter2"}`, `{"value":"hunter2"}`, `{"hunter2":"/a"}`, `{"file":["hunter2"]}`, `["hunter2"]`, `7`,
		`{"file":"/a","env":"hunter2"}`, `{"env":"hunter2!"}`,
	} {
		var got secret.Reference
		err := json.Unmarshal([]byte(text), &got)
		if err == nil || !got.IsZero() || strings.Contains(err.Error(), password) {
			t.Errorf("%s is %#v, %v", text, got, err)
		}
	}
}

func TestJSON(t *testing.T) {
	for text, want := range map[string]secret.Reference{
		`{"file":"/run/pw"}`: {File: "/run/pw"},
		`{"env":"PW"}`:       {Env: "PW"},
		`{}`:                 {},
	} {
		var got secret.Reference
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %#v, %v; want %#v", text, got, err, want)
		}
		if back, err := json.Marshal(got); err != nil || string(back) != text {
			t.Errorf("%#v becomes %s, %v; want %s", got, back, err, text)
		}
	}
	for text, want := range map[string]secret.Reference{`"env:PW"`: {Env: "PW"}, `""`: {}, `null`: {}} {
		var got secret.Reference
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %#v, %v; want %#v", text, got, err, want)
		}
	}
}

func TestResolveFile(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string, mode os.FileMode) secret.Reference {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return secret.Reference{File: path}
	}
	for _, of := range []struct{ content, want string }{
		{"pw", "pw"}, {"pw\n", "pw"}, {"pw\r\n", "pw"}, {"pw\n\n", "pw\n"}, {" pw ", " pw "},
	} {
		if got, err := write("password", of.content, 0o600).Resolve(); err != nil || got != of.want {
			t.Errorf("%q resolves to %q, %v; want %q", of.content, got, err, of.want)
		}
	}
	for name, r := range map[string]secret.Reference{
		"empty file":   write("empty", "\n", 0o600),
		"missing file": {File: filepath.Join(folder, "nowhere")},
		"folder":       {File: folder},
		"huge file":    write("huge", strings.Repeat("x", 64<<10+1), 0o600),
		"relative":     {File: "password"},
		"nothing":      {},
		"both":         {File: filepath.Join(folder, "password"), Env: "HOME"},
	} {
		if got, err := r.Resolve(); err == nil {
			t.Errorf("%s resolves to %q", name, got)
		}
	}
	// Asked before opening, or a pipe without a writer would be waited for.
	if _, err := (secret.Reference{File: os.DevNull}).Resolve(); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a device is refused with %v", err)
	}
	if write("closed", "pw", 0o640).Exposed() || !write("open", "pw", 0o644).Exposed() {
		t.Error("a file is exposed if all may read it, and not otherwise")
	}
	if (secret.Reference{Env: "HOME"}).Exposed() || (secret.Reference{File: filepath.Join(folder, "nowhere")}).Exposed() {
		t.Error("what is not a file is not exposed")
	}
}

func TestResolveEnvironment(t *testing.T) {
	t.Setenv("CLEAVE_TEST_SECRET", "pw\n")
	r := secret.Reference{Env: "CLEAVE_TEST_SECRET"}
	if got, err := r.Resolve(); err != nil || got != "pw\n" {
		t.Errorf("resolves to %q, %v", got, err)
	}
	t.Setenv("CLEAVE_TEST_SECRET", "")
	if got, err := r.Resolve(); err == nil {
		t.Errorf("an empty variable resolves to %q", got)
	}
}

// TestPrintsOnlyTheReference also after it was resolved.
func TestPrintsOnlyTheReference(t *testing.T) {
	t.Setenv("CLEAVE_TEST_SECRET", "hunter2")
	r := secret.Reference{Env: "CLEAVE_TEST_SECRET"}
	if _, err := r.Resolve(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("connecting", "password", r)
	for _, printed := range []string{fmt.Sprint(r), fmt.Sprintf("%+v %#v %s", r, r, r), log.String()} {
		if strings.Contains(printed, "hunter2") || !strings.Contains(printed, "CLEAVE_TEST_SECRET") {
			t.Errorf("prints as %s", printed)
		}
	}
	if !strings.Contains(log.String(), "password=env:CLEAVE_TEST_SECRET") {
		t.Errorf("logs as %s", log.String())
	}
}
