package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// StartMoves asks for moves, one for each keyspace and each shard that owns something of what was named. The leader carries them out.
func (c *Cluster) StartMoves(ctx context.Context, request api.StartMove) (api.MoveList, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return api.MoveList{}, err
	}
	if err := checkOptions(request); err != nil {
		return api.MoveList{}, err
	}
	undeclared, err := c.undeclared(ctx, m, request)
	if err != nil {
		return api.MoveList{}, err
	}
	if len(undeclared) > 0 {
		if m, err = withSingle(m, undeclared); err != nil {
			return api.MoveList{}, err
		}
	}
	unplaced, err := c.unplaced(ctx, m, request)
	if err != nil {
		return api.MoveList{}, err
	}
	if len(unplaced) > 0 {
		if m, err = withPlaced(m, request.Keyspace, unplaced); err != nil {
			return api.MoveList{}, &InvalidError{Message: err.Error()}
		}
	}
	moves, err := movesFor(m, request)
	if err != nil {
		return api.MoveList{}, err
	}
	var list api.MoveList
	if isAllOf(request) {
		stays, err := c.staysHome(ctx, m, request.From)
		if err != nil {
			return api.MoveList{}, err
		}
		if stays != "" {
			list.Warnings = append(list.Warnings, stays)
		}
	}
	for _, move := range moves {
		if err := move.Check(m); err != nil && !reshard.OnlyMap(err) {
			return api.MoveList{}, invalidMove(move, err)
		}
	}
	if !request.DryRun { // nothing is in its way any more
		if err := c.declareSingle(ctx, undeclared); err != nil {
			return api.MoveList{}, err
		}
		if err := c.placeSchemas(ctx, request.Keyspace, unplaced); err != nil {
			return api.MoveList{}, err
		}
	}
	for _, move := range moves {
		move.Phase = reshard.Asked
		if !request.DryRun {
			if err := reshard.Ask(ctx, c.config.Store, move); err != nil {
				return list, err
			}
		}
		list.Moves = append(list.Moves, describeMove(move))
	}
	c.mover.Poke()
	return list, nil
}

// isAllOf says whether all is to be moved that a shard has.
func isAllOf(request api.StartMove) bool {
	return request.From != "" && request.Keyspace == "" && len(request.Tables)+len(request.Ranges)+len(request.Keys) == 0
}

func invalidMove(move *reshard.Move, err error) error {
	var missing *topology.NotFoundError
	if errors.As(err, &missing) {
		return err
	}
	if len(move.Whole) > 0 {
		return &InvalidError{Message: fmt.Sprintf("tables %s cannot be moved from shard %s to shard %s: %v", strings.Join(move.Whole, ", "), move.Source, move.Target, err)}
	}
	return &InvalidError{Message: fmt.Sprintf("keyspace %s cannot be moved from shard %s to shard %s: %v", move.Keyspace, move.Source, move.Target, err)}
}

