// Package history has what clients did and what became of it, as far as they could tell, and the checkers that say whether any database that keeps
// its promises can have answered like that.
//
// Every operation has a start, an end and an [Outcome]: committed, failed for certain, or unknown, as when the connection is lost while COMMIT is under way.
// [OfCommit] reads the outcome off an error. A [Recorder] writes operations down as they happen, for those who look for the cause of a failure later.
//
//   - [CheckRegisters]: reads, writes and compare-and-sets of single rows are linearizable (by porcupine).
//   - [CheckLists]: transactions that append to lists on several shards and read them have no anomaly that is promised not to be. It is written in
//     the manner of Elle: lists tell the order of their writers, so a cycle can be found without guessing. Start reading in lists.go.
//   - [CheckTags]: whatever is committed is there, on all shards, and nothing that has failed is.
//
// Checkers are functions of the history and touch no database. The recorder is safe for concurrent use.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Outcome is what a client knows of an operation.
type Outcome string

// The outcomes.
const (
	Committed Outcome = "committed"
	Failed    Outcome = "failed"  // for certain: nothing of it may ever be seen
	Unknown   Outcome = "unknown" // all of it or nothing, now or later
)

// Head is what all operations have.
type Head struct {
	// Work names the workload, and Number the operation in it.
	Work   string `json:"work"`
	Number int64  `json:"number"`
	Client int    `json:"client"`
	Router string `json:"router,omitempty"`
	// Start and End are since the beginning of the history. An operation of unknown outcome may take effect after its End.
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Outcome Outcome       `json:"outcome"`
	Error   string        `json:"error,omitempty"`
	// Warnings came with the answer: a part of a committed transaction may follow later.
	Warnings []string `json:"warnings,omitempty"`
}

// OfCommit is the outcome of a transaction by the answer to its COMMIT, or of a statement that is its own transaction. Errors of which one
// cannot tell count as unknown, unless they say that it was rolled back.
func OfCommit(tag string, err error) Outcome {
	var refused *pgconn.PgError
	switch {
	case err == nil && tag == "ROLLBACK":
		return Failed
	case err == nil:
		return Committed
	case !errors.As(err, &refused): // also if the driver says that one may safely try again: it says so of statements that were sent
		return Unknown
	case leavesOpen(refused):
		return Unknown
	default:
		return Failed
	}
}

// outcomeUnknown is the SQLSTATE that says so.
const outcomeUnknown = "08007"

// leavesOpen says whether an error may come though the transaction is committed: lost connections, servers that end, and what is out of
// order. Unless it says that it was rolled back.
func leavesOpen(refused *pgconn.PgError) bool {
	if refused.Code == outcomeUnknown {
		return true
	}
	if strings.Contains(refused.Message+" "+refused.Detail, "rolled back") {
		return false
	}
	for _, prefix := range []string{"08", "57P", "58", "XX", "F0", "40003"} {
		if strings.HasPrefix(refused.Code, prefix) {
			return true
		}
	}
	return false
}

// Recorder writes operations down. Make it with [NewRecorder].
type Recorder struct {
	begin  time.Time
	number atomic.Int64

	mu   sync.Mutex
	file *os.File
	err  error
}

// NewRecorder makes the file, a line of JSON for each operation.
func NewRecorder(path string) (*Recorder, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("record a history: %w", err)
	}
	return &Recorder{begin: time.Now(), file: file}, nil
}

// Now is how long the history has lasted.
func (r *Recorder) Now() time.Duration { return time.Since(r.begin) }

// Next is a number that no operation had before.
func (r *Recorder) Next() int64 { return r.number.Add(1) }

// Write notes an operation, or anything else that belongs into the history.
func (r *Recorder) Write(operation any) {
	line, err := json.Marshal(operation)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
}

// Close returns what went wrong while writing.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.file.Close())
}
