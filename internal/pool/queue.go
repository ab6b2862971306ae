package pool

import (
	"sync"
	"time"
)

// A waiter stands in two queues: its shard's and its role's.
const (
	ofShard = iota
	ofRole
	lanes
)

// waiter waits for a backend. All but ready and timer is guarded by the shard's mutex.
type waiter struct {
	identity *Identity
	role     *role
	since    time.Time
	queued   bool
	links    [lanes]struct{ previous, next *waiter }
	ready    chan outcome // takes the one outcome without blocking
	timer    *time.Timer
}

// outcome is what a waiter gets.
type outcome struct {
	backend *Backend
	err     error
}

// waiters are used again: at a pool's limit everyone waits, and waiting should not make garbage.
var waiters = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &waiter{ready: make(chan outcome, 1), timer: timer}
}}

// recycle may be called once the waiter has left the queues and its outcome, if there was one, was taken.
func (w *waiter) recycle() {
	w.timer.Stop()
	w.identity, w.role = nil, nil
	waiters.Put(w)
}

// queue is first in, first out, and lets go of whom it is told.
type queue struct {
	lane       int
	head, tail *waiter
	length     int
}

func (q *queue) push(w *waiter) {
	link := &w.links[q.lane]
	link.previous, link.next = q.tail, nil
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.links[q.lane].next = w
	}
	q.tail = w
	q.length++
}

func (q *queue) remove(w *waiter) {
	link := &w.links[q.lane]
	if link.previous == nil {
		q.head = link.next
	} else {
		link.previous.links[q.lane].next = link.next
	}
	if link.next == nil {
		q.tail = link.previous
	} else {
		link.next.links[q.lane].previous = link.previous
	}
	link.previous, link.next = nil, nil
	q.length--
}

func (q *queue) after(w *waiter) *waiter { return w.links[q.lane].next }
