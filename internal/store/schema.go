package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// schemaFormat is what a stored schema state says of itself. Another format gets another number, and old binaries say that
// they are old. A state with roll-outs has the second one, and one with moves the third: who does not know them would lose them with its next write.
const (
	schemaFormat   = 1
	rolloutsFormat = 2
	movesFormat    = 3
	schemasFormat  = 4 // whole schemas move
)

// maxSchemaBytes leaves room beside the state in what etcd takes as one request.
const maxSchemaBytes = 1 << 20

// storedSchema is the schema state as it was read. The zero value stands for none.
type storedSchema struct {
	state    topology.SchemaState
	attempts lineage
	revision int64 // etcd's revision of its last write: what a writer compares; 0: there is none
	asOf     int64 // the revision of etcd as of which it was read
}

// schemaRecord is the schema state as stored.
type schemaRecord struct {
	Format     int             `json:"format"`
	Epoch      uint64          `json:"epoch"`
	MapVersion uint64          `json:"map_version"`
	Holds      []holdRecord    `json:"holds,omitempty"`
	Rollouts   []rolloutRecord `json:"rollouts,omitempty"`
	Moves      []movingRecord  `json:"moves,omitempty"`
	Attempts   []string        `json:"attempts"` // those that wrote it, the newest first
}

// holdRecord is a hold as stored.
type holdRecord struct {
	ID     string    `json:"id"`
	Origin string    `json:"origin,omitempty"`
	Tables []string  `json:"tables,omitempty"` // schema.name, quoted as in SQL; none: all
	Holder string    `json:"holder"`
	Why    string    `json:"why"`
	Since  time.Time `json:"since"`
	Move   string    `json:"move,omitempty"`
}

func (c storedSchema) encode() (string, error) {
	record := schemaRecord{Format: schemaFormat, Epoch: c.state.Epoch, MapVersion: c.state.MapVersion}
	for _, h := range c.state.Holds {
		held := holdRecord{ID: h.ID, Origin: h.Origin, Holder: h.Holder, Why: h.Why, Since: h.Since, Move: h.Move}
		for _, table := range h.Tables {
			held.Tables = append(held.Tables, table.String())
		}
		record.Holds = append(record.Holds, held)
	}
	for _, r := range c.state.Rollouts {
		record.Format = rolloutsFormat
		record.Rollouts = append(record.Rollouts, recordOf(r))
	}
	for _, m := range c.state.Moves {
		if record.Format = max(record.Format, movesFormat); len(m.Schemas) > 0 {
			record.Format = schemasFormat
		}
		record.Moves = append(record.Moves, recordOfMove(m))
	}
	for _, a := range c.attempts {
		record.Attempts = append(record.Attempts, hex.EncodeToString(a[:]))
	}
	value, err := json.Marshal(record)
	if err != nil {
		return "", fmt.Errorf("encode schema state: %w", err)
	}
	if len(value) > maxSchemaBytes {
		return "", fmt.Errorf("the schema state takes %d bytes, at most %d can be stored: hold fewer tables by name, or all", len(value), maxSchemaBytes)
	}
	return string(value), nil
}

// decodeSchema reads what is stored. What it does not understand is an error: a hold that was overlooked would be a
// statement on a table that is changing.
func decodeSchema(kv keyValue) (storedSchema, error) {
	var record schemaRecord
	if err := json.Unmarshal(kv.Value, &record); err != nil {
		return storedSchema{}, fmt.Errorf("stored schema state: %w", err)
	}
	if record.Format < schemaFormat || record.Format > schemasFormat {
		return storedSchema{}, fmt.Errorf("stored schema state has format %d, this version reads formats %d to %d", record.Format, schemaFormat, schemasFormat)
	}
	current := storedSchema{revision: kv.ModRevision}
	current.state.Epoch, current.state.MapVersion = record.Epoch, record.MapVersion
	for _, held := range record.Holds {
		hold, err := held.hold()
		if err != nil {
			return storedSchema{}, fmt.Errorf("stored schema state: %w", err)
		}
		current.state.Holds = append(current.state.Holds, hold)
	}
	for _, stored := range record.Rollouts {
		rollout, err := stored.rollout()
		if err != nil {
			return storedSchema{}, fmt.Errorf("stored schema state: %w", err)
		}
		current.state.Rollouts = append(current.state.Rollouts, rollout)
	}
	for _, stored := range record.Moves {
		moving, err := stored.moving()
		if err != nil {
			return storedSchema{}, fmt.Errorf("stored schema state: %w", err)
		}
		current.state.Moves = append(current.state.Moves, moving)
	}
	for _, text := range record.Attempts {
		name, err := hex.DecodeString(text)
		if err != nil || len(name) != len(attempt{}) {
			return storedSchema{}, fmt.Errorf("stored schema state: %q is no attempt", text)
		}
		current.attempts = append(current.attempts, attempt(name))
	}
	return current, nil
}

