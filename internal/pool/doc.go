// Package pool keeps backends, which are the router's connections to the primaries of shards: it dials, logs in, lends,
// queues, takes back and closes them, for every shard and every role.
//
// It knows nothing of statements, transactions or sessions. Whoever borrows a backend writes and reads bytes on
// [Backend.Conn], gives it back only when it is clean and idle, and keeps what it wants to remember in [Backend.State]. Who
// a client is, package auth finds out; how servers are reached, package shard's Access says.
//
// Guarantees:
//   - A shard never has more backends than its limit, nor all shards more than [Config.Total]. A backend that is being
//     closed counts until the server has hung up, so the server does not see more either; only one that is busy with a
//     statement for longer than a second after the goodbye is not waited for.
//   - Waiting is fair: the first waiter of a shard comes first, whatever its role. At the limit a backend of another role is
//     closed to make room for it. Between shards that share [Config.Total] it is fair over time: a backend serves those of its own
//     shard for a turn before its place goes to somebody who has waited for longer elsewhere, or most of the time would go
//     into logins.
//   - A backend whose server has hung up is not lent. One watcher notices, so lending costs no system call.
//   - A role whose logins the server does not let through is held back alone; what it sets for itself concerns nobody else.
//   - A shard that cannot be reached gets one login attempt at a time, ever more rarely, however many wait for it; those
//     who cannot be served hear so at once.
//   - Passwords are shown by SCRAM alone, never in the clear and never as MD5.
//   - A login belongs to the pool and not to the one who caused it: if that one gives up, the backend goes to the next.
//
// Backends belong to a role by its name. Two sessions of one role share them, however each proved who it is.
//
// All methods of [Pools] are safe for concurrent use. A [Backend] belongs to the one who borrowed it; of its methods only
// Alive and Cancel may be called by others meanwhile.
//
// Start reading at [Pools], then shardPool.offer and shardPool.dispatch, which decide who gets a backend that came back and
// who gets a new one, then login.go for the conversation.
package pool
