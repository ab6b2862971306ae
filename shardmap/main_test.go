package shardmap

import (
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// often is how many rounds a test under load makes.
func often(rounds int) int {
	switch {
	case testing.Short():
		return max(rounds/20, 1)
	case thorough.Asked():
		return rounds
	default:
		return max(rounds/3, 1)
	}
}