func (r holdRecord) hold() (topology.Hold, error) {
	hold := topology.Hold{ID: r.ID, Origin: r.Origin, Holder: r.Holder, Why: r.Why, Since: r.Since, Move: r.Move}
	for _, text := range r.Tables {
		table, err := topology.ParseTableName(text)
		if err != nil {
			return topology.Hold{}, fmt.Errorf("hold %s: %w", r.ID, err)
		}
		hold.Tables = append(hold.Tables, table)
	}
	return hold, nil
}

// Schema reads the schema state. Where none was ever written it is the zero state.
func (s *Store) Schema(ctx context.Context) (topology.SchemaState, error) {
	current, err := s.readSchema(ctx)
	return current.state, err
}

// Holding returns nil if the hold is there, and a [NotHeldError] if it is not. A holder asks before it makes anything
// permanent; DESIGN.md says what that is worth.
func (s *Store) Holding(ctx context.Context, holdID string) error {
	state, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	if _, held := state.Hold(holdID); !held {
		return &NotHeldError{ID: holdID}
	}
	return nil
}

// Hold keeps all routers from starting statements on the tables, once they have applied the state that it returns. The hold
// needs an ID that nobody else uses and a holder that is registered, otherwise it fails with [ErrNotRegistered]. If one of the
// tables is held already it fails with a [HeldError], and with a [RolloutError] if a roll-out of one is open. The same hold again
// changes nothing.
func (s *Store) Hold(ctx context.Context, hold topology.Hold) (topology.SchemaState, error) {
	if hold.ID == "" || hold.Holder == "" {
		return topology.SchemaState{}, errors.New("hold tables: the hold has no ID or no holder")
	}
	if hold.Since.IsZero() {
		hold.Since = time.Now().UTC()
	}
	return s.changeSchema(ctx, "hold tables", func(seen SchemaOverview) (schemaStep, error) {
		now := seen.State
		if other, taken := now.Hold(hold.ID); taken {
			if other.Holder == hold.Holder && slices.Equal(other.Tables, hold.Tables) {
				return schemaStep{}, errAsItIs
			}
			return schemaStep{}, fmt.Errorf("hold %s %w", hold.ID, ErrExists)
		}
		if other, inTheWay := now.Conflict(hold); inTheWay {
			return schemaStep{}, &HeldError{Hold: other}
		}
		if other, inTheWay := now.OpenRollout(hold.Tables...); inTheWay {
			return schemaStep{}, &RolloutError{Rollout: other}
		}
		if move, inTheWay := now.MoveOf(hold.Tables...); inTheWay && move.ID != hold.Move && !hold.BesideMoves {
			return schemaStep{}, &MovingError{Move: move}
		}
		if !seen.Lives(hold.Holder) {
			return schemaStep{}, fmt.Errorf("router %s: %w", hold.Holder, ErrNotRegistered)
		}
		now.Holds = append(slices.Clip(now.Holds), hold)
		return schemaStep{now, []clientv3.Cmp{s.isRegistered(hold.Holder)}}, nil
	})
}

