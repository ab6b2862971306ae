package shardmap

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

type (
	users  struct{}
	orders struct{}
)

func newTyped[Tag any](t *testing.T) *Shard[Tag, string, int] {
	t.Helper()
	s, err := NewShard[Tag, string, int](Config[string]{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTypedShard(t *testing.T) {
	s := newTyped[users](t)
	key := s.Key("ann")
	if key != KeyOf[users]("ann") || key.Value() != "ann" {
		t.Errorf("key %v", key)
	}
	s.Set(key, 1)
	s.Compute(key, func(old int, _ bool) (int, Action) { return old + 1, Put })
	if got, loaded := s.LoadOrStore(key, 9); got != 2 || !loaded {
		t.Errorf("LoadOrStore = %v, %v", got, loaded)
	}
	s.Range(func(k Key[users, string], value int) bool {
		if k != key || value != 2 {
			t.Errorf("Range shows %v, %v", k, value)
		}
		return true
	})
	if got, present := s.Get(key); got != 2 || !present || s.Len() != 1 {
		t.Errorf("Get = %v, %v, Len = %d", got, present, s.Len())
	}
	if old, present := s.Delete(key); old != 2 || !present {
		t.Errorf("Delete = %v, %v", old, present)
	}
	if size := unsafe.Sizeof(Key[users, uint64]{}); size != 8 {
		t.Errorf("the tag takes space: %d bytes", size)
	}
	if _, err := NewShard[users, string, int](Config[string]{Shards: -1}); err == nil {
		t.Error("a bad configuration was accepted")
	}
}

func TestCross(t *testing.T) {
	a, b := newTyped[users](t), newTyped[orders](t)
	ann, first := a.Key("ann"), b.Key("first")
	a.Set(ann, 10)
	spend := func(x, y *Cell[int]) error {
		credit, _ := x.Get()
		if credit < 6 {
			return errTest
		}
		x.Set(credit - 6)
		paid, _ := y.Get()
		y.Set(paid + 6)
		return nil
	}
	if err := Cross(a, ann, b, first, spend); err != nil {
		t.Fatal(err)
	}
	if err := Cross(a, ann, b, first, func(x, y *Cell[int]) error {
		y.Delete()
		return spend(x, y)
	}); !errors.Is(err, errTest) {
		t.Errorf("Cross = %v", err)
	}
	wantPanic(t, func() {
		_ = Cross(a, ann, b, b.Key("second"), func(x, y *Cell[int]) error {
			x.Delete()
			y.Set(1)
			panic("no")
		})
	})
	wantGet(t, a.m, "ann", 4, true)
	wantGet(t, b.m, "first", 6, true)
	wantGet(t, b.m, "second", 0, false)

	if err := Cross(a, ann, a, ann, func(*Cell[int], *Cell[int]) error { return nil }); !errors.Is(err, ErrSameKey) {
		t.Errorf("Cross of a key with itself = %v", err)
	}
	if err := Cross(a, ann, a, a.Key("bob"), spend); !errors.Is(err, errTest) {
		t.Errorf("Cross within one shard = %v", err)
	}
}

// Crossing in both directions at once must neither deadlock nor lose anything.
func TestCrossUnderLoad(t *testing.T) {
	a, b := newTyped[users](t), newTyped[orders](t)
	move := func(from, to *Cell[int]) error {
		x, _ := from.Get()
		y, _ := to.Get()
		from.Set(x - 1)
		to.Set(y + 1)
		return nil
	}
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for range often(4000) {
				var err error
				if worker%2 == 0 {
					err = Cross(a, a.Key("k"), b, b.Key("k"), move)
				} else {
					err = Cross(b, b.Key("k"), a, a.Key("k"), move)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	wantGet(t, a.m, "k", 0, true)
	wantGet(t, b.m, "k", 0, true)
}

// What must not compile does not. Each line is checked on its own, and each has
// a twin that compiles, so that a refusal is for the right reason.
func TestKeysOfOtherShardsDoNotCompile(t *testing.T) {
	const before = `package client

import "example.org/shardmap"

type users struct{}
type orders struct{}

func _(
	u *shardmap.Shard[users, string, int], uk shardmap.Key[users, string],
	o *shardmap.Shard[orders, string, int], ok shardmap.Key[orders, string],
	m *shardmap.Map[string, int], r shardmap.Routed[string],
) {
	`
	compile := typeChecker(t)
	for _, test := range []struct{ good, bad, complaint string }{
		{`u.Get(uk)`, `u.Get(ok)`, "cannot use ok"},
		{`o.Set(ok, 1)`, `o.Set(uk, 1)`, "cannot use uk"},
		{`o.Delete(ok)`, `o.Delete(uk)`, "cannot use uk"},
		{`u.Set(u.Key("a"), 1)`, `u.Set("a", 1)`, "cannot use"},
		{`u.Set(u.Key("a"), 1)`, `u.Set(o.Key("a"), 1)`, "cannot use"},
		{`_ = shardmap.Key[users, string](uk)`, `_ = shardmap.Key[users, string](ok)`, "cannot convert"},
		{`_ = uk == uk`, `_ = uk == ok`, "mismatched types"},
		{`u = u`, `u = o`, "cannot use o"},
		{
			`_ = shardmap.Cross(u, uk, o, ok, func(a, b *shardmap.Cell[int]) error { return nil })`,
			`_ = shardmap.Cross(u, ok, o, uk, func(a, b *shardmap.Cell[int]) error { return nil })`,
			"does not match",
		},
		{`_ = shardmap.Routed[string]{}`, `_ = shardmap.Routed[string]{key: "a"}`, "cannot refer to unexported field"},
		{`_ = m.Shard(0).Set(r, 1)`, `_ = m.Shard(0).Set("a", 1)`, "cannot use"},
	} {
		if err := compile(before + test.good + "\n}\n"); err != nil {
			t.Errorf("%s does not compile: %v", test.good, err)
		}
		err := compile(before + test.bad + "\n}\n")
		if err == nil {
			t.Errorf("%s compiles", test.bad)
		} else if !strings.Contains(err.Error(), test.complaint) {
			t.Errorf("%s is refused with %q, want %q", test.bad, err, test.complaint)
		}
	}
}

// typeChecker returns a function that checks a file which may import this
// package.
func typeChecker(t *testing.T) func(source string) error {
	t.Helper()
	files := token.NewFileSet()
	standard := importer.ForCompiler(files, "source", nil)
	this := checkThisPackage(t, files, standard)
	imports := importerFunc(func(path string) (*types.Package, error) {
		if path == "example.org/shardmap" {
			return this, nil
		}
		return standard.Import(path)
	})
	return func(source string) error {
		file, err := parser.ParseFile(files, "client.go", source, 0)
		if err != nil {
			return err
		}
		_, err = (&types.Config{Importer: imports}).Check("client", files, []*ast.File{file}, nil)
		return err
	}
}

func checkThisPackage(t *testing.T, files *token.FileSet, standard types.Importer) *types.Package {
	t.Helper()
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name.Name(), ".go") || strings.HasSuffix(name.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	this, err := (&types.Config{Importer: standard, IgnoreFuncBodies: true}).Check("shardmap", files, parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return this
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
