// Package cleave_test holds the rules of the house that no compiler knows: every package explains itself, and imports
// run in one direction only.
package cleave_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/cleavedb/cleave"

// goFile is one parsed file: where it is, and what its top says.
type goFile struct {
	path   string // from the root, with slashes
	syntax *ast.File
}

func (f goFile) folder() string { return path.Dir(f.path) }

func (f goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f goFile) imports() []string {
	imports := make([]string, len(f.syntax.Imports))
	for i, spec := range f.syntax.Imports {
		imports[i], _ = strconv.Unquote(spec.Path.Value)
	}
	return imports
}

// goFiles parses the import clauses of every Go file, of the benchmark module too.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || len(entry.Name()) > 1 && strings.HasPrefix(entry.Name(), ".")) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, goFile{filepath.ToSlash(name), syntax})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestEveryPackageExplainsItself asks each package for a comment that says more than its name.
func TestEveryPackageExplainsItself(t *testing.T) {
	const leastWords = 12
	files := goFiles(t)
	hasCode := map[string]bool{} // a folder of tests alone explains itself in one of them
	for _, f := range files {
		hasCode[f.folder()] = hasCode[f.folder()] || !f.isTest()
	}
	words := map[string]int{}
	for _, f := range files {
		words[f.folder()] = max(words[f.folder()], 0)
		if f.syntax.Doc != nil && f.isTest() != hasCode[f.folder()] {
			words[f.folder()] = max(words[f.folder()], len(strings.Fields(f.syntax.Doc.Text())))
		}
	}
	if len(words) < 4 {
		t.Fatalf("only %d packages were found", len(words))
	}
	for folder, n := range words {
		if n < leastWords {
			t.Errorf("package %s has a comment of %d words; say what it does, what it does not, what it guarantees, what is safe for concurrent use, where to start reading", folder, n)
		}
	}
}

// importRule says what a part of the tree must not import, and why.
type importRule struct {
	within  string // a folder, and all below it
	may     []string
	not     []string
	because string
}

// external stands for every module but ours and the standard library.
const external = "other modules"

