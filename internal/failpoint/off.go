//go:build !failpoints

package failpoint

import "time"

// Hit does nothing in this build.
func Hit(string) {}

// Duration is the usual value in this build.
func Duration(_ string, usual time.Duration) time.Duration { return usual }
