package rebalance

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
)

// span is a part of a keyspace's order. Bounds of the hash are written as eight bytes, the highest first, and those of raw keys in their ordered
// encoding: both compare as they are meant to, and in both nothing is the beginning or, as Hi, the end.
type span = placement.KeyRange

func hashBound(h uint64) string {
	if h == 0 {
		return ""
	}
	return string(binary.BigEndian.AppendUint64(nil, h))
}

func hashOfBound(bound string) uint64 {
	if bound == "" {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(bound))
}

func spanOf(k *topology.Keyspace, r topology.Range) span {
	if k.Strategy() == topology.ByRange {
		return r.Key
	}
	return span{Lo: hashBound(r.Hash.Lo), Hi: hashBound(r.Hash.Hi)}
}

// encodeBound reads a point as a bound of the keyspace's order. It may name only the first values of a raw key.
func encodeBound(k *topology.Keyspace, p topology.Point) (string, error) {
	if k.Strategy() != topology.ByRange {
		h, err := parseHash(p)
		return hashBound(h), err
	}
	types := k.KeyTypes()
	if len(p) > len(types) {
		return "", fmt.Errorf("%d values for a key of %d columns", len(p), len(types))
	}
	var encoded []byte
	for i, text := range p {
		value, err := types[i].Parse(text)
		if err != nil {
			return "", err
		}
		encoded = value.AppendOrdered(encoded)
	}
	return string(encoded), nil
}

func parseHash(p topology.Point) (uint64, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(p) == 1 && len(p[0]) == 16 && !strings.ContainsAny(p[0], "+-_") {
		if h, err := strconv.ParseUint(p[0], 16, 64); err == nil {
			return h, nil
		}
	}
	return 0, fmt.Errorf("%s is not a point of the hash space: write 16 hexadecimal digits", p)
}

// pointOf prints a bound of the keyspace's order.
func pointOf(k *topology.Keyspace, bound string) topology.Point {
	switch {
	case bound == "":
		return nil
	case k.Strategy() == topology.ByRange:
		return keyOf(k, bound)
	default:
		return topology.Point{fmt.Sprintf("%016x", hashOfBound(bound))}
	}
}

// keyOf prints a key in its ordered encoding, which comes from a map or from encodeBound.
func keyOf(k *topology.Keyspace, encoded string) topology.Point {
	point, err := k.Texts(encoded)
	if err != nil {
		panic("rebalance: " + err.Error())
	}
	return point
}

// hashWidth is how many hashes a span of the hash space has.
func hashWidth(s span) float64 {
	if s == (span{}) {
		return math.Ldexp(1, 64)
	}
	return float64(hashOfBound(s.Hi) - hashOfBound(s.Lo)) // wraps to the right width at the end of the space
}

// overlap says whether two spans have a point in common.
func overlap(a, b span) bool { return (b.Hi == "" || a.Lo < b.Hi) && (a.Hi == "" || b.Lo < a.Hi) }

// inside says whether a range could be cut at this bound.
func inside(s span, bound string) bool { return bound > s.Lo && (s.Hi == "" || bound < s.Hi) }
