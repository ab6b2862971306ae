//go:build !linux

package faults

import "syscall"

// withParent has no means here: a process outlives a test that is killed.
func withParent() *syscall.SysProcAttr { return nil }
