package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Phase is how far a transaction is.
type Phase string

// The phases of a transaction that is not over.
const (
	// Preparing: its parts are prepared, or some of them, and its router has not decided yet.
	Preparing Phase = "preparing"
	// Committing and RollingBack: it is decided, and some of its parts are still to follow.
	Committing  Phase = "committing"
	RollingBack Phase = "rolling back"
	// Abandoned: nobody will decide it any more; the control plane is about to abort it.
	Abandoned Phase = "abandoned"
	// Waiting: the shard that decides cannot be asked.
	Waiting Phase = "waiting for a shard"
	// InDoubt: the decision may be lost. A person has to say what becomes of it.
	InDoubt Phase = "in doubt"
	// PartLost: it was committed, and a shard that was put back to an earlier state has lost what it knew of it.
	PartLost Phase = "lost"
)

// Transaction is one that is not over, for people.
type Transaction struct {
	ID  string
	Age time.Duration
	// Participants are the names of the shards that are known to take part, PreparedOn those that wait for the end of it, and LostOn those that
	// have lost something.
	Participants, PreparedOn, LostOn []string
	Phase                            Phase
	// Router is the incarnation that committed it, DecidedOn the name of the shard that decides.
	Router, DecidedOn string
	// Detail says more, where there is more to say.
	Detail string
}

// Look lists the transactions over several shards that are not over, the oldest first. An error is about shards that could not be asked, beside what the others said.
func Look(ctx context.Context, config Config) ([]Transaction, error) {
	r := NewRecovery(config)
	defer r.Close()
	m := config.Map()
	if m == nil {
		return nil, nil
	}
	looks := r.lookAll(ctx, m)
	var list []Transaction
	var failures error
	for _, t := range gather(looks) {
		t.overdue = t.age >= overdue
		r.outcome(ctx, t, looks)
		list = append(list, r.describe(ctx, t, looks))
	}
	for _, number := range slices.Sorted(maps.Keys(looks)) {
		look := looks[number]
		lost, err := look.lost(ctx, looks)
		list = append(list, lost...)
		failures = errors.Join(failures, look.err, err)
	}
	slices.SortStableFunc(list, func(a, b Transaction) int { return int(b.Age - a.Age) })
	return list, failures
}

// nameOf is the name of a shard, or its number if it has none any more.
func nameOf(looks map[int]*looked, number int) string {
	if look := looks[number]; look != nil {
		return look.shard.Name()
	}
	return fmt.Sprintf("number %d", number)
}

func namesOf(looks map[int]*looked, numbers []int) []string {
	names := make([]string, len(numbers))
	for i, number := range numbers {
		names[i] = nameOf(looks, number)
	}
	return names
}

func (r *Recovery) describe(ctx context.Context, t *transaction, looks map[int]*looked) Transaction {
	prepared := slices.Sorted(maps.Keys(t.parts))
	members := append(slices.Clone(prepared), t.name.Shard)
	if decider := looks[t.name.Shard]; decider != nil && decider.conn != nil && t.outcome.Decision == Commit {
		var noted []int
		if decider.conn.QueryRow(ctx, "SELECT participants FROM cleave.commits WHERE gid = $1 AND decides", t.gid).Scan(&noted) == nil {
			members = append(members, noted...)
		}
	}
	slices.Sort(members)
	d := Transaction{
		ID: t.gid, Age: t.age, Participants: namesOf(looks, slices.Compact(members)), PreparedOn: namesOf(looks, prepared),
		Router: t.name.Router, DecidedOn: nameOf(looks, t.name.Shard),
	}
	d.Phase, d.Detail = t.phase(d.DecidedOn)
	return d
}

func (t *transaction) phase(decider string) (Phase, string) {
	if t.failure != nil {
		return Waiting, fmt.Sprintf("shard %s decides it: %v", decider, t.failure)
	}
	switch t.outcome.Decision {
	case Commit:
		return Committing, ""
	case Abort:
		return RollingBack, ""
	case Undecided:
	}
	switch {
	case t.verdict() == AskPerson && t.outcome.Timeline != t.name.Timeline:
		return InDoubt, fmt.Sprintf("shard %s was promoted or restored (timeline %d, then %d) and may have lost the decision", decider, t.name.Timeline, t.outcome.Timeline)
	case t.verdict() == AskPerson:
		return InDoubt, fmt.Sprintf("shard %s knows of no decision; a shard that has a part was promoted or restored since, or the part is over a day old", decider)
	case t.outcome.Alive:
		return Preparing, ""
	}
	return Abandoned, ""
}

