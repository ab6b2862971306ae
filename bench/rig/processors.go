package rig

import (
	"os"
	"strconv"
	"strings"
)

// Processing is how long the machine's processors have worked and idled so far, in ticks; nothing where that cannot be had.
type Processing struct{ worked, idle float64 }

// Processors looks at the machine's processors: a benchmark that leaves none of them idle measures those, and not what it means to.
func Processors() (p Processing) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	first, _, _ := strings.Cut(string(stat), "\n")
	const idle, waiting, guest = 3, 4, 8 // guests are counted as users already
	for i, field := range strings.Fields(strings.TrimPrefix(first, "cpu")) {
		ticks, err := strconv.ParseFloat(field, 64)
		switch {
		case err != nil || i >= guest:
		case i == idle || i == waiting:
			p.idle += ticks
		default:
			p.worked += ticks
		}
	}
	return p
}

// Busy is which part of their time the processors have worked since an earlier look.
func (p Processing) Busy(before Processing) float64 {
	worked, idle := p.worked-before.worked, p.idle-before.idle
	if worked+idle <= 0 {
		return 0
	}
	return worked / (worked + idle)
}
