package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func processors() int { return runtime.NumCPU() }

// idleTime is how long all processors together have had nothing to do; 0 if the system does not tell.
func idleTime() time.Duration {
	const idle, waiting = 4, 5 // in hundredths of a second, after the line's name
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) <= waiting {
		return 0
	}
	var total int64
	for _, field := range fields[idle : waiting+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		total += n
	}
	return time.Duration(total) * 10 * time.Millisecond
}
