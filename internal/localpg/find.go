package localpg

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// leastMajor is the oldest major version that a server is made with unless its folder is named: publications have row
// filters from 15 on, and moves need them.
const leastMajor = 15

const binVariable = "CLEAVE_PG_BIN"

// Installation is one set of PostgreSQL's programs.
type Installation struct {
	Bin     string // the folder, with symbolic links resolved
	Version string // as the server says it, such as "15.14"
	Major   int
}

func (i Installation) String() string { return fmt.Sprintf("PostgreSQL %s in %s", i.Version, i.Bin) }

// Tool returns the path of one of PostgreSQL's programs: beside the server, else on the path, since some packages come
// without the clients.
func (i Installation) Tool(name string) (string, error) {
	if path := filepath.Join(i.Bin, name); isExecutable(path) {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s has no %s, nor is there one on the path", ErrNotInstalled, i, name)
	}
	return path, nil
}

// basebackup returns the program that copies a server. It works with servers of its own version and older ones.
func (i Installation) basebackup(ctx context.Context) (string, error) {
	path, err := i.Tool("pg_basebackup")
	if err != nil {
		return "", err
	}
	version, major, err := askVersion(ctx, path)
	if err == nil && major < i.Major {
		err = fmt.Errorf("%w: need pg_basebackup of version %d or newer, but %s is of version %s", ErrNotInstalled, i.Major, path, version)
	}
	return path, err
}

// Find returns the installations on this machine, the newest version first, also those too old for [Start] to choose. If
// CLEAVE_PG_BIN is set, it names the only one. If there are none the error is [ErrNotInstalled].
func Find(ctx context.Context) ([]Installation, error) {
	if bin := os.Getenv(binVariable); bin != "" {
		installation, err := inspect(ctx, bin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", binVariable, err)
		}
		return []Installation{installation}, nil
	}
	found := installationsIn(ctx, candidateFolders())
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("look for PostgreSQL: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotInstalled, installHint())
	}
	return found, nil
}

// installationsIn leaves out what is no installation: a distribution's folder may be there and empty.
func installationsIn(ctx context.Context, folders []string) []Installation {
	var found []Installation
	for _, folder := range folders {
		installation, err := inspect(ctx, folder)
		known := func(other Installation) bool { return other.Bin == installation.Bin }
		if err == nil && !slices.ContainsFunc(found, known) {
			found = append(found, installation)
		}
	}
	slices.SortStableFunc(found, func(a, b Installation) int { return compareVersions(b, a) })
	return found
}

func compareVersions(a, b Installation) int {
	return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(minorVersion(a.Version), minorVersion(b.Version)))
}

// minorVersion is the second number of a version; beta versions have none and come first.
func minorVersion(version string) int {
	_, minor, _ := strings.Cut(version, ".")
	number, err := strconv.Atoi(minor)
	if err != nil {
		return -1
	}
	return number
}

// usualFolders are where the packages of distributions put the server.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
	"/usr/lib/postgresql*/bin",          // openSUSE, Gentoo
	"/usr/pgsql-*/bin",                  // PostgreSQL's own packages for Red Hat's family
	"/usr/libexec/postgresql*",          // Alpine
	"/usr/local/lib/postgresql*/bin",    // FreeBSD, builds
	"/usr/local/pgsql/bin",              // PostgreSQL's own default
	"/opt/homebrew/opt/postgresql*/bin", // Homebrew on ARM
	"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
	"/opt/local/lib/postgresql*/bin",    // MacPorts
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

func candidateFolders() []string {
	folders := foldersOnPath()
	for _, pattern := range usualFolders {
		matches, _ := filepath.Glob(pattern)
		folders = append(folders, matches...)
	}
	return folders
}

