//go:build unix && !linux

package localpg

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func groupAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// guardOrphan starts a shell that holds one end of a pipe and ends the server when the other end is closed, which happens
// however this process ends. It must be released when the server has ended, lest it signals another process of that number.
func guardOrphan(pid int) (release func(), err error) {
	guard := exec.Command("/bin/sh", "-c", `read -r _; kill -QUIT "$1"`, "sh", strconv.Itoa(pid))
	guard.SysProcAttr = groupAttributes()
	pipe, err := guard.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guard the server: %w", err)
	}
	if err := guard.Start(); err != nil {
		return nil, fmt.Errorf("guard the server: %w", err)
	}
	return func() {
		_ = guard.Process.Kill()
		_ = guard.Wait()
		_ = pipe.Close()
	}, nil
}

// processes lists all processes of the machine.
func processes() ([]process, error) {
	output, err := exec.Command("ps", "-axo", "pid=,ppid=,uid=,state=,command=").Output()
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var found []process
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		pid, pidErr := strconv.Atoi(fields[0])
		parent, parentErr := strconv.Atoi(fields[1])
		uid, uidErr := strconv.Atoi(fields[2])
		if pidErr != nil || parentErr != nil || uidErr != nil {
			continue
		}
		found = append(found, process{
			pid: pid, parent: parent, uid: uid,
			zombie: strings.HasPrefix(fields[3], "Z"), command: fields[4:], // a path with blanks comes in parts
		})
	}
	return found, nil
}
