package wire

import "encoding/binary"

// Text is a string in either form, so that neither what was decoded nor what is written in the program needs a copy.
type Text interface{ ~string | ~[]byte }

// begin appends a header; finish fills in its length.
func begin(dst []byte, kind byte) (extended []byte, start int) {
	return append(dst, kind, 0, 0, 0, 0), len(dst) + 1
}

// finish fills in the length that stands at start and counts from there.
func finish(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

func appendEmpty(dst []byte, kind byte) []byte { return append(dst, kind, 0, 0, 0, lengthSize) }

func appendUint16(dst []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(dst, v) }

func appendUint32(dst []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(dst, v) }

func appendString[T Text](dst []byte, s T) []byte { return append(append(dst, s...), 0) }

// appendValue appends a value with its length before it; nil is NULL.
func appendValue(dst, value []byte) []byte {
	if value == nil {
		return append(dst, 0xff, 0xff, 0xff, 0xff)
	}
	return append(appendUint32(dst, uint32(len(value))), value...)
}

func appendValues(dst []byte, values [][]byte) []byte {
	dst = appendUint16(dst, uint16(len(values)))
	for _, v := range values {
		dst = appendValue(dst, v)
	}
	return dst
}

func appendFormats(dst []byte, formats []int16) []byte {
	dst = appendUint16(dst, uint16(len(formats)))
	for _, f := range formats {
		dst = appendUint16(dst, uint16(f))
	}
	return dst
}

func appendOIDs(dst []byte, oids []uint32) []byte {
	dst = appendUint16(dst, uint16(len(oids)))
	for _, oid := range oids {
		dst = appendUint32(dst, oid)
	}
	return dst
}

func appendStringMessage[T Text](dst []byte, kind byte, s T) []byte {
	dst, start := begin(dst, kind)
	return finish(appendString(dst, s), start)
}

func appendBytesMessage(dst []byte, kind byte, data []byte) []byte {
	dst, start := begin(dst, kind)
	return finish(append(dst, data...), start)
}
