//go:build !linux

package idgen

import "syscall"

func serverAttributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential}
}