// Release ends the hold. Routers go on with those tables when they have the map of that version; 0: the one they have. A hold
// that is not there is a [NotHeldError], and nothing changes.
func (s *Store) Release(ctx context.Context, holdID string, mapVersion uint64) (topology.SchemaState, error) {
	return s.changeSchema(ctx, "release tables", func(seen SchemaOverview) (schemaStep, error) {
		now := seen.State
		if _, held := now.Hold(holdID); !held {
			return schemaStep{}, &NotHeldError{ID: holdID}
		}
		now.Holds = without(now.Holds, holdID)
		now.MapVersion = max(now.MapVersion, mapVersion)
		return schemaStep{next: now}, nil
	})
}

// without returns the other holds; nil if there are none.
func without(holds []topology.Hold, id string) []topology.Hold {
	var others []topology.Hold
	for _, h := range holds {
		if h.ID != id {
			others = append(others, h)
		}
	}
	return others
}

// Bump makes every router plan anew, with the map of that version; 0: the one they have. Changes that others make at the same
// time serve for this one too.
func (s *Store) Bump(ctx context.Context, mapVersion uint64) (topology.SchemaState, error) {
	var before uint64 // the highest epoch that was known when the call began
	first := true
	return s.changeSchema(ctx, "raise the schema epoch", func(seen SchemaOverview) (schemaStep, error) {
		if first {
			first, before = false, seen.floor()
		}
		now := seen.State
		if now.Epoch > before && now.MapVersion >= mapVersion {
			return schemaStep{}, errAsItIs
		}
		now.MapVersion = max(now.MapVersion, mapVersion)
		return schemaStep{next: now}, nil
	})
}

// TakeOver gives the hold of a router that has no record any more to another, which has. The hold goes on without a gap under
// another ID: what its former holder still tries under the old one is refused. One that was taken over before may be taken over
// again though its holder lives. It fails with [ErrHolderLives], [ErrNotRegistered] or a [NotHeldError].
func (s *Store) TakeOver(ctx context.Context, holdID, holder string) (topology.Hold, error) {
	var taken topology.Hold
	newID := rand.Text()
	_, err := s.changeSchema(ctx, "take tables over", func(seen SchemaOverview) (schemaStep, error) {
		now := seen.State
		i := slices.IndexFunc(now.Holds, func(h topology.Hold) bool { return h.ID == holdID })
		if i < 0 {
			return schemaStep{}, &NotHeldError{ID: holdID}
		}
		former, must := now.Holds[i], []clientv3.Cmp{s.isRegistered(holder)}
		if !seen.Lives(holder) {
			return schemaStep{}, fmt.Errorf("router %s: %w", holder, ErrNotRegistered)
		}
		if !former.TakenOver() {
			if seen.Lives(former.Holder) {
				return schemaStep{}, fmt.Errorf("router %s: %w", former.Holder, ErrHolderLives)
			}
			must = append(must, s.isNotRegistered(former.Holder))
		}
		taken = former
		taken.ID, taken.Origin, taken.Holder = newID, former.First(), holder
		now.Holds = slices.Clone(now.Holds)
		now.Holds[i] = taken
		return schemaStep{now, must}, nil
	})
	return taken, err
}

// ReleaseInBackground releases the hold as soon as etcd lets it, for a holder that has tried in vain, or that does not know
// whether it holds: while its router lives, nobody else would. It ends with the store.
func (s *Store) ReleaseInBackground(holdID string, mapVersion uint64) {
	s.start(func() {
		for pause := firstPause; s.releaseForCertain(s.ctx, holdID, mapVersion) != nil; pause = min(2*pause, longestPause) {
			if !sleep(s.ctx, jitter(pause)) {
				return
			}
		}
	})
}

// releaseForCertain releases the hold, also one that is yet to come: a write whose outcome is unknown may arrive late. Any other
// write of the state keeps it from being applied.
func (s *Store) releaseForCertain(ctx context.Context, holdID string, mapVersion uint64) error {
	_, err := s.Release(ctx, holdID, mapVersion)
	if !errors.Is(err, ErrNotHeld) {
		return err
	}
	if _, err = s.Bump(ctx, mapVersion); err != nil {
		return err
	}
	if _, err = s.Release(ctx, holdID, mapVersion); errors.Is(err, ErrNotHeld) {
		return nil
	}
	return err
}

