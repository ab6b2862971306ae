package key_test

import (
	"bufio"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/placement/key"
)

// leastVectors is how many vectors every file must hold, so that a truncated file cannot pass.
const leastVectors = 2000

func TestGoldenVectors(t *testing.T) {
	checkFolder(t, "testdata")
}

// TestEveryServerAtHand holds the law that Go and every supported PostgreSQL hash a key alike: fresh values, each
// installed version.
func TestEveryServerAtHand(t *testing.T) {
	for _, installation := range pgtest.Installations(t) {
		t.Run(installation.Version, func(t *testing.T) {
			out := t.TempDir()
			cmd := exec.Command("testdata/generate.sh", out, t.Name()+strconv.Itoa(os.Getpid()))
			cmd.Env = append(os.Environ(), "CLEAVE_PG_BIN="+installation.Bin)
			if output, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("making vectors with %s: %v\n%s", installation, err, output)
			}
			checkFolder(t, out)
		})
	}
}

// checkFolder reads every *.tsv file; the file's name says the column types.
func checkFolder(t *testing.T, folder string) {
	t.Helper()
	seen := map[key.Type]bool{}
	files, _ := filepath.Glob(filepath.Join(folder, "*.tsv"))
	for _, file := range files {
		types := typesOf(t, file)
		if len(types) == 1 {
			seen[types[0]] = true
		}
		t.Run(filepath.Base(file), func(t *testing.T) { checkFile(t, file, types) })
	}
	for _, typ := range key.Types() {
		if !seen[typ] {
			t.Errorf("no golden vectors for %s", typ)
		}
	}
}

func typesOf(t *testing.T, file string) []key.Type {
	t.Helper()
	var types []key.Type
	for name := range strings.SplitSeq(strings.TrimSuffix(filepath.Base(file), ".tsv"), "+") {
		typ, err := key.ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, typ)
	}
	return types
}

func checkFile(t *testing.T, file string, types []key.Type) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)

	lines.Scan()
	expression, err := key.CompositeSQL(types, []string{"a", "b", "c"}[:len(types)], "seed")
	if err != nil {
		t.Fatal(err)
	}
	if got := lines.Text(); got != "# "+expression {
		t.Fatalf("the vectors were made with\n%s\nbut CompositeSQL gives\n# %s", got, expression)
	}

	vectors := 0
	for lines.Scan() {
		checkVector(t, types, strings.Split(lines.Text(), "\t"))
		vectors++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if vectors < leastVectors {
		t.Errorf("%d vectors, want at least %d", vectors, leastVectors)
	}
}

// checkVector takes the key's columns, the seed and the hash that PostgreSQL computed.
func checkVector(t *testing.T, types []key.Type, fields []string) {
	t.Helper()
	if len(fields) != len(types)+2 {
		t.Fatalf("a vector of %d fields for %v", len(fields), types)
	}
	hash := uint64(signed(t, fields[len(types)]))
	for i, typ := range types {
		value, err := typ.Parse(plainText(t, typ, fields[i]))
		if err != nil {
			t.Fatal(err)
		}
		hash = value.Hash(hash)
	}
	if want := uint64(signed(t, fields[len(types)+1])); hash != want {
		t.Errorf("hash of %v %q is %#x, PostgreSQL says %#x", types, fields[:len(types)], hash, want)
	}
}

// plainText undoes the hexadecimal form in which the generator writes text, and gives bytea its prefix.
func plainText(t *testing.T, typ key.Type, field string) string {
	t.Helper()
	switch typ {
	case key.Text, key.Varchar:
		raw, err := hex.DecodeString(field)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	case key.Bytea:
		return `\x` + field
	default:
		return field
	}
}

func signed(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
