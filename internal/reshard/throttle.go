package reshard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Copying and cleaning up are nobody's hurry: they give way to who uses the shards. What is measured is in pressure.go; here is what becomes of it.

// Limits are what slows a move down. They can be changed while it is under way.
type Limits struct {
	// Off: nothing but MaxRate slows it down.
	Off bool `json:"throttle_off,omitempty"`
	// MaxRate is how many bytes are copied, or read to be compared, in a second at most. 0: as many as go.
	MaxRate int64 `json:"max_rate,omitempty"`
	// MaxLag is how far standbys of both shards may be behind before nothing goes on; from half of it on it is slower. 0: the usual; below 0: as far as they like.
	MaxLag time.Duration `json:"max_lag,omitempty"`
	// MaxLoad is how many times longer than at best a small statement may take on a shard that others use. 0: the usual; below 0: as long as it likes.
	MaxLoad float64 `json:"max_load,omitempty"`
	// MaxWAL is how many bytes of changes a shard may have to keep for a slot, the move's own included. 0: the usual.
	MaxWAL int64 `json:"max_wal,omitempty"`
}

// Usual limits.
const (
	usualMaxLag  = 10 * time.Second
	usualMaxLoad = 2
	usualMaxWAL  = 32 << 30
)

func (l Limits) withDefaults() Limits {
	if l.MaxLag == 0 {
		l.MaxLag = usualMaxLag
	}
	if l.MaxLoad == 0 {
		l.MaxLoad = usualMaxLoad
	}
	if l.MaxWAL <= 0 {
		l.MaxWAL = usualMaxWAL
	}
	return l
}

// Limits are those of a move, the usual ones included.
func (m *Move) Limits() Limits { return m.Options.Limits.withDefaults() }

// Adjustment is a change of limits: what is nil stays.
type Adjustment struct {
	Off     *bool          `json:"throttle_off,omitempty"`
	MaxRate *int64         `json:"max_rate,omitempty"`
	MaxLag  *time.Duration `json:"max_lag,omitempty"`
	MaxLoad *float64       `json:"max_load,omitempty"`
	MaxWAL  *int64         `json:"max_wal,omitempty"`
}

// Apply changes limits.
func (a Adjustment) Apply(l Limits) Limits {
	set(&l.Off, a.Off)
	set(&l.MaxRate, a.MaxRate)
	set(&l.MaxLag, a.MaxLag)
	set(&l.MaxLoad, a.MaxLoad)
	set(&l.MaxWAL, a.MaxWAL)
	return l.withDefaults()
}

// after is one adjustment behind another.
func (a Adjustment) after(before Adjustment) Adjustment {
	return Adjustment{cmp.Or(a.Off, before.Off), cmp.Or(a.MaxRate, before.MaxRate), cmp.Or(a.MaxLag, before.MaxLag), cmp.Or(a.MaxLoad, before.MaxLoad), cmp.Or(a.MaxWAL, before.MaxWAL)}
}

func set[T any](value, to *T) {
	if to != nil {
		*value = *to
	}
}

// Adjust asks the leader to change the limits of a move. It fails with [store.ErrNoJob].
func Adjust(ctx context.Context, s *store.Store, id string, a Adjustment) error {
	return s.Adjust(ctx, id, func(text string) (string, error) {
		var before Adjustment
		if text != "" {
			if err := json.Unmarshal([]byte(text), &before); err != nil {
				return "", fmt.Errorf("read the limits that move %s was to get: %w", id, err)
			}
		}
		next, err := json.Marshal(a.after(before))
		return string(next), err
	})
}

// passAdjustment changes the limits of a move as somebody has asked for, if anybody has.
func (v *Mover) passAdjustment(ctx context.Context, r *run, said store.Wish) {
	if said.Text == "" {
		return
	}
	var a Adjustment
	if err := json.Unmarshal([]byte(said.Text), &a); err != nil {
		v.config.Logger.Error("the limits that a move is to get cannot be read", "move", r.id, "error", err)
	} else if err := r.save(ctx, func(m *Move) { m.Options.Limits = a.Apply(m.Options.Limits) }); err != nil {
		return // or at the next look
	}
	_ = v.config.Store.ForgetAdjustment(ctx, r.id, said.Revision) // or it is done again
}

// Reason is what something is slowed down by.
type Reason string

// The reasons.
const (
	ByLag  Reason = "lag"
	ByWAL  Reason = "wal"
	ByLoad Reason = "load"
	ByRate Reason = "rate"
)

