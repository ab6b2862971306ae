package localpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// groupAttributes also let the kernel end the process when the thread that started it is gone, which
// happens however this process ends. PostgreSQL takes SIGQUIT for an immediate shutdown.
func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}

// guardOrphan has nothing to do here: see groupAttributes.
func guardOrphan(int) (release func(), err error) { return func() {}, nil }

// processes lists all processes of the machine.
func processes() ([]process, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, folder := range folders {
		// A process may end while it is looked at.
		if p, err := readProcess(folder); err == nil {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("list the processes: none is visible in /proc")
	}
	return found, nil
}

func readProcess(folder string) (process, error) {
	info, err := os.Stat(folder)
	if err != nil {
		return process{}, err
	}
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return process{}, err
	}
	command, err := os.ReadFile(filepath.Join(folder, "cmdline"))
	if err != nil {
		return process{}, err
	}
	pid, err := strconv.Atoi(filepath.Base(folder))
	if err != nil {
		return process{}, err
	}
	// The program's name stands in parentheses and may hold anything; state and parent follow it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return process{}, fmt.Errorf("%s/stat is short", folder)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return process{}, err
	}
	return process{
		pid: pid, parent: parent, uid: ownerOf(info),
		zombie:  fields[0] == "Z" || fields[0] == "X",
		command: strings.Split(strings.TrimRight(string(command), "\x00"), "\x00"),
	}, nil
}
