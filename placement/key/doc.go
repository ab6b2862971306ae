// Package key knows shard keys: their types, their hash, and their order, each exactly as PostgreSQL has it.
//
// A key column has a [Type]. Its values hash to 64 bits with PostgreSQL's own extended hash functions and a seed, so a
// server and this package always agree on where a row belongs: [Type.SQL] is the expression, the Hash functions ([HashInt],
// [HashText], [HashUUID], [HashDate], [HashTimestamptz], [HashBytea]) are its twin, bit for bit. A composite key chains:
// the hash of one column is the seed of the next.
//
//	h := key.HashInt(42, seed)            // one bigint column
//	h = key.HashText("eu", h)             // a second column: (42, 'eu')
//
// The integer types share one expression that mixes the upper half of the value first. PostgreSQL's plain function folds
// a bigint to 32 bits before the seed comes in, so that 1 and 4294967296 would share a hash under every seed and no split
// of a range could ever part them.
//
// For keyspaces that are ordered by the raw key there are the Append functions: encodings whose byte order is
// PostgreSQL's order of the values (text in C order), column after column.
//
// [Type.Parse] reads a value from its text form. It is for tools and files; a router that has to honour a session's
// settings, a column's typmod or another client encoding converts first.
//
// Nothing here allocates on the way to a hash, nothing keeps state, all of it is safe for concurrent use. The golden
// vectors under testdata were made by a PostgreSQL server; generate.sh makes them again.
package key
