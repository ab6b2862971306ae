package main

import (
	"os/exec"
	"syscall"
	"time"
)

// endWithParent has the process ended by the kernel should this program be killed.
func endWithParent(command *exec.Cmd) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// sleepUntil lets the thread sleep, which is finer than the runtime's timers.
func sleepUntil(due time.Time) {
	for wait := time.Until(due); wait > 0; wait = time.Until(due) {
		pause := syscall.NsecToTimespec(int64(wait))
		_ = syscall.Nanosleep(&pause, nil) // what interrupts it is made good by the loop
	}
}
