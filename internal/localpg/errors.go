package localpg

import (
	"errors"
	"fmt"
)

// ErrNotInstalled says that no fitting PostgreSQL was found. The error that wraps it says what to install.
var ErrNotInstalled = errors.New("no fitting PostgreSQL found")

// PortInUseError says that the port a server should listen on is taken.
type PortInUseError struct {
	Port int
}

func (e *PortInUseError) Error() string {
	return fmt.Sprintf("port %d of 127.0.0.1 is in use by another program", e.Port)
}

// InUseError says that a server already runs in the folder, or that another process is about to start one.
type InUseError struct {
	Dir string
	PID int // of the running server; 0 if it is not known
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return e.Dir + " is in use by another process"
	}
	return fmt.Sprintf("%s is in use by a running server, process %d", e.Dir, e.PID)
}
