package faults

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/test/binaries"
)

// Binary builds cleave with failpoints, once for all tests, and returns its path.
var Binary = sync.OnceValues(func() (string, error) {
	arguments := []string{"-tags", "failpoints"}
	if os.Getenv("CLEAVE_FAULTS_RACE") != "" {
		arguments = append(arguments, "-race")
	}
	path, folder, err := binaries.Get(binaries.WithFailpoints, arguments...)
	binaryFolder = folder
	return path, err
})

// binaryFolder has the binary, so that Main need not build one to remove it.
var binaryFolder string

// Main runs the tests, looks for goroutines that they left behind, and removes what they had built; it returns the exit code. In a process that is to be an [Etcd] it is that.
func Main(m *testing.M) int {
	if config := os.Getenv(etcdVariable); config != "" {
		return runEtcd(config)
	}
	code := m.Run()
	model.Remove()
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
