package auth

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/pgerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// expectError wants an error for clients, with this code and these words, and FATAL as every failed login is.
func expectError(t *testing.T, err error, code string, words ...string) {
	t.Helper()
	var failure *pgerr.Error
	if !errors.As(err, &failure) {
		t.Fatalf("%v is not an error for clients", err)
	}
	if failure.Code != code || failure.Severity != pgerr.SeverityFatal {
		t.Errorf("%v is %s %s, want FATAL %s", err, failure.Severity, failure.Code, code)
	}
	text := failure.Message + "\n" + failure.Detail + "\n" + failure.Hint
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}
