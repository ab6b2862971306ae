package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// processorsUsed is how long all processors together were at work and idle, since the system began; both 0 if the system does not tell.
func processorsUsed() (busy, idle time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return parseProcessors(line)
}

func parseProcessors(line string) (busy, idle time.Duration) {
	const idleAt, waitingAt, guestAt = 4, 5, 9 // in hundredths of a second, after the line's name; guests count as users too
	for at, field := range strings.Fields(line) {
		n, err := strconv.ParseInt(field, 10, 64)
		spent := time.Duration(n) * 10 * time.Millisecond
		switch {
		case at == 0 || at >= guestAt:
		case err != nil:
			return 0, 0
		case at == idleAt || at == waitingAt:
			idle += spent
		default:
			busy += spent
		}
	}
	return busy, idle
}