// importRules: a folder imports of ours only what is listed here, and other modules only if it says so.
var importRules = []importRule{
	{
		within: "placement", may: []string{"placement", external},
		because: "it is a library for other programs: what places a cache's keys must not bring a database router along",
	},
	{
		within: "shardmap", because: "it is a library for other programs, small enough to need nothing but the standard library",
	},
	{
		within: "idgen", because: "it is a library for other programs, small enough to need nothing but the standard library",
	},
	{
		within: "saga", may: []string{"idgen", external},
		because: "it is a library for programs that talk to a router, or to a plain PostgreSQL, and knows no more of either than its SQL",
	},
	{
		within: "examples", may: []string{"saga", "placement", "shardmap", "idgen", external},
		because: "they show what everybody can do, with what everybody can import",
	},
	{
		within: "internal/secret", because: "where a password is found concerns everyone, so it may depend on nobody",
	},
	{
		within: "internal/topology", may: []string{"placement", "internal/secret", "internal/sqltext", external},
		because: "the shard map is a value: whoever reads, plans or tests with it must not bring a store or a network along",
	},
	{
		within: "internal/rebalance", may: []string{"internal/topology", "placement", external},
		because: "a plan of moves is a function of its arguments: who measures sizes and who moves rows is others' business",
	},
	{
		within: "internal/store", may: []string{"internal/topology", external},
		because: "it keeps the map and does not know what it means",
	},
	{
		within: "internal/localpg", may: []string{external}, because: "it starts servers for whoever needs one, so it may know nobody",
	},
	{
		within: "internal/config", may: []string{"internal/secret", external},
		because: "what a process is told at its start is read before any part of it exists",
	},
	{
		within: "internal/api", may: []string{"internal/topology", "placement", external},
		because: "the types of the API are shared by those who serve it and those who call it",
	},
	{
		within: "internal/shard", may: []string{"internal/api", "internal/pgerr", "internal/sqltext", "internal/topology", "internal/secret", "idgen", "placement", external},
		because: "it looks at one server; the cluster is others' business",
	},
	{
		within: "internal/adopt", may: []string{"internal/api", "internal/pgerr", "internal/shard", "internal/sqltext", "internal/topology", "placement", external},
		because: "it looks at a database and at no cluster: what becomes of that is the control plane's, which the command asks",
	},
	{
		within: "internal/pgerr", because: "every room that a client may hear of uses it, so it may depend on nobody",
	},
	{
		within: "internal/wire", may: []string{"internal/pgerr"},
		because: "bytes and messages are what they are whoever sends them",
	},
	{
		within: "internal/auth", may: []string{"internal/pgerr", external},
		because: "who a client is must be decided without a socket, a pool or a map in the way",
	},
	{
		within: "internal/pool", may: []string{"internal/auth", "internal/pgerr", "internal/shard", "internal/topology", external},
		because: "it lends connections and knows nothing of what is said over them",
	},
	{
		within: "internal/sqltext", may: []string{external}, because: "a text's tokens depend on nothing but the text",
	},
	{
		within: "internal/facts", may: []string{"internal/sqltext", "internal/pgerr", external}, because: "what a statement says depends on nothing but the statement",
	},
	{
		within: "internal/compose", may: []string{"internal/sqltext", external}, because: "what a query becomes in steps depends on nothing but the query and what its tables are",
	},
	{
		within: "internal/plan", may: []string{"internal/compose", "internal/facts", "internal/pgerr", "internal/sqltext", "internal/topology", "placement"},
		because: "a plan is a function of its arguments: it must be possible to hold it in a golden file",
	},
	{
		within: "internal/copydata", may: []string{"internal/pgerr"},
		because: "it reads bytes, and knows neither types nor keys nor shards",
	},
	{
		within: "internal/binding", may: []string{"internal/pgerr", "internal/plan", "internal/sqltext", "placement"},
		because: "what a key becomes is arithmetic, or a question that somebody else asks",
	},
	{
		within: "internal/merge", may: []string{"internal/pgerr"},
		because: "rows are put together by their bytes alone: which servers they came from, and what was asked, is others' business",
	},
	{
		within: "internal/catalog", may: []string{"internal/pgerr", "internal/plan", "internal/shard", "internal/topology", external},
		because: "it reads the catalogue for the planner and does not plan",
	},
	{
		within: "internal/deadlock", may: []string{"internal/pgerr", "internal/shard", "internal/topology", external},
		because: "sessions tell it what they wait for: where that is recorded, and who leads, is others' business",
	},
	{
		within: "internal/handover", may: []string{external}, because: "it hands sockets over, whatever listens on them",
	},
	{
		within: "internal/failpoint", because: "a place where a test lets a process die is anywhere, so it may depend on nobody",
	},
	{
		within: "internal/txn", may: []string{"internal/failpoint", "internal/pgerr", "internal/sqltext", "internal/topology", external},
		because: "what was decided is on the shards: neither the store nor a router's memory has a say in it",
	},
	{
		within: "internal/verify", may: []string{"internal/api", "internal/failpoint", "internal/shard", "internal/topology", "placement", external},
		because: "it reads shards by a map that it is given: where that is kept, and what else is compared, is the control plane's business",
	},
	{
		within: "internal/traffic", may: []string{"internal/topology", "placement"},
		because: "it is on the way of every statement, and counts: where reports are kept, and what is made of them, is others' business",
	},
	{
		within: "internal/session", may: []string{
			"internal/auth", "internal/binding", "internal/catalog", "internal/compose", "internal/copydata", "internal/deadlock", "internal/facts", "internal/failpoint", "internal/merge", "internal/observe", "internal/txn", "internal/pgerr", "internal/plan",
			"internal/pool", "internal/shard", "internal/sqltext", "internal/topology", "internal/traffic", "internal/wire", "idgen", "placement", external,
		},
		because: "a client's statements go on while etcd is away: nothing of the store or of the control plane may be on their way",
	},
}

// externalRules: which of other modules may be imported where.
var externalRules = []importRule{
	{
		within: "placement/hash", may: []string{"github.com/dchest/siphash", "github.com/twmb/murmur3", "github.com/zeebo/xxh3"},
		because: "the hash functions to compare with are other people's, and only who compares pays for them",
	},
	{
		within: "placement", because: "deciding where a key lives needs arithmetic, not dependencies",
	},
	{
		within: "saga", may: []string{"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool"},
		because: "who uses it has pgx already, and should need nothing else",
	},
	{
		within: "internal/topology", may: []string{"github.com/zeebo/xxh3"}, because: "the shard map is a value: it needs no more than a hash",
	},
	{
		within: "internal/sqltext", may: []string{"github.com/zeebo/xxh3"}, because: "it is on the way of every statement",
	},
}

// soleImporters: modules that one part alone may import, so that another could take their place.
var soleImporters = []struct {
	imported string
	by       []string
	tests    bool // of others may too, to compare with it
}{
	{imported: "go.etcd.io/etcd", by: []string{"internal/store"}},
	{imported: "github.com/pganalyze/pg_query_go", by: []string{"internal/facts", "internal/compose"}, tests: true},
}

