// Package localpg runs real PostgreSQL servers on this machine, each in a folder of its own: for `cleave dev`, whose data
// are meant to last, and for tests and benchmarks, whose data are not.
//
// # What it does
//
//   - [Find] looks for PostgreSQL's programs, and says what to install when there are none.
//   - [Start] makes a server's folder, or opens the one that is there, and returns when the server takes connections.
//     [StartAll] does that for many at once, all or none.
//   - [StartReplica] makes a streaming replica of another server; [Server.Promote] makes a primary of it.
//   - [Server.Stop], [Server.StopImmediately] and [Server.Crash] end a server politely, at once, and by surprise;
//     [Server.Restart] brings it back on the same port.
//
// # What it does not do
//
// It installs nothing, upgrades no data from one major version to the next, and does not watch its servers: the owner
// does, through [Server.Exited]. Servers that somebody else runs are not its business. Tests take servers from package
// pgtest, which also cleans up.
//
// # The folder
//
// [Config.Dir] holds the file "lock", held by the process that runs the server; "server.log"; and "data", the folder that
// PostgreSQL knows. Only data belongs to the user that the server runs as: whoever gets that user's rights can do nothing
// to the rest. The data are made under another name beside it and get theirs when they are complete, so a folder named
// data is never half made, and what an interrupted start left behind is cleared away by the next.
//
// # Guarantees
//
//   - Data that were there before the call are never removed, not even by a start that fails.
//   - Nobody is locked out by a crash, and nobody is let in beside a server that is alive: see [InUseError].
//   - A server ends with the process that started it, even if that process is killed: on Linux the kernel sees to it,
//     elsewhere a small shell that waits for the process's end.
//   - What is committed survives [Server.Crash] and the end of the process. With [Config.Fast] it does not survive the end
//     of the machine.
//   - Servers listen on 127.0.0.1 alone, and on no Unix socket: a socket's path may have only some hundred bytes, which
//     folders below a home or a test's name easily exceed, and shards in production are reached over TCP as well.
//
// Without [Config.PasswordFile] everyone on the machine may connect as the superuser, and thereby act as the user that the
// server runs as.
//
// All methods and functions are safe for concurrent use. Start reading at [Start], in server.go.
package localpg
