package auth

import (
	"os"
	"sync"
	"time"
)

// lookInterval is how often files are looked at, at most.
const lookInterval = time.Second

// reloaded is a value that is read from files, and read anew when they have changed. If that fails the old value stays,
// and the failure is told once for every change.
type reloaded[T any] struct {
	paths []string
	read  func() (T, error)
	warn  func(error)
	now   func() time.Time

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo // as they were before value was read; nil for a file that was missing
	looked time.Time
}

// newReloaded reads for the first time, which must succeed.
func newReloaded[T any](paths []string, read func() (T, error), warn func(error)) (*reloaded[T], error) {
	r := &reloaded[T]{paths: paths, read: read, warn: warn, now: time.Now}
	r.looked, r.seen = r.now(), look(paths)
	var err error
	r.value, err = read()
	return r, err
}

// current returns the value.
func (r *reloaded[T]) current() T {
	value, err := r.refresh()
	if err != nil && r.warn != nil {
		r.warn(err)
	}
	return value
}

func (r *reloaded[T]) refresh() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if now.Sub(r.looked) < lookInterval {
		return r.value, nil
	}
	r.looked = now
	// Looked at before they are read: what is written meanwhile shows as a change the next time.
	found := look(r.paths)
	if same(r.seen, found) {
		return r.value, nil
	}
	r.seen = found
	value, err := r.read()
	if err != nil {
		return r.value, err
	}
	r.value = value
	return value, nil
}

func look(paths []string) []os.FileInfo {
	found := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		if info, err := os.Stat(path); err == nil {
			found[i] = info
		}
	}
	return found
}

func same(a, b []os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime())) {
			return false
		}
	}
	return true
}
