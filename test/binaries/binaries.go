// Package binaries has the program for suites that run it as its users do: built before all of them, or by each for itself.
//
// Linking takes longer than much of what is tested. So whoever runs several suites builds the program once, with and without failpoints, into a folder that [FolderVariable] names; a suite that
// is run by itself builds its own. It knows nothing of clusters, and may be called by several goroutines at once.
package binaries

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// FolderVariable names the folder with programs that were built before.
const FolderVariable = "CLEAVE_BINARIES"

// Plain is the program as users get it, WithFailpoints the one that dies, stops and sleeps where a test wants.
const (
	Plain          = "cleave"
	WithFailpoints = "cleave-failpoints"
)

// Get returns the path of a program. If nobody has built it, it is built with more arguments into a new folder, which is the caller's to remove; otherwise there is no folder.
func Get(name string, arguments ...string) (path, folder string, err error) {
	if given := os.Getenv(FolderVariable); given != "" {
		path = filepath.Join(given, name)
		_, err = os.Stat(path) // by which 'go test' knows that it has changed
		return path, "", err
	}
	if folder, err = os.MkdirTemp("", name+"-binary-"); err != nil {
		return "", "", err
	}
	path = filepath.Join(folder, name)
	// Without tables for debuggers, which take longer to link than all the rest.
	command := append(append([]string{"build", "-ldflags=-w", "-o", path}, arguments...), "github.com/cleavedb/cleave/cmd/cleave")
	if output, err := exec.Command("go", command...).CombinedOutput(); err != nil { //nolint:gosec // what a test says
		return "", folder, fmt.Errorf("build %s: %w: %s", name, err, output)
	}
	return path, folder, nil
}
