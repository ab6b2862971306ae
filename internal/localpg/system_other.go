//go:build !unix

package localpg

import (
	"errors"
	"os"
	"syscall"
)

// On these systems every start fails at its lock: users, signals and the care for orphans are written for Unix.
var errNotUnix = errors.New("local PostgreSQL servers are run on Unix systems only")

func ownerOf(os.FileInfo) int { return os.Getuid() }

func groupOf(os.FileInfo) int { return os.Getgid() }

func setCredential(*syscall.SysProcAttr, int, int) {}

func tryLock(*os.File) (bool, error) { return false, errNotUnix }

func stopProcess(int) error { return errNotUnix }

func killProcess(int) error { return errNotUnix }

func groupAttributes() *syscall.SysProcAttr { return nil }

func guardOrphan(int) (release func(), err error) { return nil, errNotUnix }

func processes() ([]process, error) { return nil, errNotUnix }
