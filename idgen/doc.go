// Package idgen makes row identifiers for sharded tables: Snowflake-style ids that tell where their row is, UUIDs of
// version 7, and numbers from blocks of a sequence.
//
// # What it does
//
//   - [Generator] makes positive 63-bit ids of four parts: time, logical slot, generator, sequence. The slot is the top
//     bits of the hash of the row's shard key. It does not name a shard, so it stays true when the row moves to another
//     one, and a statement that knows only the id can be routed by it ([Layout.SlotOfID], [Layout.Hashes]).
//   - [Layout.SQL] gives the same ids to PostgreSQL, as functions, so that an id made by a trigger and one made in Go
//     never collide.
//   - [UUIDs] makes UUIDs of version 7 (RFC 9562) that increase within the process.
//   - [Blocks] hands out numbers from blocks that a [Source], usually a PostgreSQL sequence, reserves: for columns that
//     must stay small integers.
//
// # What it does not do
//
// It hands out no generator numbers: whoever runs the processes leases each number to one process at a time. It opens no
// connection: SQL is given as text and a [Source] is an interface. It does not hash keys and knows no shards: the caller
// brings the hash and looks the slot up in its map. An id tells the slot of its key and not the key itself: where the
// ranges of a map are cut finer than slots, or single keys are pinned elsewhere, one slot may mean several shards.
//
// # Guarantees
//
//   - Ids of one layout are unique as long as a generator number belongs to one process at a time and no process starts
//     below the times its number was used for before ([Config.NotBefore]). For ids made in databases there is a condition
//     on the move of a slot; DESIGN.md has every case with its argument.
//   - Ids are strictly increasing per generator and slot. Across slots and generators they are ordered by millisecond, as
//     well as the clocks agree; the times of ids made in databases are within 10 ms of the clock's.
//   - A clock that goes backwards never leads to a duplicate or to a smaller id: [Generator.Next] waits a bounded time,
//     then fails with a [ClockError]. After the last millisecond of a layout it fails with an [ExhaustedError]; ids never wrap.
//   - Holes are normal everywhere: a number that was handed out and not used is never handed out again.
//
// # Concurrency
//
// Everything here is safe for concurrent use. The fast paths of Generator, UUIDs and Blocks take no lock. Only Blocks has a
// goroutine, while it fetches a block; [Blocks.Close] waits for it.
//
// # Where to start reading
//
// layout.go says what an id is, generator.go how one is made, sql/ids.sql is the database's side. blocks.go and uuid.go
// stand alone.
package idgen
