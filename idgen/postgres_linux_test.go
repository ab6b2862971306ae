package idgen

import "syscall"

// serverAttributes makes the server end with the test process, however that ends.
func serverAttributes(credential *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: credential, Pdeathsig: syscall.SIGQUIT}
}
