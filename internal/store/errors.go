package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
)

var (
	// ErrNoMap says that no shard map has been created yet.
	ErrNoMap = errors.New("there is no shard map yet")
	// ErrExists says that what was to be created is there already.
	ErrExists = errors.New("exists already")
	// ErrConflict says that somebody else wrote first: read again and decide again.
	ErrConflict = errors.New("changed by somebody else")
	// ErrUnavailable says that etcd did not answer; every [UnavailableError] is one.
	ErrUnavailable = errors.New("etcd is unavailable")
	// ErrOutcomeUnknown says that a write may have been applied or may yet be: read before deciding anything.
	ErrOutcomeUnknown = errors.New("the write may or may not have been applied")
	// ErrNotLeader says that a write was refused because the leadership it came from is over.
	ErrNotLeader = errors.New("not the leader any more")
	// ErrNoLeader says that nobody leads at the moment.
	ErrNoLeader = errors.New("there is no leader")
	// ErrNoJob says that there is no job of that name.
	ErrNoJob = errors.New("no such job")
	// ErrHeld says that a table is held by somebody else; every [HeldError] is one.
	ErrHeld = errors.New("held by somebody else")
	// ErrNotHeld says that a hold is not there, or not any more; every [NotHeldError] is one.
	ErrNotHeld = errors.New("not held any more")
	// ErrNotRegistered says that whoever wants to hold tables has no record, so that nobody would notice its death.
	ErrNotRegistered = errors.New("the router's record is not in etcd")
	// ErrHolderLives says that a hold cannot be taken over: its holder has a record.
	ErrHolderLives = errors.New("the holder is registered")
	// ErrWentBack says that the state of the schema is older than it was: etcd was put back to an earlier state.
	ErrWentBack = errors.New("the state of the schema has gone back")
	// ErrClosed says that the store, or what was made from it, has been closed.
	ErrClosed = errors.New("store is closed")
)

// ConflictError is a lost race for the next version of the map. It is an [ErrConflict], and an [ErrExists] where the writer
// went on from no map.
type ConflictError struct {
	Base    uint64 // the version that the writer went on from; 0: from no map
	Current uint64 // the version that is stored; the same as Base: with another content
}

func (e *ConflictError) Error() string {
	switch e.Base {
	case 0:
		return fmt.Sprintf("shard map version %d %v", e.Current, ErrExists)
	case e.Current:
		return fmt.Sprintf("shard map version %d has another content than the one that was read", e.Current)
	default:
		return fmt.Sprintf("shard map is at version %d, not at %d any more", e.Current, e.Base)
	}
}

// Is makes every ConflictError an ErrConflict and, where it is so, an ErrExists.
func (e *ConflictError) Is(target error) bool {
	return target == ErrConflict || target == ErrExists && e.Base == 0
}

// StaleError is a map that was refused because its version is not above the current one.
type StaleError struct {
	Current uint64 // the version that is stored, or held
	Offered uint64 // the version of the refused map
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("shard map version %d is refused: version %d is there already and versions never go back", e.Offered, e.Current)
}

// ForkError is a map that a [Follower] refused because it has the version of the held one, and another content: etcd was put
// back to an earlier state, and others went on from there. A map with a higher version ends it.
type ForkError struct {
	Version uint64 // of both maps
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("shard map version %d is refused: there is another map of the same version; one with a higher version is needed", e.Version)
}

// OtherClusterError is a map that was refused because it belongs to another cluster, whatever its version.
type OtherClusterError struct {
	Held    string // the cluster of the map that stays
	Offered string // the cluster of the refused map
}

func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("shard map of cluster %s is refused: this is cluster %s", e.Offered, e.Held)
}

// HeldError is a hold that was refused because a table is held already. It is an [ErrHeld].
type HeldError struct {
	Hold topology.Hold // the one that is in the way
}

func (e *HeldError) Error() string {
	tables := "all tables"
	if len(e.Hold.Tables) > 0 {
		names := make([]string, len(e.Hold.Tables))
		for i, table := range e.Hold.Tables {
			names[i] = table.String()
		}
		tables = strings.Join(names, ", ")
	}
	return fmt.Sprintf("router %s holds %s since %s: %s", e.Hold.Holder, tables, e.Hold.Since.UTC().Format(time.RFC3339), e.Hold.Why)
}

// Is makes every HeldError an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// NotHeldError is a hold that is not there any more: it was released, or taken over from a holder that seemed dead. It is an
// [ErrNotHeld].
type NotHeldError struct {
	ID string // of the hold
}

func (e *NotHeldError) Error() string { return fmt.Sprintf("hold %s: %v", e.ID, ErrNotHeld) }

// Is makes every NotHeldError an ErrNotHeld.
func (e *NotHeldError) Is(target error) bool { return target == ErrNotHeld }

// UnavailableError is a request that etcd did not answer. It is an [ErrUnavailable], and an [ErrOutcomeUnknown] where the
// request was a write that may have been applied.
type UnavailableError struct {
	Action         string        // what was to be done
	Endpoints      []string      // where it was tried
	Tried          time.Duration // for how long
	Cause          error         // what went wrong last
	OutcomeUnknown bool          // whether a write may have been applied, or may yet be
}

func (e *UnavailableError) Error() string {
	text := fmt.Sprintf("%s: no answer from etcd at %s in %v: %v",
		e.Action, strings.Join(e.Endpoints, ", "), e.Tried.Round(time.Millisecond), e.Cause)
	if e.OutcomeUnknown {
		text += "; " + ErrOutcomeUnknown.Error()
	}
	return text
}

// Is makes the error an ErrUnavailable and, where it is so, an ErrOutcomeUnknown.
func (e *UnavailableError) Is(target error) bool {
	return target == ErrUnavailable || target == ErrOutcomeUnknown && e.OutcomeUnknown
}

func (e *UnavailableError) Unwrap() error { return e.Cause }

// cancelledError is the caller's own change of mind, with a word on what it may have left behind.
func cancelledError(ctx context.Context, action string, outcomeUnknown bool) error {
	if outcomeUnknown {
		return fmt.Errorf("%s: %w: %w", action, context.Cause(ctx), ErrOutcomeUnknown)
	}
	return fmt.Errorf("%s: %w", action, context.Cause(ctx))
}
