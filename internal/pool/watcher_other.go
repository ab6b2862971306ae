//go:build !linux

package pool

import "errors"

// watcher is not there on this system: backends are looked at when they are lent.
type watcher struct{}

func newWatcher() (*watcher, error) { return nil, errors.ErrUnsupported }

func (*watcher) add(*Backend) error { return errors.ErrUnsupported }

func (*watcher) remove(*Backend) {}

func (*watcher) run() {}

func (*watcher) close() {}