// movesFor finds out what is to be moved from where.
func movesFor(m *topology.Map, request api.StartMove) ([]*reshard.Move, error) {
	if request.To == "" {
		return nil, &InvalidError{Message: "the shard that is to get the rows is not named", Hint: "--to SHARD."}
	}
	if m.Shard(request.To) == nil {
		return nil, &topology.NotFoundError{Kind: "shard", Name: request.To}
	}
	if request.From != "" && m.Shard(request.From) == nil {
		return nil, &topology.NotFoundError{Kind: "shard", Name: request.From}
	}
	named := len(request.Ranges)+len(request.Keys) > 0
	switch {
	case len(request.Tables) > 0 && (named || request.Keyspace != ""):
		return nil, &InvalidError{Message: "a table that is on one shard alone moves as a whole", Hint: "Name neither a keyspace nor ranges nor keys."}
	case !named && request.From == "" && len(request.Tables) == 0:
		return nil, &InvalidError{Message: "what is to be moved is not named", Hint: "--range LO:HI, --key VALUE, --table NAME, or --from SHARD for all that a shard owns."}
	case named && request.Keyspace == "":
		return nil, &InvalidError{Message: "ranges and keys are those of a keyspace", Hint: "--keyspace NAME."}
	}
	var moves []*reshard.Move
	for _, k := range m.Keyspaces() {
		if len(request.Tables) > 0 {
			break
		}
		if request.Keyspace != "" && k.Name() != request.Keyspace {
			continue
		}
		found, err := keyspaceMoves(k, request)
		if err != nil {
			return nil, err
		}
		moves = append(moves, found...)
	}
	if !named && request.Keyspace == "" {
		whole, err := wholeMoves(m, request)
		if err != nil {
			return nil, err
		}
		moves = append(moves, whole...)
	}
	if len(moves) == 0 {
		if request.Keyspace != "" && m.Keyspace(request.Keyspace) == nil {
			return nil, &topology.NotFoundError{Kind: "keyspace", Name: request.Keyspace}
		}
		nothing := &InvalidError{Message: "there is nothing to move to shard " + request.To}
		if request.From == m.Home().Name() {
			nothing.Hint = "The home shard has the tables that nobody has declared: --table NAME moves one."
		}
		return nil, nothing
	}
	return moves, nil
}

// asStored writes a key as the map does, however somebody has written it.
func asStored(k *topology.Keyspace, key topology.Point) (topology.Point, error) {
	encoded, err := k.EncodeBound(key)
	if err != nil {
		return nil, err
	}
	return k.Texts(encoded)
}

// keyspaceMoves are the moves of one keyspace, by the shards that own what is named.
func keyspaceMoves(k *topology.Keyspace, request api.StartMove) ([]*reshard.Move, error) {
	bySource := map[string]*reshard.Move{}
	of := func(source string) *reshard.Move {
		if bySource[source] == nil {
			bySource[source] = &reshard.Move{Keyspace: k.Name(), Source: source, Target: request.To, Options: optionsOf(request), Why: request.Why}
		}
		return bySource[source]
	}
	wanted := func(shard string) bool { return shard != request.To && (request.From == "" || shard == request.From) }
	all := len(request.Ranges)+len(request.Keys) == 0
	spec := k.Spec()
	ranges, err := reshard.Intersect(k, request.Ranges)
	if err != nil {
		return nil, &InvalidError{Message: err.Error()}
	}
	if all {
		ranges = spec.Ranges
	}
	for _, r := range ranges {
		if wanted(r.Shard) {
			of(r.Shard).Ranges = append(of(r.Shard).Ranges, reshard.Range{From: r.From, To: r.To})
		}
	}
	if all {
		for _, p := range spec.Pins {
			if wanted(p.Shard) {
				of(p.Shard).Pins = append(of(p.Shard).Pins, p.Key)
			}
		}
	}
	for _, key := range request.Keys {
		values, err := k.ParseKey(key)
		if err != nil {
			return nil, &InvalidError{Message: fmt.Sprintf("key %s: %v", strings.Join(key, ","), err)}
		}
		place, err := k.Locate(values...)
		if err != nil {
			return nil, &InvalidError{Message: err.Error()}
		}
		pin, err := asStored(k, key)
		if err != nil {
			return nil, &InvalidError{Message: err.Error()}
		}
		if wanted(place.Shard.Name()) {
			of(place.Shard.Name()).Pins = append(of(place.Shard.Name()).Pins, pin)
		}
	}
	moves := make([]*reshard.Move, 0, len(bySource))
	for _, move := range bySource {
		move.Ranges = reshard.Join(move.Ranges)
		moves = append(moves, apart(k, move)...)
	}
	slices.SortStableFunc(moves, func(a, b *reshard.Move) int { return strings.Compare(a.Source, b.Source) })
	return moves, nil
}

// Limits of options that somebody may have meant otherwise.
const (
	longestKeep  = 366 * 24 * time.Hour
	longestPause = time.Hour
)