// lost lists what is marked as lost on one shard.
func (l *looked) lost(ctx context.Context, looks map[int]*looked) ([]Transaction, error) {
	if l.conn == nil {
		return nil, nil
	}
	rows, err := l.conn.Query(ctx, "SELECT gid, participants, lost, extract(epoch FROM clock_timestamp() - at)::float8 FROM cleave.commits WHERE lost IS NOT NULL ORDER BY at")
	if err != nil {
		return nil, err
	}
	var list []Transaction
	var gid string
	var members, lost []int
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&gid, &members, &lost, &age}, func() error {
		name, err := ParseName(gid)
		if err != nil {
			return err
		}
		list = append(list, Transaction{
			ID: gid, Age: time.Duration(age * float64(time.Second)), Participants: namesOf(looks, members), LostOn: namesOf(looks, lost), PreparedOn: []string{},
			Phase: PartLost, Router: name.Router, DecidedOn: nameOf(looks, name.Shard),
			Detail: fmt.Sprintf("shard %s has committed its part; shard %s has lost its own, or the decision: look at the rows, then forget it", l.shard.Name(), namesOf(looks, lost)[0]),
		})
		return nil
	})
	return list, err
}

// How a person resolves a transaction.
const (
	ByCommit   = "commit"
	ByRollback = "rollback"
	ByForget   = "forget"
)

// CheckResolve refuses what [Resolve] would not even look at.
func CheckResolve(gid, how string) error {
	if _, err := ParseName(gid); err != nil {
		return pgerr.New(pgerr.InvalidParameterValue, "%s", err).WithHint("cleave.transactions has the names.")
	}
	if how != ByCommit && how != ByRollback && how != ByForget {
		return pgerr.New(pgerr.InvalidParameterValue, "%q is not a way to resolve a transaction", how).WithHint("Ways are commit, rollback and forget.")
	}
	return nil
}

// Resolve does what a person has decided for a transaction: commit or rollback of what is prepared, or forget for what was lost. What the shard that decides
// says against it goes first: that is an error. It returns what was done, in words.
func Resolve(ctx context.Context, config Config, gid, how string) (string, error) {
	if err := CheckResolve(gid, how); err != nil {
		return "", err
	}
	r := NewRecovery(config)
	defer r.Close()
	m := config.Map()
	if m == nil {
		return "", errors.New("there is no map")
	}
	looks := r.lookAll(ctx, m)
	if how == ByForget {
		return forget(ctx, gid, looks)
	}
	all := gather(looks)
	at := slices.IndexFunc(all, func(t *transaction) bool { return t.gid == gid })
	if at < 0 {
		return "", pgerr.New(pgerr.UndefinedObject, "no shard that answers has a part of transaction %q prepared", gid).WithHint("See: SELECT * FROM cleave.transactions")
	}
	t := all[at]
	r.outcome(ctx, t, looks)
	if err := r.mayResolve(ctx, t, how, looks[t.name.Shard]); err != nil {
		return "", err
	}
	verb := "COMMIT"
	if how == ByRollback {
		verb = "ROLLBACK"
	}
	if left := r.end(ctx, t, looks, verb, ""); left > 0 {
		return "", pgerr.New(pgerr.ConnectionFailure, "%s of the transaction could not be ended", counted(left, "part")).WithHint("The log says why. Try again.")
	}
	return fmt.Sprintf("%s PREPARED on %s", verb, counted(len(t.parts), "shard")), nil
}

