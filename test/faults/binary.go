package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// Binary builds cleave with failpoints, once for all tests, and returns its path.
var Binary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "cleave-faults-binary-")
	if err != nil {
		return "", err
	}
	binaryFolder = folder
	path := filepath.Join(folder, "cleave")
	arguments := []string{"build", "-tags", "failpoints", "-o", path}
	if os.Getenv("CLEAVE_FAULTS_RACE") != "" {
		arguments = append(arguments, "-race")
	}
	output, err := exec.Command("go", append(arguments, "github.com/cleavedb/cleave/cmd/cleave")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build cleave: %w: %s", err, output)
	}
	return path, nil
})

// binaryFolder has the binary, so that Main need not build one to remove it.
var binaryFolder string

// Main runs the tests, looks for goroutines that they left behind, and removes the binary if one of them had it built; it returns the exit code. In a process that is to be an [Etcd] it is that.
func Main(m *testing.M) int {
	if config := os.Getenv(etcdVariable); config != "" {
		return runEtcd(config)
	}
	code := m.Run()
	if binaryFolder != "" {
		_ = os.RemoveAll(binaryFolder)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}
