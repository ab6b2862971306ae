//go:build race

package session

// raceDetector is whether the tests run under it.
const raceDetector = true
