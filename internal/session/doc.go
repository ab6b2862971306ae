// Package session is one client's connection to the router: it speaks PostgreSQL's protocol with the client, plans and routes
// what the client sends, borrows backends from the pools and relays what they answer.
//
// A unit of work is a simple query, or the messages of the extended protocol up to Sync or Flush. The session turns each
// message into an operation ([op]); at the end of the unit it attaches a backend, renders the operations for that backend
// (which may lack a prepared statement that the client counts on, or a BEGIN that was put off), writes them in one piece and
// relays the replies in whole buffers. Rows are looked into only where those of several shards
// are put in order or given to a statement that finishes the work. One goroutine does all of it.
//
// A transaction has one backend on each shard that it uses. BEGIN is answered by the session and reaches a shard with the first
// statement that needs it. When a transaction is over its backends go back to the pools, unless
// something ties the client to it: a temporary table, LISTEN, a session's advisory lock, a cursor WITH HOLD; then it is
// pinned, with the reason. Settings are the session's own: a backend that has others is brought to them before it is used,
// and one that has the same costs nothing.
//
// What it guarantees: a statement runs on the shard that the plan names, or is refused; a statement that may have run is
// never sent again; nothing that one client did is seen by the next one on the same backend.
//
// It does not parse SQL (packages sqltext, facts), decide where a statement runs (plan, binding), hold connections (pool) or
// know users (auth). A [Server] is safe for concurrent use; a session belongs to its goroutine, but for being cancelled,
// closed and looked at. Start reading at session.go, then unit.go and relay.go.
package session
