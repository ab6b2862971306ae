//go:build !race

package store

// raceDetector is whether the tests run under it.
const raceDetector = false