// pressure is how much speaks against going on. From 1 on it goes slower, and not at all if it stops.
type pressure struct {
	much  float64
	stops bool
	by    Reason
	why   string // for people
}

// over says whether it weighs more than another.
func (p pressure) over(other pressure) bool {
	if p.stops != other.stops {
		return p.stops
	}
	return p.much > other.much
}

const (
	// slowest is the least share of its time that work gets, however much there is to give way to: a copy that never ends keeps a snapshot, and the source its changes, for ever.
	slowest = 0.1
	// cautious is the share that it begins with where others are at work.
	cautious = 0.25
	// less is what becomes of the share when there is too much pressure, and more what comes to it when there is little: quickly down, slowly up.
	less = 0.7
	more = 0.05
	// little is how much pressure lets it go faster. Between that and too much it stays as it is.
	little = 0.8
	// quicker is what comes to the least share when work does not get anywhere.
	quicker = 0.05
)

// pace is the share of its time that work gets: some of it works, the rest rests.
type pace struct {
	share float64
	// least is what it gets at least, if that is more than slowest.
	least float64
}

// follow gives way, or takes back what it gave if it may.
func (p *pace) follow(now pressure, mayGrow bool) {
	switch {
	case now.much > 1 || now.stops:
		p.share = max(p.share*less, p.least, slowest)
	case now.much < little && mayGrow:
		p.share = min(p.share+more, 1)
	}
}

// rest is how long to rest after having worked for a time.
func (p *pace) rest(worked time.Duration) time.Duration {
	return time.Duration(float64(worked) * (1/p.share - 1))
}

const (
	// measureEvery is how often shards are looked at, and restAtMost how long nobody looks whether there is still a reason to rest.
	measureEvery = 200 * time.Millisecond
	restAtMost   = 50 * time.Millisecond
	// sayEvery is how often the reason is put into words anew.
	sayEvery = time.Second
)

// throttle slows work of a move down while others need its shards. Make it with [run.giveWay].
type throttle struct {
	r    *run
	what string // "the copy"
	// carries: it is PostgreSQL that works, and whoever waits for it says why it is slow.
	carries bool
	// endsRests: whoever works looks after each rest whether too much is kept for the move, and nobody else does, so that no rest goes on when it is.
	endsRests bool
	gauges    [2]*gauge
	end       context.CancelFunc
	ended     sync.WaitGroup
	looked    chan struct{} // closed after the first look
	// shutting is held while what PostgreSQL does has to wait.
	shutting sync.Mutex

	mu     sync.Mutex // guards what follows
	pace   pace
	now    pressure
	hurry  bool
	text   string
	textAt time.Time
	slot   keeper // the move's own
	aged   float64
	// paced: work has rested for the rate that it may have, since the last look. How little that leaves to give way to says nothing of what all of the work would take.
	paced bool
}

// giveWay begins to look at the shards for work that writes to one of them.
func (r *run) giveWay(ctx context.Context, now *topology.Map, what, writes string) *throttle {
	return r.begin(ctx, now, &throttle{what: what}, writes)
}

func (r *run) begin(ctx context.Context, now *topology.Map, t *throttle, writes string) *throttle {
	t.r, t.pace, t.looked = r, pace{share: 1}, make(chan struct{})
	for i, side := range r.state().sides() {
		t.gauges[i] = &gauge{r: r, now: now, shard: side, writes: side == writes, reads: side != writes && t.carries}
	}
	ctx, t.end = context.WithCancel(ctx)
	t.ended.Go(func() { t.watch(ctx) })
	return t
}

// close ends it.
func (t *throttle) close() {
	t.end()
	t.ended.Wait()
	for _, g := range t.gauges {
		g.close()
	}
}

func (t *throttle) watch(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	t.look(ctx)
	t.begin()
	close(t.looked)
	for {
		select {
		case <-tick.C:
			t.look(ctx)
		case <-ctx.Done():
			return
		}
		if text := t.waiting(); text != "" && !t.carries && !t.r.state().Paused {
			t.r.say(ctx, text, nil)
		}
	}
}

// begin is careful where others are at work, after the first look.
func (t *throttle) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.r.state().Options.Off && (t.gauges[0].crowd >= crowded || t.gauges[1].crowd >= crowded) {
		t.pace.share = cautious
	}
}

