//go:build race

package plan_test

// raceDetector is whether the tests run under it. Planning has no goroutines, so some of the texts are enough then; 'make test' runs all of them without it.
const raceDetector = true
