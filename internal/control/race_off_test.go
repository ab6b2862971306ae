//go:build !race

package control

// raceDetector is whether the tests run under it.
const raceDetector = false