// errAsItIs ends a change that need not be made. It stays within the package.
var errAsItIs = errors.New("nothing is to be changed")

// schemaStep is a change of the state: what comes next, its epoch left to the writer, and what else must be so in etcd.
type schemaStep struct {
	next topology.SchemaState
	must []clientv3.Cmp
}

// changeSchema replaces the state by what decide makes of it, and starts over when something has changed since decide looked.
// What decide fails with ends the change; [errAsItIs] ends it as done. It returns the state that it wrote.
func (s *Store) changeSchema(ctx context.Context, action string, decide func(SchemaOverview) (schemaStep, error)) (topology.SchemaState, error) {
	pause := time.Millisecond
	for range updateLimit {
		seen, from, err := s.overview(ctx)
		if err != nil {
			return topology.SchemaState{}, fmt.Errorf("%s: %w", action, err)
		}
		step, err := decide(seen)
		if errors.Is(err, errAsItIs) {
			return from.state, nil
		}
		if err != nil {
			return topology.SchemaState{}, fmt.Errorf("%s: %w", action, err)
		}
		step.next.Epoch = seen.floor() + 1
		written, err := s.writeSchema(ctx, action, from, step)
		if err != nil {
			return topology.SchemaState{}, err
		}
		if written {
			s.noteEpoch(step.next.Epoch)
			return step.next, nil
		}
		if !sleep(ctx, jitter(pause)) {
			return topology.SchemaState{}, cancelledError(ctx, action, false)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
	return topology.SchemaState{}, fmt.Errorf("%s: gave up after %d tries: %w", action, updateLimit, ErrConflict)
}

// writeSchema makes the step. It returns false when it is not made, because something is not as it was.
func (s *Store) writeSchema(ctx context.Context, action string, from storedSchema, step schemaStep) (written bool, err error) {
	mine := newAttempt()
	value, err := storedSchema{state: step.next, attempts: from.attempts.extended(mine)}.encode()
	if err != nil {
		return false, fmt.Errorf("%s: %w", action, err)
	}
	response, lostAnswer, err := s.commit(ctx, transaction{
		action:    action,
		when:      append(step.must, s.schemaIs(from)),
		then:      []clientv3.Op{clientv3.OpPut(s.keys.schema, value)},
		otherwise: []clientv3.Op{clientv3.OpGet(s.keys.schema)},
	})
	if err != nil || response.Succeeded {
		return err == nil, err
	}
	current, err := schemaIn(response.Responses[0].GetResponseRange().Kvs)
	switch {
	case err != nil:
		return false, fmt.Errorf("%s: %w", action, err)
	case lostAnswer && current.attempts.remembers(mine):
		return true, nil
	case lostAnswer && !current.attempts.follows(from.attempts):
		return false, fmt.Errorf("%s: answer lost, and too many others have written since: %w", action, ErrOutcomeUnknown)
	default:
		return false, nil
	}
}

// readSchema reads the state.
func (s *Store) readSchema(ctx context.Context) (storedSchema, error) {
	var response *clientv3.GetResponse
	err := s.request(ctx, "read schema state", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, s.keys.schema)
		return err
	})
	if err != nil {
		return storedSchema{}, err
	}
	current, err := schemaIn(response.Kvs)
	current.asOf = response.Header.Revision
	return current, err
}

// schemaIn reads the state from the answer to a read of its key.
func schemaIn(kvs []keyValue) (storedSchema, error) {
	if len(kvs) == 0 {
		return storedSchema{}, nil
	}
	return decodeSchema(kvs[0])
}

// noteEpoch remembers the highest epoch that passed through here.
func (s *Store) noteEpoch(epoch uint64) {
	for {
		seen := s.seenEpoch.Load()
		if epoch <= seen || s.seenEpoch.CompareAndSwap(seen, epoch) {
			return
		}
	}
}

// schemaIs is the condition that nobody has written the state since it was read.
func (s *Store) schemaIs(c storedSchema) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.keys.schema), "=", c.revision)
}

func (s *Store) isRegistered(router string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.keys.routers+router), ">", 0)
}

func (s *Store) isNotRegistered(router string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.keys.routers+router), "=", 0)
}
