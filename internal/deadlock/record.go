package deadlock

import (
	"encoding/json"
	"fmt"
	"time"
)

// Session is one of the router's that has backends on several shards and waits for an answer of one.
type Session struct {
	// Number is what its client knows as its process.
	Number uint32
	// Step grows with whatever the session sends. Sent is since when it has been waiting; Began when its transaction did.
	Step        uint64
	Sent, Began time.Time
	Backends    []Backend
}

// Backend is one that a session has.
type Backend struct {
	Shard int // its number
	PID   uint32
	// Quiet: it owes no answer, and gets no order before the session has what it waits for.
	Quiet bool
	// Read: its answer is read now, and those of others later. Owes: it is one of the others.
	Read, Owes bool
}

// Transaction is what is recorded of a session that may be in a circle.
type Transaction struct {
	ID     string `json:"-"`      // of the record: the same for nobody else who lives
	Router string `json:"router"` // its name
	Number uint32 `json:"session"`
	// Began is when it did so: the youngest of a circle is its victim.
	Began time.Time `json:"began"`
	Legs  []Leg     `json:"legs"`
	// Sentenced: it is a victim already.
	Sentenced bool `json:"-"`
}

// Leg is a backend of a transaction that has a lock, or waits for one.
type Leg struct {
	Process
	// Virtual is PostgreSQL's name for what the backend runs: as long as it is the same, the backend is in the same transaction.
	Virtual string `json:"virtual"`
	// Waits is since when it waits for a lock; nil: it does not.
	Waits *time.Time `json:"waits,omitempty"`
	Quiet bool       `json:"quiet,omitempty"`
	Read  bool       `json:"read,omitempty"`
}

// Process is a backend, by its shard's number.
type Process struct {
	Shard int `json:"shard"`
	PID   int `json:"pid"`
}

// Verdict says that a transaction is the victim of a circle.
type Verdict struct {
	// Waits are those that are to be ended, if they are still the same.
	Waits []Wait `json:"waits"`
	// Detail tells the circle in words.
	Detail string `json:"detail"`
}

// Wait is one backend's for one lock.
type Wait struct {
	Process
	Virtual string    `json:"virtual"`
	Since   time.Time `json:"since"`
}

// Encode writes it as it is stored.
func (t *Transaction) Encode() (json.RawMessage, error) { return json.Marshal(t) }

// DecodeTransaction reads what was stored under an ID.
func DecodeTransaction(id string, body json.RawMessage) (*Transaction, error) {
	t := &Transaction{ID: id}
	if err := json.Unmarshal(body, t); err != nil {
		return nil, fmt.Errorf("read what is recorded of a transaction that waits, %s: %w", id, err)
	}
	return t, nil
}

// Encode writes it as it is stored.
func (v *Verdict) Encode() (json.RawMessage, error) { return json.Marshal(v) }

// DecodeVerdict reads what was stored.
func DecodeVerdict(body json.RawMessage) (*Verdict, error) {
	v := &Verdict{}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("read the verdict on a deadlock: %w", err)
	}
	return v, nil
}
