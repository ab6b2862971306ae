package faults

import "syscall"

// withParent ends a process with the thread that started it, so also with a test that is killed.
func withParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
