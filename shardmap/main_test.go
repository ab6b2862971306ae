package shardmap

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// often is how many rounds a test under load makes.
func often(rounds int) int {
	if testing.Short() {
		return max(rounds/20, 1)
	}
	return rounds
}
