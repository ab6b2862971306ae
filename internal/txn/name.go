package txn

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Name is the name of a transaction over several shards, under which its parts are prepared.
type Name struct {
	// Cluster is the beginning of the cluster's identifier: a database belongs to one cluster, so it is there to be seen.
	Cluster string
	// Shard is the number of the shard that decides, and Timeline the one that it was on.
	Shard, Timeline int
	// PID and Start are those of the backend that decides.
	PID   int
	Start int64
	// Router is the incarnation of the router that commits.
	Router string
	// Random makes it unlike all others.
	Random string
}

const (
	namePrefix    = "cleave"
	nameParts     = 8
	clusterLength = 8
)

// Prefix is what the names of a cluster's transactions begin with.
func Prefix(cluster string) string { return namePrefix + "/" + cluster[:clusterLength] + "/" }

// NewName returns a name that nobody can have guessed.
func NewName(cluster string, shard, timeline, pid int, start int64, router string) Name {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return Name{Cluster: cluster[:clusterLength], Shard: shard, Timeline: timeline, PID: pid, Start: start, Router: router, Random: hex.EncodeToString(random[:])}
}

// String is the name as PostgreSQL knows it. The functions on the shards read parts of it.
func (n Name) String() string {
	return fmt.Sprintf("%s/%s/%d/%d/%d/%d/%s/%s", namePrefix, n.Cluster, n.Shard, n.PID, n.Start, n.Timeline, n.Router, n.Random)
}

// ParseName reads a name.
func ParseName(gid string) (Name, error) {
	parts := strings.Split(gid, "/")
	if len(parts) != nameParts || parts[0] != namePrefix {
		return Name{}, fmt.Errorf("%q is not the name of a transaction over several shards", gid)
	}
	n := Name{Cluster: parts[1], Router: parts[6], Random: parts[7]}
	var errs [4]error
	n.Shard, errs[0] = strconv.Atoi(parts[2])
	n.PID, errs[1] = strconv.Atoi(parts[3])
	n.Start, errs[2] = strconv.ParseInt(parts[4], 10, 64)
	n.Timeline, errs[3] = strconv.Atoi(parts[5])
	for _, err := range errs {
		if err != nil {
			return Name{}, fmt.Errorf("%q is not the name of a transaction over several shards: %w", gid, err)
		}
	}
	return n, nil
}

// PartName is the name under which a part is prepared: the transaction's, and the timeline that the part's shard was on.
func PartName(gid string, timeline int) string { return gid + "/" + strconv.Itoa(timeline) }

// splitPart takes the name of a prepared part apart.
func splitPart(prepared string) (gid string, timeline int, err error) {
	at := strings.LastIndexByte(prepared, '/')
	if at < 0 {
		return "", 0, fmt.Errorf("%q is not the name of a part of a transaction", prepared)
	}
	timeline, err = strconv.Atoi(prepared[at+1:])
	return prepared[:at], timeline, err
}

// IsPart says whether a prepared transaction is a part of one of the cluster's.
func IsPart(cluster, prepared string) bool {
	gid, _, err := splitPart(prepared)
	if err == nil {
		_, err = ParseName(gid)
	}
	return err == nil && strings.HasPrefix(prepared, Prefix(cluster))
}

// NoteStatement notes a part that is about to be prepared, in its own local transaction, and tells the number of that. Its parameters are the name and the participants.
const NoteStatement = "INSERT INTO cleave.own_commits (gid, decides, participants) VALUES ($1, false, $2) RETURNING xid"

// DecideStatement notes the decision, in the local transaction that is about to be committed with it. Its parameters are the name, the participants and, in their order, the
// numbers that [NoteStatement] told; 0 for its own. It waits for readers that keep decisions waiting.
const DecideStatement = "INSERT INTO cleave.own_commits (gid, decides, participants, xids) SELECT $1, true, $2, $3 FROM pg_catalog.pg_advisory_xact_lock_shared(" + barrierKeys + ")"

// NumbersText is a list of numbers as a parameter.
func NumbersText[T int | uint64](numbers []T) string {
	text := []byte{'{'}
	for i, number := range numbers {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendUint(text, uint64(number), 10)
	}
	return string(append(text, '}'))
}

// NoteAbortSQL notes that a transaction will never be decided, on the backend that could have decided it.
func NoteAbortSQL(gid string) string {
	return "SELECT cleave.note_abort(" + sqltext.QuoteLiteral(gid) + ")"
}

// MarkSQL asks a shard that does not decide whether its part, which has this number there, is committed. It has a row then.
func MarkSQL(xid uint64) string {
	return "SELECT FROM cleave.own_commits WHERE xid OPERATOR(pg_catalog.=) '" + strconv.FormatUint(xid, 10) + "'::pg_catalog.xid8"
}

// OutcomeSQL asks the shard that decides, in a transaction of its own; its one row goes to [ParseOutcome]. The client's settings may say that a transaction has
// one snapshot, which could be older than the end of the backend.
func OutcomeSQL(gid string) string {
	return "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT alive, decision, timeline FROM cleave.outcome_of(" + sqltext.QuoteLiteral(gid) + ")"
}

// Decision is what has been decided of a transaction.
type Decision string

// What can have been decided.
const (
	Undecided Decision = ""
	Commit    Decision = "commit"
	Abort     Decision = "abort"
)

// Outcome is what the shard that decides knows of a transaction.
type Outcome struct {
	// Alive: the backend is there that can decide. It was looked for before the decision, so without it there will be none.
	Alive    bool
	Decision Decision
	// Timeline is the shard's.
	Timeline int
}

// ParseOutcome reads the answer to [OutcomeSQL], each value in its text form.
func ParseOutcome(row []string) (Outcome, error) {
	if len(row) != 3 {
		return Outcome{}, fmt.Errorf("read the outcome of a transaction: it has %d values", len(row))
	}
	timeline, err := strconv.Atoi(row[2])
	if err != nil {
		return Outcome{}, fmt.Errorf("read the outcome of a transaction: %w", err)
	}
	return Outcome{Alive: row[0] == "t", Decision: Decision(row[1]), Timeline: timeline}, nil
}

// Verdict is what follows for the parts of a transaction.
type Verdict int

// Verdicts.
const (
	// Wait: somebody may be about to decide.
	Wait Verdict = iota
	// CommitParts and RollBackParts: it is decided.
	CommitParts
	RollBackParts
	// AbortFirst: nobody will decide for it any more, so it may be aborted.
	AbortFirst
	// AskPerson: the shard that decides may have lost the decision.
	AskPerson
)

// Verdict says what follows from what the shard that decides says. If the backend that can decide is there, that is waited for, unless the
// transaction is overdue.
func (o Outcome) Verdict(n Name, overdue bool) Verdict {
	switch {
	case o.Decision == Commit:
		return CommitParts
	case o.Decision == Abort:
		return RollBackParts
	case o.Timeline != n.Timeline:
		return AskPerson
	case o.Alive && !overdue:
		return Wait
	default:
		return AbortFirst
	}
}
