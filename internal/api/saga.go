package api

import (
	"context"
	"net/url"
	"strconv"
	"time"
)

// Saga is a saga, as package saga keeps it.
type Saga struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Key is its shard key, as text, and Shard where it lives.
	Key            string `json:"key"`
	Shard          string `json:"shard"`
	IdempotencyKey string `json:"idempotency_key"`
	// State is running, compensating, stuck, completed, compensated or abandoned.
	State string `json:"state"`
	// Step is the one that is to be done or undone; none: it has not begun, or has ended.
	Step string `json:"step,omitempty"`
	// Attempts is how often that has failed or was cut off.
	Attempts int `json:"attempts"`
	// AgeSeconds is how long ago it was started, by the clock of its shard.
	AgeSeconds float64   `json:"age_seconds"`
	Created    time.Time `json:"created"`
	// Due is when it is to be gone on with, or when the lease of its holder ends.
	Due time.Time `json:"due,omitzero"`
	// Holder is the runner that has it.
	Holder    string `json:"holder,omitempty"`
	LastError string `json:"last_error,omitempty"`
	// FailedStep could not be done, and Failure says why: that is what made it compensate.
	FailedStep string `json:"failed_step,omitempty"`
	Failure    string `json:"failure,omitempty"`
	// Note is what a person has said who resumed or abandoned it.
	Note string `json:"note,omitempty"`
}

// SagaList is the answer to a question for sagas, the oldest first.
type SagaList struct {
	Sagas []Saga `json:"sagas"`
	// More says that there are more than were asked for.
	More bool `json:"more"`
	// Findings are about shards that could not be asked.
	Findings []Finding `json:"findings"`
}

// Sagas lists up to limit sagas of a state and a type; an empty state: those that have not ended; an empty type: all; no limit: the API's own.
func (c *Client) Sagas(ctx context.Context, state, kind string, limit int) (SagaList, error) {
	parameters := url.Values{}
	if state != "" {
		parameters.Set("state", state)
	}
	if kind != "" {
		parameters.Set("type", kind)
	}
	if limit != 0 {
		parameters.Set("limit", strconv.Itoa(limit))
	}
	path := "/v1/sagas"
	if len(parameters) > 0 {
		path += "?" + parameters.Encode()
	}
	return get[SagaList](ctx, c, path)
}
