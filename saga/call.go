package saga

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNoResult says that a step has no result: it was not done, or nobody knows whether it was.
var ErrNoResult = errors.New("the step has no result")

// Call is what the function of a step is told. It is not to be kept or changed.
type Call struct {
	// ID is the saga's, a UUID; Type the name of its type.
	ID, Type string
	// Key is the saga's shard key, as pgx reads a column of its type: an int64 for bigint, a string for text, a [16]byte for uuid. It can be used as an
	// argument of statements.
	Key any
	// Step and Direction say what is being done or undone.
	Step      string
	Direction Direction
	// Attempt counts from 1, for this step and direction.
	Attempt int
	// IdempotencyKey is the same for every attempt at this step in this direction, in every process, and no other step or saga has it.
	IdempotencyKey string
	// Epoch grows each time that a runner takes the saga.
	Epoch int64

	input   json.RawMessage
	results map[string]json.RawMessage
}

// Input reads the saga's input.
func (c *Call) Input(into any) error {
	if err := json.Unmarshal(c.input, into); err != nil {
		return fmt.Errorf("read the input of saga %s: %w", c.ID, err)
	}
	return nil
}

// Result reads the result of a step that was done before; when a step is undone, also its own. [ErrNoResult]: there is none.
func (c *Call) Result(step string, into any) error {
	result, found := c.results[step]
	if !found {
		return fmt.Errorf("step %q of saga %s: %w", step, c.ID, ErrNoResult)
	}
	if err := json.Unmarshal(result, into); err != nil {
		return fmt.Errorf("read the result of step %q of saga %s: %w", step, c.ID, err)
	}
	return nil
}

// idempotencyKey is what an outside call is known by.
func idempotencyKey(id, step string, d Direction) string { return id + "/" + step + "/" + string(d) }

// encode writes a value as JSON that can be kept.
func encode(what string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("write %s as JSON: %w", what, err)
	}
	if len(text) > MaxPayload {
		return "", fmt.Errorf("%s has %d bytes as JSON: the limit is %d; keep a reference to it instead", what, len(text), MaxPayload)
	}
	return string(text), nil
}
