//go:build !race

package topology

// raceDetector is whether the tests run under it.
const raceDetector = false
