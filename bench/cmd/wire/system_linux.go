package main

import (
	"syscall"
	"time"
)

// sleepUntil lets the thread sleep, which is finer than the runtime's timers.
func sleepUntil(due time.Time) {
	for wait := time.Until(due); wait > 0; wait = time.Until(due) {
		pause := syscall.NsecToTimespec(int64(wait))
		_ = syscall.Nanosleep(&pause, nil) // what interrupts it is made good by the loop
	}
}