// checkOptions says what of the options makes no sense. 0 is the usual.
func checkOptions(request api.StartMove) error {
	_, err := adjustmentOf(request.MoveLimits)
	switch {
	case err != nil:
		return err
	case request.Streams < 0 || request.Streams > reshard.MostStreams:
		return &InvalidError{Message: fmt.Sprintf("%d copies cannot run at once", request.Streams), Hint: fmt.Sprintf("Up to %d can; each takes a connection on both shards.", reshard.MostStreams)}
	case !(request.KeepSeconds >= 0) || request.KeepSeconds > longestKeep.Seconds():
		return &InvalidError{Message: fmt.Sprintf("a way back cannot be kept for %g seconds", request.KeepSeconds), Hint: "A year is the longest; the servers keep what they need for it."}
	case request.PauseLimitMS < 0 || request.PauseLimitMS > longestPause.Milliseconds():
		return &InvalidError{Message: fmt.Sprintf("statements cannot be held for %d ms", request.PauseLimitMS), Hint: "An hour is the longest, and a second the usual."}
	}
	return nil
}

func optionsOf(request api.StartMove) reshard.Options {
	limits, _ := adjustmentOf(request.MoveLimits) // which was checked
	return reshard.Options{
		Streams: request.Streams, Keep: time.Duration(request.KeepSeconds * float64(time.Second)), PauseLimit: time.Duration(request.PauseLimitMS) * time.Millisecond,
		Manual: request.Manual, SkipVerify: request.SkipVerify, Limits: limits.Apply(reshard.Limits{}),
	}
}

// adjustmentOf reads limits. No limit is 0 there, and below 0 here.
func adjustmentOf(limits api.MoveLimits) (a reshard.Adjustment, err error) {
	if limits.Throttle != nil {
		off := !*limits.Throttle
		a.Off = &off
	}
	if a.MaxRate = limits.MaxRate; a.MaxRate != nil && *a.MaxRate < 0 {
		return a, &InvalidError{Message: fmt.Sprintf("%d bytes in a second cannot be copied", *a.MaxRate), Hint: "0 is no limit."}
	}
	if a.MaxWAL = limits.MaxWAL; a.MaxWAL != nil && *a.MaxWAL <= 0 {
		return a, &InvalidError{Message: fmt.Sprintf("a slot that may keep %d bytes is of no use", *a.MaxWAL), Hint: "It is 32 GB unless something else is said."}
	}
	if limits.MaxLagSeconds != nil {
		lag := time.Duration(*limits.MaxLagSeconds * float64(time.Second))
		switch {
		case lag < 0:
			return a, &InvalidError{Message: fmt.Sprintf("standbys cannot be %s behind", lag), Hint: "0 is no limit."}
		case lag == 0:
			lag = -1
		}
		a.MaxLag = &lag
	}
	if limits.MaxLoad != nil {
		load := *limits.MaxLoad
		switch {
		case load == 0:
			load = -1
		case !(load > 1):
			return a, &InvalidError{Message: fmt.Sprintf("no statement takes %g times as long as at best", load), Hint: "Write a number above 1, such as 2; 0 is no limit."}
		}
		a.MaxLoad = &load
	}
	return a, nil
}

// describeLimits is the reverse.
func describeLimits(l reshard.Limits) api.MoveLimits {
	throttle, lag, load := !l.Off, max(l.MaxLag, 0).Seconds(), max(l.MaxLoad, 0)
	return api.MoveLimits{Throttle: &throttle, MaxRate: &l.MaxRate, MaxLagSeconds: &lag, MaxLoad: &load, MaxWAL: &l.MaxWAL}
}

// ThrottleMove changes what slows a move down. The leader does it at its next look.
func (c *Cluster) ThrottleMove(ctx context.Context, id string, limits api.MoveLimits) (api.Move, error) {
	if limits == (api.MoveLimits{}) {
		return api.Move{}, &InvalidError{Message: "nothing is said of what is to change"}
	}
	adjustment, err := adjustmentOf(limits)
	if err != nil {
		return api.Move{}, err
	}
	if err := c.underWay(ctx, id); err != nil {
		return api.Move{}, err
	}
	if err := reshard.Adjust(ctx, c.config.Store, id, adjustment); err != nil {
		return api.Move{}, err
	}
	c.mover.Poke()
	return c.Move(ctx, id)
}