// foldersOnPath returns both the folder that a link on the path leads to and the folder that the link is in: a wrapper
// script may be the link's target.
func foldersOnPath() []string {
	path, err := exec.LookPath("initdb")
	if err != nil {
		return nil
	}
	folders := []string{filepath.Dir(path)}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		folders = append([]string{filepath.Dir(resolved)}, folders...)
	}
	return folders
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) (([0-9]+)[0-9a-z.]*)`)

// inspect says what is in the folder, or why it is no installation.
func inspect(ctx context.Context, folder string) (Installation, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Installation{}, err
	}
	for _, program := range []string{"initdb", "postgres"} {
		if !isExecutable(filepath.Join(folder, program)) {
			return Installation{}, fmt.Errorf("the folder %s holds no program %s", folder, program)
		}
	}
	server, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres"))
	if err != nil {
		return Installation{}, err
	}
	if bin := filepath.Dir(server); isExecutable(filepath.Join(bin, "initdb")) {
		folder = bin
	}
	version, major, err := askVersion(ctx, server)
	if err != nil {
		return Installation{}, err
	}
	return Installation{Bin: folder, Version: version, Major: major}, nil
}

// program is a file as it was when it was asked for its version.
type program struct {
	path    string
	size    int64
	changed time.Time
}

// answers has what programs said, by program: to load a server's libraries only to hear its version takes as long as half of a start,
// and the same server is met in several folders.
var answers sync.Map

// askVersion asks one of PostgreSQL's programs for its version, unless the file has been asked before.
func askVersion(ctx context.Context, path string) (version string, major int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", 0, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	asked := program{path: path, size: info.Size(), changed: info.ModTime()}
	if answer, known := answers.Load(asked); known {
		return readVersion(path, answer.(string)) //nolint:forcetypeassert // nothing else is stored
	}
	output, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", 0, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	if version, major, err = readVersion(path, string(output)); err == nil {
		answers.Store(asked, string(output))
	}
	return version, major, err
}

// readVersion takes the version from what a program said.
func readVersion(path, answer string) (version string, major int, err error) {
	match := versionText.FindStringSubmatch(answer)
	if match == nil {
		return "", 0, fmt.Errorf("%s says it is %q, which is not PostgreSQL", path, answer)
	}
	major, err = strconv.Atoi(match[2])
	if err != nil {
		return "", 0, fmt.Errorf("the version of %s: %w", path, err)
	}
	return match[1], major, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// choose finds the programs for a server whose data were made by the given major version, or are yet to be made (0).
func choose(ctx context.Context, bin string, dataMajor int) (Installation, error) {
	if bin != "" {
		installation, err := inspect(ctx, bin)
		if err == nil && dataMajor != 0 && installation.Major != dataMajor {
			err = fmt.Errorf("%s cannot open data of version %d", installation, dataMajor)
		}
		return installation, err
	}
	found, err := Find(ctx)
	if err != nil {
		return Installation{}, err
	}
	fits := func(i Installation) bool { return i.Major >= leastMajor || os.Getenv(binVariable) != "" }
	wanted := fmt.Sprintf("version %d or newer", leastMajor)
	if dataMajor != 0 {
		fits = func(i Installation) bool { return i.Major == dataMajor }
		wanted = fmt.Sprintf("version %d, which made the data", dataMajor)
	}
	if i := slices.IndexFunc(found, fits); i >= 0 {
		return found[i], nil
	}
	return Installation{}, fmt.Errorf("%w: need %s, but there is only %s; %s", ErrNotInstalled, wanted, listed(found), installHint())
}

func listed(found []Installation) string {
	names := make([]string, len(found))
	for i, installation := range found {
		names[i] = installation.String()
	}
	return strings.Join(names, ", ")
}

// installHint says what to type on this system.
func installHint() string {
	return fmt.Sprintf("install PostgreSQL %d or newer%s, or set %s to the folder that holds initdb and postgres",
		leastMajor, installCommand(osRelease("/etc/os-release")), binVariable)
}

// installCommand takes the identifiers of a system, the most particular first.
func installCommand(systems []string) string {
	if runtime.GOOS == "darwin" {
		systems = []string{"darwin"}
	}
	commands := map[string]string{
		"debian":   "apt-get install postgresql",
		"ubuntu":   "apt-get install postgresql",
		"fedora":   "dnf install postgresql-server",
		"rhel":     "dnf install @postgresql:16",
		"alpine":   "apk add postgresql",
		"arch":     "pacman -S postgresql",
		"suse":     "zypper install postgresql-server",
		"opensuse": "zypper install postgresql-server",
		"darwin":   "brew install postgresql@17",
	}
	for _, system := range systems {
		if command, known := commands[system]; known {
			return " (" + command + ")"
		}
	}
	return ""
}

// osRelease returns the identifiers of the system and of those it is like.
func osRelease(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	var id, like []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		identifiers := strings.Fields(strings.Trim(value, `"'`))
		switch name {
		case "ID":
			id = identifiers
		case "ID_LIKE":
			like = identifiers
		}
	}
	return append(id, like...)
}

// dataMajor is the major version that made the data; 0 if there are none.
func dataMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s holds data of an unknown version: %w", data, err)
	}
	return major, nil
}
