package shardmap

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// actor is one shard of Actors: its data, its mailbox and its counters.
type actor[K comparable, V any] struct {
	state   State[K, V]
	mailbox chan *task[K, V]
	// closing is closed when no more functions are accepted, ended when the last
	// has been run.
	closing chan struct{}
	ended   chan struct{}

	// admission makes sure that nobody is still putting something into the
	// mailbox when it is closed: callers enter while closed is false, and
	// closeMailbox waits for those inside.
	admission sync.Mutex
	closed    bool
	inside    sync.WaitGroup
	closeOnce sync.Once

	highWater atomic.Int64
	done      atomic.Uint64
	panicked  atomic.Uint64
	cancelled atomic.Uint64
	blocked   atomic.Int64
	refused   atomic.Uint64
}

func newActor[K comparable, V any](a *Actors[K, V], shard, mailbox int) *actor[K, V] {
	return &actor[K, V]{
		state:   State[K, V]{actors: a, shard: shard, data: make(map[K]V)},
		mailbox: make(chan *task[K, V], mailbox),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
	}
}

// run does what is in the mailbox until it is closed and empty.
func (o *actor[K, V]) run() {
	for t := range o.mailbox {
		o.perform(t)
	}
	close(o.ended)
}

// perform runs one function, unless its caller has given up.
func (o *actor[K, V]) perform(t *task[K, V]) {
	if t.barrier {
		t.finish(nil)
		return
	}
	if !t.move(waiting, running) {
		o.cancelled.Add(1)
		return
	}
	// If nothing else is learnt, the function ended by runtime.Goexit.
	err := ErrExited
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
			o.panicked.Add(1)
		}
		o.done.Add(1)
		t.finish(err)
	}()
	t.fn(&o.state)
	err = nil
}

// enqueue puts a task into the mailbox as soon as there is room.
func (o *actor[K, V]) enqueue(ctx context.Context, t *task[K, V]) error {
	if !o.enter() {
		return ErrClosed
	}
	defer o.inside.Done()
	if o.offer(t) {
		return nil
	}
	o.blocked.Add(1)
	defer o.blocked.Add(-1)
	select {
	case o.mailbox <- t:
		o.recordDepth()
		return nil
	case <-ctx.Done():
		o.refused.Add(1)
		return notRun(ctx)
	case <-o.closing:
		return ErrClosed
	}
}

// tryEnqueue puts a task into the mailbox if there is room now.
func (o *actor[K, V]) tryEnqueue(t *task[K, V]) error {
	if !o.enter() {
		return ErrClosed
	}
	defer o.inside.Done()
	if o.offer(t) {
		return nil
	}
	o.refused.Add(1)
	return ErrMailboxFull
}

// offer puts a task into the mailbox if there is room.
func (o *actor[K, V]) offer(t *task[K, V]) bool {
	select {
	case o.mailbox <- t:
		o.recordDepth()
		return true
	default:
		return false
	}
}

func (o *actor[K, V]) enter() bool {
	o.admission.Lock()
	defer o.admission.Unlock()
	if o.closed {
		return false
	}
	o.inside.Add(1)
	return true
}

func (o *actor[K, V]) recordDepth() {
	depth := int64(len(o.mailbox))
	for {
		highest := o.highWater.Load()
		if depth <= highest || o.highWater.CompareAndSwap(highest, depth) {
			return
		}
	}
}

// stopAccepting turns new callers away and sends those without room home.
func (o *actor[K, V]) stopAccepting() {
	o.admission.Lock()
	defer o.admission.Unlock()
	if !o.closed {
		o.closed = true
		close(o.closing)
	}
}

// closeMailbox lets run come to an end. It comes after stopAccepting.
func (o *actor[K, V]) closeMailbox() {
	o.inside.Wait()
	o.closeOnce.Do(func() { close(o.mailbox) })
}

// waitForEnd waits until the last function has been run.
func (o *actor[K, V]) waitForEnd(ctx context.Context) error {
	select {
	case <-o.ended:
		return nil
	case <-ctx.Done():
		return whyEnded(ctx)
	}
}

func (o *actor[K, V]) stats() MailboxStats {
	return MailboxStats{
		Depth:     len(o.mailbox),
		Capacity:  cap(o.mailbox),
		HighWater: int(o.highWater.Load()),
		Done:      o.done.Load(),
		Panicked:  o.panicked.Load(),
		Cancelled: o.cancelled.Load(),
		Blocked:   int(o.blocked.Load()),
		Refused:   o.refused.Load(),
	}
}

// task is one function on its way through a mailbox.
type task[K comparable, V any] struct {
	fn func(*State[K, V])
	// barrier marks a task without a function, which says that what was queued
	// before it is done.
	barrier bool
	stage   atomic.Int32
	// result is buffered: a caller that gave up does not hold up the shard.
	result chan error
}

// The stages of a task. It leaves waiting once, either way: the shard that runs
// it and the caller that gives up cannot both win.
const (
	waiting int32 = iota
	running
	abandoned
)

func newTask[K comparable, V any](fn func(*State[K, V])) *task[K, V] {
	return &task[K, V]{fn: fn, result: make(chan error, 1)}
}

func newBarrier[K comparable, V any]() *task[K, V] {
	return &task[K, V]{barrier: true, result: make(chan error, 1)}
}

func (t *task[K, V]) move(from, to int32) bool { return t.stage.CompareAndSwap(from, to) }

func (t *task[K, V]) finish(err error) { t.result <- err }

// wait returns when the task is done or the context has ended.
func (t *task[K, V]) wait(ctx context.Context) error {
	select {
	case err := <-t.result:
		return err
	case <-ctx.Done():
	}
	if t.move(waiting, abandoned) {
		return notRun(ctx)
	}
	select {
	case err := <-t.result: // It ended at the same time.
		return err
	default:
		return fmt.Errorf("%w: %w", ErrStarted, whyEnded(ctx))
	}
}

func notRun(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrNotRun, whyEnded(ctx))
}

// whyEnded is the context's error, and its cause if that says more.
func whyEnded(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
