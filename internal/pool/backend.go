package pool

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Backend is a connection to a shard's primary, logged in. It belongs to its borrower until [Backend.Release] or
// [Backend.Retire], one of which must be called, once.
type Backend struct {
	// State is what the borrower wants to remember of the backend, for whoever borrows it next; nil after the login.
	State any
	// Affinity is what [Pools.Acquire] compares with what it is asked for. The borrower sets it.
	Affinity uint64

	shard      *shardPool
	role       *role
	shardName  string
	generation int
	conn       net.Conn     // for the conversation: the socket, or TLS over it
	socket     *net.TCPConn // what lies below
	frontend   *pgproto3.Frontend
	secured    *tls.Config // of the login, for further connections; nil without TLS
	pid        uint32
	cancelKey  []byte
	parameters map[string]string
	opened     time.Time
	expires    time.Time
	watched    uint64 // its number with the watcher; 0 means that it is looked at instead
	dead       atomic.Bool

	// Guarded by the shard's mutex.
	standing     standing
	expired      bool
	restingSince time.Time
}

// Shard returns the shard's number.
func (b *Backend) Shard() int { return b.shard.number }

// ShardName returns the shard's name.
func (b *Backend) ShardName() string { return b.shardName }

// PID returns the number of the server's process.
func (b *Backend) PID() uint32 { return b.pid }

// Parameters returns what the server reported at the login, such as server_version. It must not be changed.
func (b *Backend) Parameters() map[string]string { return b.parameters }

// Conn returns the connection to write to and to read from. Nothing was read from it beyond the end of the login, or of the
// last Exec. Deadlines that are set on it must be taken away again before Release.
func (b *Backend) Conn() net.Conn { return b.conn }

// Alive is false once the server has closed its side. What it sent before can still be read.
func (b *Backend) Alive() bool {
	if b.dead.Load() {
		return false
	}
	if b.watched == 0 && hungUp(b.socket) {
		b.dead.Store(true)
		return false
	}
	return true
}

// Release gives back a backend that is clean and idle: no transaction is open and nothing is left to be read.
func (b *Backend) Release() {
	b.shard.mu.Lock()
	b.shard.giveBack(b)
	b.shard.mu.Unlock()
}

// Retire closes a backend that nobody should use any more, for a reason that is logged.
func (b *Backend) Retire(reason string) {
	b.shard.mu.Lock()
	if b.standing == lent {
		b.shard.close(b, reason)
	}
	b.shard.mu.Unlock()
}

// markDead lets the pool close the backend instead of lending it again.
func (b *Backend) markDead() { b.dead.Store(true) }

// farewell is how long a server may take to hang up after it was told goodbye. It is longer only if a statement still runs.
const farewell = time.Second

// mostLeft is how much is read of what a server still had to say; if there is more, a long answer was abandoned.
const mostLeft = 64 << 10

// hangUp says goodbye, waits until the server has hung up too, so that it really has one connection less, and closes.
func (b *Backend) hangUp() {
	_ = b.conn.SetDeadline(time.Now().Add(farewell))
	goodbye, _ := (&pgproto3.Terminate{}).Encode(nil)
	_, _ = b.conn.Write(goodbye) // one that has failed may still be about to hang up
	_, _ = io.CopyN(io.Discard, b.conn, mostLeft)
	b.disconnect()
}

// disconnect closes at once.
func (b *Backend) disconnect() {
	b.markDead()
	if b.watched != 0 {
		b.shard.pools.watch.remove(b)
	}
	_ = b.conn.Close()
}

// Cancel asks the server to cancel what the backend does, over a connection of its own, and returns when the server has
// taken note. The borrower must wait for that before it gives the backend back, or the next one's statement may be hit.
func (b *Backend) Cancel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.shard.pools.config.ConnectTimeout)
	defer cancel()
	return requestCancel(ctx, b.socket.RemoteAddr().String(), b.secured, b.pid, b.cancelKey)
}
