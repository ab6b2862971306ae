package auth

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// clock is a time that a test moves on.
type clock struct {
	mu   sync.Mutex
	time time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = c.time.Add(d)
}

func newClock() *clock { return &clock{time: time.Now()} }

// replaceFile puts another file in the place of the one that is there.
func replaceFile(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

func TestUsersOfAFile(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("x", 1)).String()
	path := filepath.Join(t.TempDir(), "users")
	replaceFile(t, path, "; users\r\n\n# of ours\n\"alice\" \""+v+"\"\n\t\"o\"\"dd ; name\"\t\""+v+"\" ; comment\n\"bare\" \"\"")
	file := must[*File](t)(NewFile(path, nil))
	for _, name := range []string{"alice", `o"dd ; name`} {
		user, err := file.Lookup(t.Context(), name)
		if err != nil || user.Name != name || user.Verifier.String() != v || !user.CanLogin || !user.ValidUntil.IsZero() {
			t.Errorf("%s: %+v, %v", name, user, err)
		}
	}
	if user := must[*User](t)(file.Lookup(t.Context(), "bare")); user.Verifier != nil {
		t.Errorf("a user without a password has %s", user.Verifier)
	}
	if _, err := file.Lookup(t.Context(), "Alice"); !errors.Is(err, ErrNoUser) {
		t.Errorf("somebody else is found: %v", err)
	}
}

func TestFilesOfUsersThatAreRefused(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("x", 1)).String()
	path := filepath.Join(t.TempDir(), "users")
	for name, c := range map[string]struct {
		line  string
		words string
	}{
		"password":  {`"a" "sesame-open"`, "cleave auth verifier"},
		"md5":       {`"a" "md5aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"`, "cleave auth verifier"},
		"no quotes": {`a ` + v, "double quotes"},
		"one field": {`"a"`, "double quotes"},
		"open":      {`"a" "` + v, "double quotes"},
		"trailing":  {`"a" "` + v + `" more`, "double quotes"},
		"no name":   {`"" "` + v + `"`, "not empty"},
		"bytes":     {"\"\xff\" \"" + v + "\"", "UTF-8"},
		"twice":     {`"first" ""`, `"first" was there before`},
	} {
		t.Run(name, func(t *testing.T) {
			replaceFile(t, path, "\"first\" \"\"\n\n"+c.line+"\n")
			_, err := NewFile(path, nil)
			if err == nil || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v does not say %q and where", err, c.words)
			}
			if err != nil && (strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "md5a") || strings.Contains(err.Error(), v)) {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
	for _, other := range []string{t.TempDir(), path + ".missing"} {
		if _, err := NewFile(other, nil); err == nil {
			t.Errorf("%s is read", other)
		}
	}
}

func TestAFileIsReadAnewWhenItHasChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	replaceFile(t, path, `"old" ""`)
	var warnings []error
	file := must[*File](t)(NewFile(path, func(err error) { warnings = append(warnings, err) }))
	clock := newClock()
	file.users.now = clock.now
	expect := func(when string, want string, warned int) {
		t.Helper()
		for _, name := range []string{"old", "new"} {
			if _, err := file.Lookup(t.Context(), name); (err == nil) != (name == want) {
				t.Errorf("%s: %s: %v", when, name, err)
			}
		}
		if len(warnings) != warned {
			t.Errorf("%s: warned %d times: %v", when, len(warnings), warnings)
		}
	}
	clock.pass(lookInterval)
	expect("at first", "old", 0)
	replaceFile(t, path, `"new" ""`) // of the same size
	expect("within a second", "old", 0)
	clock.pass(lookInterval)
	expect("replaced", "new", 0)
	replaceFile(t, path, `"new" "password"`)
	clock.pass(lookInterval)
	expect("broken", "new", 1)
	clock.pass(lookInterval)
	expect("still broken", "new", 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	clock.pass(lookInterval)
	expect("gone", "new", 2)
	clock.pass(lookInterval)
	expect("still gone", "new", 2)
	replaceFile(t, path, `"old" ""`)
	clock.pass(lookInterval)
	expect("back", "old", 2)
	// Written in place: only its time and size tell.
	if err := os.WriteFile(path, []byte(`"new" "" # longer`), 0o600); err != nil {
		t.Fatal(err)
	}
	clock.pass(lookInterval)
	expect("in place", "new", 2)
	if err := errors.Join(os.WriteFile(path, []byte(`"old" "" # longer`), 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	clock.pass(lookInterval)
	expect("in place, of the same size", "old", 2)
}

func TestManyReadOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	replaceFile(t, path, `"a" ""`)
	file := must[*File](t)(NewFile(path, nil))
	clock := newClock()
	file.users.now = clock.now
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				clock.pass(lookInterval)
				if _, err := file.Lookup(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		replaceFile(t, path, `"a" ""`)
	}
	group.Wait()
}
