// Package topology is the shard map as a value: which shards there are, which keyspaces, who owns which range and which
// pinned key, what kind each table is. It is the only definition of these nouns.
//
// A [Map] is immutable and valid: it comes from [New], [Map.Next], [Decode] or [Manifest.Assemble], all of which check
// everything, so that whoever holds one need not. A new version shares with the one before it what did not change.
// Looking up a table and a key ([Map.Table], [Keyspace.Locate]) takes nanoseconds and allocates nothing.
//
// A map has two forms outside of memory. A [Document] is one JSON text for people: to read, to edit, to keep as a backup.
// For a store that limits the size of a request the map is cut into pieces: each holds a run of shards, tables, ranges or
// pins, and is named by a digest of its content; a small [Manifest] lists them. Where a run ends is decided by the entries
// themselves, not by their position, so a change in one place makes one new piece and leaves the names of all others as
// they were: of a map with a million pins, changing one writes about a hundred kilobytes.
//
// Both forms say which schema they are written in and which is the oldest reader that understands them. Fields that
// a reader does not know are skipped when the writer was newer; a map written by a newer program can be followed, but not
// changed, by an older one, because it would drop what it does not know.
//
// The package opens no sockets and stores nothing: package store does. It decides no routing beyond "who owns this key":
// the planner does. It never holds a password, only where to find one. All values are safe for concurrent use.
//
// Start reading at map.go, then keyspace.go, change.go and pieces.go.
package topology
