package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// RegisterKind is what is done to a register.
type RegisterKind string

// The kinds. A compare-and-set writes New if it finds Old, and says whether it did.
const (
	Read          RegisterKind = "read"
	Write         RegisterKind = "write"
	CompareAndSet RegisterKind = "compare-and-set"
)

// Register is an operation on one row. All written values are different, and none is 0, which registers have in the beginning.
type Register struct {
	Head
	Kind RegisterKind `json:"kind"`
	Key  int64        `json:"key"`
	Old  int64        `json:"old,omitempty"`
	New  int64        `json:"new,omitempty"`
	// Found is what was read, and Set whether the compare-and-set wrote.
	Found int64 `json:"found,omitempty"`
	Set   bool  `json:"set,omitempty"`
}

// CheckRegisters says which registers answered as no single copy could have, and how many could not be decided in the time.
func CheckRegisters(operations []Register, patience time.Duration) (wrong []string, undecided int) {
	byKey := map[int64][]Register{}
	for _, o := range operations {
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	deadline := time.Now().Add(patience)
	for key, all := range byKey {
		left := max(time.Until(deadline), time.Millisecond) // 0 would be for ever
		switch porcupine.CheckOperationsTimeout(registerModel, relevant(all), left) {
		case porcupine.Ok:
		case porcupine.Illegal:
			wrong = append(wrong, fmt.Sprintf("register %d is not linearizable: %d operations", key, len(all)))
		default:
			undecided++
		}
	}
	slices.Sort(wrong)
	return wrong, undecided
}

// relevant leaves out what says nothing: operations that failed, reads that nobody knows the answer of, and writes of unknown outcome of which nobody
// noticed anything: these can always have come last. There are many of them, and each that is left in doubles the work. A compare-and-set that did not
// find its old value may have noticed any write that began before it ended.
func relevant(all []Register) []porcupine.Operation {
	met := map[int64]bool{}
	var noticed time.Duration
	for _, o := range all {
		met[o.Found], met[o.Old] = true, true
		if o.Kind == CompareAndSet && o.Outcome == Committed && !o.Set {
			noticed = max(noticed, o.End)
		}
	}
	var kept []porcupine.Operation
	for _, o := range all {
		if o.Outcome == Failed || o.Outcome == Unknown && (o.Kind == Read || !met[o.New] && o.Start > noticed) {
			continue
		}
		end := int64(o.End)
		if o.Outcome == Unknown {
			end = math.MaxInt64
		}
		kept = append(kept, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Start), Return: end})
	}
	return kept
}

// registerModel is one register. Its state is the value.
var registerModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		value, o := state.(int64), input.(Register)
		switch {
		case o.Kind == Read:
			return o.Found == value, value
		case o.Kind == Write:
			return true, o.New
		case o.Outcome == Committed && o.Set != (o.Old == value):
			return false, value
		case o.Old == value:
			return true, o.New
		default:
			return true, value
		}
	},
}
