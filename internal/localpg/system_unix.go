//go:build unix

package localpg

import (
	"errors"
	"os"
	"syscall"
)

func ownerOf(info os.FileInfo) int {
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func groupOf(info os.FileInfo) int {
	return int(info.Sys().(*syscall.Stat_t).Gid)
}

func setCredential(attributes *syscall.SysProcAttr, uid, gid int) {
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// tryLock takes a lock that ends with the process at the latest; false if somebody has it.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func stopProcess(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

func killProcess(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
