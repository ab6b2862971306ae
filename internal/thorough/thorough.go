// Package thorough says how much time tests have. 'make test' is run before every change lands, so it has minutes: of cases that differ little it
// looks at some, and leaves tests whose subject others touch too. 'make thorough' has hours, and runs everything.
package thorough

import (
	"hash/fnv"
	"os"
	"testing"
)

// Asked says whether there is time for all cases.
func Asked() bool { return os.Getenv("CLEAVE_THOROUGH") != "" }

// Only leaves a test, or one of its cases, to 'make thorough'. It is for what is a variant of something that is looked at each time.
func Only(t testing.TB) {
	t.Helper()
	if !Asked() {
		t.Skip("'make thorough' runs it")
	}
}

// Some leaves all but one in so many of a test's cases to 'make thorough'; their names decide which, so it is always the same ones.
func Some(t testing.TB, in uint32) {
	t.Helper()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	if hash.Sum32()%in != 0 {
		Only(t)
	}
}
