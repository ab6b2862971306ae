//go:build failpoints

package failpoint

import (
	"os"
	"syscall"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint/orders"
)

// folder has the orders; "" if nobody gives any.
var folder = os.Getenv("CLEAVE_FAILPOINTS")

// Hit obeys the order that is given for the point, if there is one. An order that nobody understands is a test's mistake, and panics.
func Hit(point string) {
	if folder == "" || point == "" { // some places have a point for some callers only
		return
	}
	taken, err := orders.Take(folder, point)
	if err != nil {
		panic("failpoint " + point + ": " + err.Error())
	}
	switch taken.Act {
	case orders.Nothing:
	case orders.Kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the kernel may take a moment, in which nothing more may happen here
	case orders.Stop:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(stopping)
	case orders.Sleep:
		time.Sleep(taken.For)
	case orders.Hold:
		taken.WaitReleased()
	}
}

// stopping is how long the kernel may take to stop all threads of a process that has asked for it.
const stopping = 50 * time.Millisecond

// Duration is the usual value, or what a test has put in its place before the process was started.
func Duration(name string, usual time.Duration) time.Duration {
	if folder == "" {
		return usual
	}
	value, err := orders.Duration(folder, name, usual)
	if err != nil {
		panic("failpoint " + name + ": " + err.Error())
	}
	return value
}
