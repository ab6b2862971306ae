package session

import "sync"

// guard is the lock of what others may look at or do. The session itself takes it with Lock, which also waits for a cancellation
// that is under way: so no backend is given back, and to somebody else, while it is being cancelled, however long its server
// takes. Others look, and do not wait for that.
type guard struct {
	content sync.Mutex
	// stay is held by who takes the lock, and by a cancellation to its end; always before content.
	stay sync.Mutex
	// cancelling is held by the one cancellation that there may be.
	cancelling sync.Mutex
	held       bool // by the session itself, which alone asks
}

// Lock is for the session itself.
func (g *guard) Lock() {
	g.stay.Lock()
	g.content.Lock()
	g.held = true
}

// Unlock ends what Lock began.
func (g *guard) Unlock() {
	g.held = false
	g.content.Unlock()
	g.stay.Unlock()
}

// giveUp unlocks if the session panicked while it had the lock, so that nobody waits for ever.
func (g *guard) giveUp() {
	if g.held {
		g.Unlock()
	}
}

// look calls a function that reads and does not wait.
func (g *guard) look(read func()) {
	g.content.Lock()
	defer g.content.Unlock()
	read()
}

// cancel looks for something to cancel and does that, while the session keeps what it has. It does nothing if somebody else is
// cancelling already.
func (g *guard) cancel(find func() (do func())) {
	if !g.cancelling.TryLock() {
		return
	}
	g.stay.Lock()
	defer g.stay.Unlock()
	defer g.cancelling.Unlock() // before the session goes on: what it does then is for others to cancel
	var do func()
	g.look(func() { do = find() })
	if do != nil {
		do()
	}
}