// underWay fails if a move is not there or has ended.
func (c *Cluster) underWay(ctx context.Context, id string) error {
	move, err := c.Move(ctx, id)
	if err == nil && reshard.Phase(move.Phase).HasEnded() {
		err = &InvalidError{Message: fmt.Sprintf("move %s has ended: it is %s", id, move.Phase)}
	}
	return err
}

// Moves lists all moves, the newest first.
func (c *Cluster) Moves(ctx context.Context) (api.MoveList, error) {
	moves, err := c.mover.List(ctx)
	list := api.MoveList{Moves: []api.Move{}}
	for _, move := range moves {
		list.Moves = append(list.Moves, describeMove(move))
	}
	return list, err
}

// Move reads one move.
func (c *Cluster) Move(ctx context.Context, id string) (api.Move, error) {
	move, err := reshard.Find(ctx, c.config.Store, id)
	if errors.Is(err, store.ErrNoJob) {
		return api.Move{}, &topology.NotFoundError{Kind: "move", Name: id}
	}
	if err != nil {
		return api.Move{}, err
	}
	return describeMove(move), nil
}

// WishMove says what is to become of a move. The leader answers in the move.
func (c *Cluster) WishMove(ctx context.Context, id, wish string) (api.Move, error) {
	if !slices.Contains(reshard.Wishes(), reshard.Wish(wish)) {
		return api.Move{}, &InvalidError{Message: fmt.Sprintf("%q is none of pause, resume, cancel, switch, roll back, finish", wish)}
	}
	if err := c.underWay(ctx, id); err != nil {
		return api.Move{}, err
	}
	if err := c.config.Store.Wish(ctx, id, wish); err != nil {
		return api.Move{}, err
	}
	c.mover.Poke()
	return c.Move(ctx, id)
}

func describeMove(m *reshard.Move) api.Move {
	d := api.Move{
		ID: m.ID, Keyspace: m.Keyspace, From: m.Source, To: m.Target, Phase: string(m.Phase), Since: m.Since, Asked: m.AskedAt, Ended: m.Ended, Paused: m.Paused, Stopped: m.Stopped,
		Waiting: m.Waiting, Error: m.Error, Rows: m.Rows(), Bytes: m.Bytes(), Share: m.Share(), SecondsLeft: m.Left().Seconds(), LagBytes: m.LagBytes, Verified: m.Verified, Cleaned: m.Cleaned,
		CanRollBack: m.Phase == reshard.Switched && m.WayBack, Limits: describeLimits(m.Limits()), Why: m.Why,
		Ranges: []api.MoveRange{}, Keys: [][]string{}, Whole: append([]string{}, m.Whole...), Tables: []api.MoveTable{}, Switches: []api.MoveSwitch{},
	}
	for _, r := range m.Ranges {
		d.Ranges = append(d.Ranges, api.MoveRange{From: r.From, To: r.To})
	}
	for _, p := range m.Pins {
		d.Keys = append(d.Keys, p)
	}
	for _, schema := range m.Schemas {
		d.Keys = append(d.Keys, []string{schema})
	}
	for _, t := range m.Tables {
		share := 1.0
		if t.PagesInAll > 0 {
			share = float64(t.PagesRead) / float64(t.PagesInAll)
		}
		d.Tables = append(d.Tables, api.MoveTable{Name: t.Name, Rows: t.Rows, Bytes: t.Bytes, Share: share})
	}
	for _, a := range m.Switches {
		attempt := api.MoveSwitch{At: a.At, HeldMS: milliseconds(a.Held), Failed: a.Failed, Steps: []api.MoveStep{}}
		for _, s := range a.Steps {
			attempt.Steps = append(attempt.Steps, api.MoveStep{Name: s.Name, TookMS: milliseconds(s.Took)})
		}
		d.Switches = append(d.Switches, attempt)
	}
	return d
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
