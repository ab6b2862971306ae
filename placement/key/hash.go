package key

// HashInt hashes a bigint, integer or smallint: hashint8extended(k, hashint8extended(k >> 32, seed)).
func HashInt(k int64, seed uint64) uint64 {
	return int8Extended(k, int8Extended(k>>32, seed))
}

// HashText hashes a text or varchar in UTF-8 under a deterministic collation: hashtextextended(k, seed).
func HashText(k string, seed uint64) uint64 {
	return bytesExtended(k, seed)
}

// HashTextBytes is [HashText] for a value that is held as bytes.
func HashTextBytes(k []byte, seed uint64) uint64 {
	return bytesExtended(k, seed)
}

// HashUUID hashes a uuid: uuid_hash_extended(k, seed).
func HashUUID(k [16]byte, seed uint64) uint64 {
	return uuidExtended(&k, seed)
}

// HashDate hashes a date, given as days since 2000-01-01: hash_array_extended(ARRAY[k], seed).
// The least and the greatest int32 are -infinity and infinity.
func HashDate(days int32, seed uint64) uint64 {
	return arrayOfOne(uint32Extended(uint32(days), seed))
}

// HashTimestamptz hashes a timestamptz, given as microseconds since 2000-01-01 00:00:00 UTC:
// hash_array_extended(ARRAY[k], seed). The least and the greatest int64 are -infinity and infinity.
func HashTimestamptz(micros int64, seed uint64) uint64 {
	return arrayOfOne(int8Extended(micros, seed))
}

// HashBytea hashes a bytea: hash_array_extended(ARRAY[k], seed).
func HashBytea(k []byte, seed uint64) uint64 {
	return arrayOfOne(bytesExtended(k, seed))
}
