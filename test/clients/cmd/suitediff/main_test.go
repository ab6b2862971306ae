package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const there = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"x\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestC"}
{"Action":"pass","Package":"p","Test":"TestD"}
{"Action":"skip","Package":"p","Test":"TestE"}
{"Action":"fail","Package":"p","Test":"TestF"}
{"Action":"fail","Package":"p"}
{"Action":"fail","Package":"broken"}
`

const here = `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: no\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"  ERROR: not so (SQLSTATE 0A000)\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"  ERROR: later (SQLSTATE 42601)\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: never\n"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"fail","Package":"p","Test":"TestF"}
`

func TestComparison(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second := write("there", there), write("here", here)
	var out strings.Builder
	if err := run(&out, []string{first, second}); err == nil {
		t.Error("two tests fail only here, and the command does not")
	}
	const want = `there: 4 passed, 2 failed, 1 skipped
here:  1 passed, 3 failed, 1 skipped
of 4 that pass there, 1 pass here
pass there and are skipped here:
  p TestD
fail only here:
  p TestB
      ERROR: not so (SQLSTATE 0A000)
  p TestC
      c_test.go:7: never
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	out.Reset()
	if err := run(&out, []string{first}); err != nil {
		t.Error(err)
	}
	if want := "there: 4 passed, 2 failed, 1 skipped\nfailed there:\n  broken\n  p TestF\n"; out.String() != want {
		t.Errorf("got:\n%s", out.String())
	}
	if err := run(&out, []string{write("bad", "no events")}); err == nil {
		t.Error("a file of something else was read")
	}
}
