package rig

import (
	"os/exec"
	"syscall"
)

// endWithParent has the process ended by the kernel should this program be killed.
func endWithParent(command *exec.Cmd) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// The kinds of file systems that are in memory, as statfs has them.
const (
	tmpfs = 0x01021994
	ramfs = 0x858458f6
)

// InMemory says whether a folder is on no disk, where nothing has to be flushed.
func InMemory(folder string) bool {
	var system syscall.Statfs_t
	if syscall.Statfs(folder, &system) != nil {
		return false
	}
	return system.Type == tmpfs || system.Type == ramfs
}