// counted is a number of things with their name.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// mayResolve writes the decision down where it belongs, if that can be, and refuses what contradicts the one that is there.
func (r *Recovery) mayResolve(ctx context.Context, t *transaction, how string, decider *looked) error {
	switch {
	case decider == nil || decider.conn == nil: // nobody can be asked, and a person has said so
		return nil
	case t.failure != nil:
		return t.failure
	case t.outcome.Decision == Undecided && t.outcome.Alive:
		return pgerr.New(pgerr.ObjectInUse, "the transaction is under way").WithHint("Its router decides it within seconds, or the control plane aborts it.")
	case t.outcome.Decision == Undecided && how == ByRollback:
		outcome, err := writeAbort(ctx, decider.conn, t.gid)
		if err == nil && outcome.Decision != Abort {
			err = contradicts(outcome.Decision)
		}
		return err
	case t.outcome.Decision == Commit && how == ByRollback, t.outcome.Decision == Abort && how == ByCommit:
		return contradicts(t.outcome.Decision)
	}
	return nil
}

func contradicts(decision Decision) error {
	return pgerr.New(pgerr.ObjectNotInPrerequisite, "the shard that decides has decided otherwise: %s", decision).WithHint("The control plane ends it so, when all shards answer.")
}

// forget takes the mark off what was lost, so that clean-up deletes it.
func forget(ctx context.Context, gid string, looks map[int]*looked) (string, error) {
	forgotten := 0
	for _, look := range looks {
		if look.conn == nil {
			continue
		}
		done, err := look.conn.Exec(ctx, "DELETE FROM cleave.commits WHERE gid = $1 AND lost IS NOT NULL", gid)
		if err != nil {
			return "", err
		}
		forgotten += int(done.RowsAffected())
	}
	if forgotten == 0 {
		return "", pgerr.New(pgerr.UndefinedObject, "no shard that answers has lost something of transaction %q", gid).WithHint("See: SELECT * FROM cleave.transactions WHERE phase = 'lost'")
	}
	return "forgotten", nil
}

// What [OutcomeOf] answers, or [InDoubt].
const (
	Committed  = "committed"
	RolledBack = "rolled back"
	UnderWay   = "under way"
	Unknown    = "unknown"
)

// OutcomeOf says what became of a transaction. It is unknown when what was noted of it is deleted, or was never there: some minutes after its end.
func OutcomeOf(ctx context.Context, config Config, gid string) (string, error) {
	name, err := ParseName(gid)
	if err != nil {
		return "", pgerr.New(pgerr.InvalidParameterValue, "%s", err).
			WithHint("A name looks like cleave/0b5b6f3e/1/4711/1794808073143909/1/abcdefghij/0123456789abcdef. It is in the HINT of error 08007, and in cleave.transactions while the transaction is not over.")
	}
	r := NewRecovery(config)
	defer r.Close()
	m := config.Map()
	if m == nil {
		return "", errors.New("there is no map")
	}
	looks := r.lookAll(ctx, m)
	t := &transaction{gid: gid, name: name}
	all := gather(looks)
	if at := slices.IndexFunc(all, func(t *transaction) bool { return t.gid == gid }); at >= 0 {
		t = all[at]
		t.overdue = t.age >= overdue
	}
	r.outcome(ctx, t, looks)
	switch {
	case t.failure != nil:
		return "", cannotAsk(t, looks[name.Shard])
	case t.outcome.Decision == Commit:
		return Committed, nil
	case t.outcome.Decision == Abort:
		return RolledBack, nil
	case len(t.parts) > 0 && t.verdict() == AskPerson:
		return string(InDoubt), nil
	case t.outcome.Alive, len(t.parts) > 0:
		return UnderWay, nil
	}
	for _, look := range looks {
		if look.err != nil { // it may have a part
			return "", shardAway(look.shard.Name(), "which may have a part of the transaction", look.err)
		}
	}
	return Unknown, nil
}

// cannotAsk says to who wants to know an outcome that the shard that decides does not tell it.
func cannotAsk(t *transaction, decider *looked) error {
	if decider == nil {
		return pgerr.New(pgerr.UndefinedObject, "shard number %d, which decides the transaction, is not in the map any more", t.name.Shard).
			WithHint("Look at the rows that it wrote. If it still has parts on other shards, cleave.transactions lists it.")
	}
	return shardAway(decider.shard.Name(), "which decides the transaction", t.failure)
}

func shardAway(shard, role string, reason error) error {
	return pgerr.New(pgerr.ConnectionFailure, "shard %q, %s, cannot be asked", shard, role).WithDetail("%s", reason).WithHint("Ask again when it is back; 'cleave status' tells.")
}
