// Package handover lets a new process take the listening sockets over from an old one, so that a router is replaced
// without one refused connection.
//
// # What it does
//
// The old process calls [Serve], the new one [Take]. Between them is a unix socket, at a path that both know.
//
// # What it does not do
//
// It hands over sockets that listen, not connections: those that the old process has accepted stay with it until their
// clients leave, and draining them is the caller's business, as is starting the new process.
//
// # The protocol
//
//	new                                     old
//	connects, {"version":1}         →
//	                                ←       {"version":1,"addresses":[…]} with the sockets (SCM_RIGHTS)
//	starts to accept
//	{"state":"accepting"}           →
//	                                        frees the path
//	                                ←       {"state":"released"}
//	may serve the path itself               stops accepting, drains
//
// A message is a line of JSON. A socket that two processes hold has one queue: either may accept from it, what one leaves is
// there for the other, and it listens until both have closed it. That is why there is no moment at which a client is refused,
// and why nothing has to happen at the same time on both sides.
//
// Whoever dies, somebody listens:
//   - The new process dies, gives up or falls silent before it says that it accepts: the old one has changed nothing, goes
//     on, and answers the next one that asks. What the new one had accepted by then is lost with it.
//   - The new process dies after that, before it heard the answer: if the old one notices as it answers, it goes on too.
//   - The old process dies before it answered: confirm fails, and the new one has the sockets. They were offered
//     to it, so it may keep them. It may also happen that both accept, as when the old one has lost its patience: that is
//     two routers at one address, and both are right.
//
// Why not SO_REUSEPORT: the kernel deals connections out to the sockets as they arrive, and those that wait in the queue of
// the old one are reset when it is closed.
//
// # Who may ask
//
// The socket has mode 0600 before anybody can connect to it. A file that a dead process left there is replaced; one that
// is not a socket, or at which somebody still listens, is not. Two processes that begin to serve one path in the same
// moment are not told apart: the later one has it. Systems allow such a path about 100 bytes, of which some are needed for
// its making: stay below 80.
//
// # Concurrency
//
// No goroutine outlives a call. Systems that are not a Unix have no hand-over: both calls fail there.
//
// # Where to start reading
//
// serve.go is the old process, take.go the new one.
package handover

import "errors"

// ErrNobody is what [Take] returns if nobody offers sockets at the path: the caller listens for itself.
var ErrNobody = errors.New("nobody hands sockets over")