// standardRules: what of the standard library must not be imported where.
var standardRules = []importRule{
	{
		within: "placement", not: []string{"net", "os/exec", "database", "syscall", "plugin"},
		because: "where a key lives is arithmetic: it must give the same answer with no network and no machine around it",
	},
	{
		within: "internal/topology", not: []string{"net/http", "os", "database", "syscall", "plugin"},
		because: "the shard map is a value: it must give the same answer with no machine around it",
	},
	{
		within: "internal/rebalance", not: []string{"net", "os", "database", "syscall", "plugin", "time"},
		because: "a plan of moves is a function of its arguments",
	},
	{
		within: "internal/plan", not: []string{"net", "os", "database", "syscall", "plugin", "time"},
		because: "a plan is a function of its arguments",
	},
	{
		within: "internal/binding", not: []string{"net", "os", "database", "syscall", "plugin"},
		because: "what a key becomes depends on its arguments alone",
	},
	{
		within: "internal/merge", not: []string{"net", "os", "database", "syscall", "plugin", "time"},
		because: "what merged rows are depends on the rows alone",
	},
	{
		within: "internal/wire", not: []string{"net", "os", "syscall"}, because: "it knows bytes, not sockets",
	},
}

func TestImportsRunInOneDirection(t *testing.T) {
	checked := 0
	for _, f := range goFiles(t) {
		for _, imported := range f.imports() {
			checked++
			checkImport(t, f, imported)
		}
	}
	if checked < 50 {
		t.Fatalf("only %d imports were found", checked)
	}
}

func checkImport(t *testing.T, f goFile, imported string) {
	t.Helper()
	if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
		if rule := ruleFor(importRules, f); rule != nil && !f.isTest() && !slices.ContainsFunc(append(rule.may, rule.within), func(p string) bool { return below(ours, p) }) {
			t.Errorf("%s imports %s; %s does not, because %s", f.path, imported, rule.within, rule.because)
		}
		if below(ours, "cmd") || below(ours, "bench") && !below(f.folder(), "bench") {
			t.Errorf("%s imports %s, which is a program: nothing stands on programs", f.path, imported)
		}
		return
	}
	if !strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
		checkStandard(t, f, imported)
		return
	}
	for _, sole := range soleImporters {
		if below(imported, sole.imported) && !slices.ContainsFunc(sole.by, func(by string) bool { return below(f.folder(), by) }) && (!sole.tests || !f.isTest()) {
			t.Errorf("%s imports %s, which only %s does", f.path, imported, strings.Join(sole.by, " and "))
		}
	}
	if rule := ruleFor(importRules, f); rule != nil && !slices.Contains(rule.may, external) && !f.isTest() {
		t.Errorf("%s imports %s; %s does not, because %s", f.path, imported, rule.within, rule.because)
	}
	if rule := ruleFor(externalRules, f); rule != nil && !slices.Contains(rule.may, imported) && !f.isTest() {
		t.Errorf("%s imports %s; %s does not, because %s", f.path, imported, rule.within, rule.because)
	}
}

func checkStandard(t *testing.T, f goFile, imported string) {
	t.Helper()
	rule := ruleFor(standardRules, f)
	if rule != nil && !f.isTest() && slices.ContainsFunc(rule.not, func(p string) bool { return below(imported, p) }) {
		t.Errorf("%s imports %s; %s does not, because %s", f.path, imported, rule.within, rule.because)
	}
}

// ruleFor returns the first rule for the file's folder.
func ruleFor(rules []importRule, f goFile) *importRule {
	for i := range rules {
		if below(f.folder(), rules[i].within) {
			return &rules[i]
		}
	}
	return nil
}

func below(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

// TestWhatIsTestedWithoutTheRaceDetectorHasNoGoroutines: the Makefile lists these packages.
func TestWhatIsTestedWithoutTheRaceDetectorHasNoGoroutines(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^PURE +:= (.+)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile lists no such packages")
	}
	for _, pattern := range strings.Fields(string(list[1])) {
		folder, below := strings.CutSuffix(strings.TrimPrefix(pattern, "./"), "/...")
		checked := 0
		for _, f := range goFiles(t) {
			if f.folder() == folder || below && strings.HasPrefix(f.folder(), folder+"/") {
				checked++
				checkNoGoroutines(t, f.path)
			}
		}
		if checked == 0 {
			t.Errorf("%s has no files", pattern)
		}
	}
}

func checkNoGoroutines(t *testing.T, name string) {
	t.Helper()
	files := token.NewFileSet()
	syntax, err := parser.ParseFile(files, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: a goroutine begins in a package that is tested without the race detector", files.Position(n.Pos()))
		case *ast.SelectorExpr:
			if slices.Contains([]string{"Go", "Parallel", "RunParallel"}, n.Sel.Name) {
				t.Errorf("%s: %s begins goroutines in a package that is tested without the race detector", files.Position(n.Pos()), n.Sel.Name)
			}
		}
		return true
	})
}