// look measures both shards, and draws conclusions.
func (t *throttle) look(ctx context.Context) {
	limits := t.r.state().Options.Limits
	var found [2]pressure
	var looking sync.WaitGroup
	for i, g := range t.gauges {
		looking.Go(func() { found[i] = g.look(ctx, limits) })
	}
	looking.Wait()
	worst := found[0]
	if found[1].over(worst) {
		worst = found[1]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conclude(worst, t.gauges[0].hurry || t.gauges[1].hurry)
	if limits.Off {
		t.pace.share = 1
	}
	t.aged = max(t.gauges[0].aged, t.gauges[1].aged)
	for _, g := range t.gauges {
		if g.slot.own {
			t.slot = g.slot
		}
	}
}

// conclude follows what was found.
func (t *throttle) conclude(worst pressure, hurry bool) {
	t.now, t.hurry = worst, hurry
	t.pace.follow(worst, !t.paced)
	t.paced = false
	if time.Since(t.textAt) < sayEvery {
		return
	}
	t.text, t.textAt = "", time.Now()
	switch {
	case worst.stops:
		t.text = t.what + " waits: " + worst.why
	case hurry && worst.by == ByLoad:
	case t.pace.share < 1 && worst.why != "":
		t.text = fmt.Sprintf("%s is slowed down to %.0f %%: %s", t.what, 100*t.pace.share, worst.why)
	}
}

// quicken changes the least share of the time that work gets.
func (t *throttle) quicken(by float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace.least = min(max(t.pace.least+by, slowest), 1)
	t.pace.share = max(t.pace.share, t.pace.least)
}

// waiting says why it is slow; empty if it is not.
func (t *throttle) waiting() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// kept is what the move's own slot keeps.
func (t *throttle) kept() keeper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slot
}

// isTooOld says whether a snapshot of the move keeps more from vacuum than it may.
func (t *throttle) isTooOld() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.aged > 1
}

// keepsTooMuch says whether the move's own slot is lost, or keeps more than it may.
func (t *throttle) keepsTooMuch() bool {
	slot := t.kept()
	return slot.own && (slot.lost || slot.kept > t.r.state().Limits().MaxWAL)
}

// due is how long to rest after having worked for a time, for what reason, and whether it may not go on at all.
func (t *throttle) due(worked time.Duration) (rest time.Duration, by Reason, stops bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.stops {
		return 0, t.now.by, true
	}
	if t.hurry && t.now.by != ByLag && t.now.by != ByWAL { // what is not copied soon is copied in vain
		return 0, "", false
	}
	by = t.now.by
	if by == "" {
		by = ByLoad // it was a moment ago
	}
	return t.pace.rest(worked), by, false
}

// rest gives way after work that took some time and passed on some bytes: by as much as is due, for as long as there is a reason.
func (t *throttle) rest(ctx context.Context, worked time.Duration, bytes int64, streams int) {
	began := time.Now()
	select {
	case <-t.looked: // the first work may be done before that, and no more
	case <-ctx.Done():
		return
	}
	for {
		limits := t.r.state().Options.Limits
		least, by, stops := t.due(worked)
		if limits.MaxRate > 0 && streams > 0 {
			if paced := time.Duration(float64(bytes)*float64(streams)/float64(limits.MaxRate)*float64(time.Second)) - worked; paced > least {
				least, by = paced, ByRate
				t.restsForRate()
			}
		}
		left := least - time.Since(began)
		if stops {
			left = restAtMost
		}
		if t.endsRests && (t.isTooOld() || t.keepsTooMuch()) {
			return
		}
		if left <= 0 {
			return
		}
		started := time.Now()
		select {
		case <-time.After(min(left, restAtMost)):
		case <-ctx.Done():
			return
		}
		t.r.mover.config.Metrics.Throttled(string(by), time.Since(started))
	}
}

// restsForRate notes that.
func (t *throttle) restsForRate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paced = true
}

// pacer slows one stream of bytes down.
type pacer struct {
	t       *throttle
	streams int
	since   time.Time
	bytes   int64
}

// slice is how many bytes pass before a stream rests: so few that nobody waits long behind them.
const slice = 128 << 10

// pass lets bytes pass, and rests when there were enough.
func (p *pacer) pass(ctx context.Context, size int) {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if p.bytes += int64(size); p.bytes >= slice {
		p.rest(ctx)
	}
}

// rest rests for what has passed since the last time.
func (p *pacer) rest(ctx context.Context) {
	if p.since.IsZero() {
		return
	}
	p.t.rest(ctx, time.Since(p.since), p.bytes, p.streams)
	p.since, p.bytes = time.Now(), 0
}
