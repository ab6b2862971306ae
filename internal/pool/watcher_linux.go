package pool

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher notices when servers close connections. Every backend's socket is registered once, with an epoll instance of the
// watcher's own, so that neither lending nor the runtime's own poller has to look.
type watcher struct {
	file *os.File // the epoll instance; the runtime waits for it as for any file
	poll syscall.RawConn

	mu sync.Mutex
	// backends has them by the number that they were registered under. Numbers are not used again, as file descriptors are,
	// so an event that was on its way when its backend was closed finds nobody.
	backends map[uint64]*Backend
	last     uint64
}

func newWatcher() (*watcher, error) {
	descriptor, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	if err := unix.SetNonblock(descriptor, true); err != nil { // or the runtime would not wait for it
		_ = unix.Close(descriptor)
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	file := os.NewFile(uintptr(descriptor), "epoll")
	poll, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	return &watcher{file: file, poll: poll, backends: map[uint64]*Backend{}}, nil
}

// add registers a backend, before anybody else knows it.
func (w *watcher) add(b *Backend) error {
	w.mu.Lock()
	w.last++
	number := w.last
	w.backends[number] = b
	w.mu.Unlock()
	b.watched = number
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLET, Fd: int32(number), Pad: int32(number >> 32)}
	if err := w.control(b, unix.EPOLL_CTL_ADD, &event); err != nil {
		w.forget(number)
		b.watched = 0
		return fmt.Errorf("watch a connection: %w", err)
	}
	return nil
}

// remove must be called before the backend's socket is closed.
func (w *watcher) remove(b *Backend) {
	w.forget(b.watched)
	_ = w.control(b, unix.EPOLL_CTL_DEL, nil) // closing the socket removes it too
}

func (w *watcher) forget(number uint64) {
	w.mu.Lock()
	delete(w.backends, number)
	w.mu.Unlock()
}

// control changes a registration while neither descriptor can be closed and used again.
func (w *watcher) control(b *Backend, operation int, event *unix.EpollEvent) error {
	socket, err := b.socket.SyscallConn()
	if err != nil {
		return err
	}
	var socketGone, refused error
	pollGone := w.poll.Control(func(poll uintptr) {
		socketGone = socket.Control(func(descriptor uintptr) {
			refused = unix.EpollCtl(int(poll), operation, int(descriptor), event)
		})
	})
	return cmp.Or(pollGone, socketGone, refused)
}

// run marks backends whose server has hung up, and has idle ones closed, until close.
func (w *watcher) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		ready := 0
		err := w.poll.Read(func(poll uintptr) bool {
			ready = wait(int(poll), events)
			return ready > 0
		})
		if err != nil {
			return // it was closed
		}
		for _, event := range events[:ready] {
			w.report(uint64(uint32(event.Fd)) | uint64(uint32(event.Pad))<<32)
		}
	}
}

// wait returns how many events there are without waiting for any.
func wait(poll int, events []unix.EpollEvent) int {
	for {
		ready, err := unix.EpollWait(poll, events, 0)
		if err != unix.EINTR {
			return max(ready, 0)
		}
	}
}

func (w *watcher) report(number uint64) {
	w.mu.Lock()
	b := w.backends[number]
	w.mu.Unlock()
	if b != nil {
		b.markDead()
		b.shard.died(b)
	}
}

// close ends run.
func (w *watcher) close() { _ = w.file.Close() }
