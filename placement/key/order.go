package key

// The Append functions build a key for a keyspace that is ordered by the raw value: comparing two such encodings byte by
// byte gives PostgreSQL's order of the values, first column first. An encoding of the first columns alone is a prefix and
// sorts before every key that continues it, so a range of a composite keyspace can begin at a prefix.

// AppendInt appends a bigint, integer or smallint.
func AppendInt(dst []byte, k int64) []byte {
	u := uint64(k) ^ 1<<63
	return append(dst, byte(u>>56), byte(u>>48), byte(u>>40), byte(u>>32), byte(u>>24), byte(u>>16), byte(u>>8), byte(u))
}

// AppendText appends a text or varchar in C order. PostgreSQL's text has no NUL, so a NUL ends it: a shorter text sorts
// before its continuations whatever column follows.
func AppendText(dst []byte, k string) []byte {
	return append(append(dst, k...), 0)
}

// AppendUUID appends a uuid.
func AppendUUID(dst []byte, k [16]byte) []byte {
	return append(dst, k[:]...)
}

// AppendDate appends a date, given as days since 2000-01-01.
func AppendDate(dst []byte, days int32) []byte {
	return AppendInt(dst, int64(days))
}

// AppendTimestamptz appends a timestamptz, given as microseconds since 2000-01-01 00:00:00 UTC.
func AppendTimestamptz(dst []byte, micros int64) []byte {
	return AppendInt(dst, micros)
}

// AppendBytea appends a bytea. A zero byte inside is escaped so that the end, two zero bytes, sorts before it.
func AppendBytea(dst, k []byte) []byte {
	for _, b := range k {
		dst = append(dst, b)
		if b == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 0)
}
