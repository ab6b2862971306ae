package shard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

// ownership is what a guard must know of a shard's part of a keyspace.
type ownership struct {
	keyspace *topology.Keyspace
	ranges   []topology.Range // those whose rows it takes, in order
	// here and away count the pins that do not go where their range says: to this shard, and away from it.
	here, away int
	// watchful: the shard takes part in a move, so what it takes is about to change, or it has rows that it does not own.
	watchful bool
}

// takerOf returns the shard that takes rows of a range or pin: the owner, or the shard whose copy is about to be the original.
func takerOf(owner *topology.Shard, copies []topology.Copy) *topology.Shard {
	for _, c := range copies {
		if c.State == topology.Opening {
			return c.Shard
		}
	}
	return owner
}

// ownership returns it for a shard of this number.
func (k keyspaceShares) ownership(number int) ownership {
	has := k.shares[number]
	o := ownership{keyspace: k.keyspace}
	for _, r := range has.ranges {
		if takerOf(r.Owner, r.Copies).Number() == number {
			o.ranges = append(o.ranges, r.Range)
		}
		o.watchful = o.watchful || len(r.Copies) > 0
	}
	for _, p := range has.pins {
		o.watchful = o.watchful || p.moving
	}
	for _, e := range has.exceptions {
		if e.here {
			o.here++
		} else {
			o.away++
		}
	}
	return o
}

// condition is an SQL expression, and how many bounds it has.
type condition struct {
	sql    string
	bounds int
}

// belongs returns the condition under which a row with these key columns is in one of the ranges. A null key is in none.
func (o ownership) belongs(columns []string) (condition, error) {
	notNull := "(" + list(columns) + ") IS NOT NULL"
	if o.keyspace.Strategy() == topology.ByRange {
		c, err := o.belongsByKey(columns)
		c.sql = notNull + " AND (" + c.sql + ")"
		return c, err
	}
	hash, err := hashSQL(o.keyspace, columns)
	if err != nil {
		return condition{}, err
	}
	inside, bounds := signedBounds(o.ranges)
	thresholds := make([]string, len(bounds))
	for i, b := range bounds {
		thresholds[i] = strconv.FormatInt(b, 10)
	}
	c := bucketed(hash, inside, len(bounds), "'{"+strings.Join(thresholds, ",")+"}'::bigint[]")
	if len(bounds) == 0 || !nullHashesToNull(o.keyspace.KeyTypes()) {
		c.sql = notNull + " AND " + c.sql
	}
	return c, nil
}

// bucketed tells by the number of bounds up to a value whether it is inside: each bound changes that.
func bucketed(value string, insideAtFirst bool, bounds int, thresholds string) condition {
	if bounds == 0 {
		return condition{sql: strconv.FormatBool(insideAtFirst)}
	}
	remainder := 1
	if insideAtFirst {
		remainder = 0
	}
	return condition{sql: fmt.Sprintf("pg_catalog.width_bucket(%s, %s) OPERATOR(pg_catalog.%%) 2 OPERATOR(pg_catalog.=) %d", value, thresholds, remainder), bounds: bounds}
}

// nullHashesToNull says whether the hash of a key that has a null in it is null: an array of one null has a hash.
func nullHashesToNull(types []key.Type) bool {
	for _, t := range types {
		switch t {
		case key.Date, key.Timestamptz, key.Bytea:
			return false
		default:
		}
	}
	return true
}

// systems qualifies what the expressions of package key name, so that nobody's function or operator stands in between: a
// function of a trigger runs under the search_path of whoever writes the row, and setting another takes longer than all the rest.
var systems = strings.NewReplacer(
	"hashint8extended(", "pg_catalog.hashint8extended(", "hashtextextended(", "pg_catalog.hashtextextended(",
	"uuid_hash_extended(", "pg_catalog.uuid_hash_extended(", "hash_array_extended(", "pg_catalog.hash_array_extended(",
	" >> ", " OPERATOR(pg_catalog.>>) ",
)

// hashSQL is the keyspace's hash of the columns; one that does not hash has none of its own, and any will do.
func hashSQL(k *topology.Keyspace, columns []string) (string, error) {
	places := make([]string, len(columns))
	for i := range columns {
		places[i] = placeOf(i)
	}
	sql, err := key.CompositeSQL(families(k), places, fmt.Sprintf("'%d'::bigint", k.Seed()))
	if err != nil {
		return "", err
	}
	sql = systems.Replace(sql)
	values := make([]string, 0, 2*len(columns))
	for i, value := range familyCasts(k, columns) {
		values = append(values, places[i], value)
	}
	return strings.NewReplacer(values...).Replace(sql), nil
}

// placeOf stands for a column while names are qualified: a column may be called anything.
func placeOf(column int) string { return fmt.Sprintf("<%d>", column) }

// families returns the families of the keyspace's key.
func families(k *topology.Keyspace) []key.Type { return KeyFamilies(k.KeyTypes()) }

// KeyFamilies returns, for each type, the one that stands for all whose equal values are equal keys: a keyspace takes tables
// with any of them.
func KeyFamilies(types []key.Type) []key.Type {
	types = slices.Clone(types)
	for i, t := range types {
		switch t {
		case key.Integer, key.Smallint:
			types[i] = key.Bigint
		case key.Varchar:
			types[i] = key.Text
		default:
		}
	}
	return types
}

// typeSQL names a type so that no other can be meant.
func typeSQL(t key.Type) string {
	if t == key.Bigint {
		return "bigint" // the grammar's own word
	}
	return "pg_catalog." + t.String()
}

// familyCasts makes values of the columns that are of those types.
func familyCasts(k *topology.Keyspace, columns []string) []string {
	cast := make([]string, len(columns))
	for i, t := range families(k) {
		cast[i] = "(" + columns[i] + ")::" + typeSQL(t)
	}
	return cast
}

// signedBounds returns where, in the order of signed numbers, a hash comes into one of the ranges and where it leaves them,
// by turns, and whether the least number is inside. The map orders hashes as unsigned numbers, PostgreSQL as signed ones: the
// upper half of the map's order comes first here.
func signedBounds(ranges []topology.Range) (insideAtFirst bool, bounds []int64) {
	const half = uint64(math.MaxInt64) + 1
	var pieces []placement.HashRange // as unsigned numbers that are in the order of the signed ones; 0 as an end is the end
	add := func(lo, hi uint64) {
		if n := len(pieces); n > 0 && pieces[n-1].Hi == lo {
			pieces[n-1].Hi = hi
			return
		}
		pieces = append(pieces, placement.HashRange{Lo: lo, Hi: hi})
	}
	for _, r := range ranges { // the upper half
		if r.Hash.Hi == 0 || r.Hash.Hi > half {
			add(max(r.Hash.Lo, half)-half, r.Hash.Hi+half) // the end becomes the middle
		}
	}
	for _, r := range ranges { // the lower half
		if r.Hash.Lo < half {
			hi := r.Hash.Hi + half
			if r.Hash.Hi == 0 || r.Hash.Hi >= half {
				hi = 0
			}
			add(r.Hash.Lo+half, hi)
		}
	}
	for _, p := range pieces {
		if p.Lo == 0 {
			insideAtFirst = true
		} else {
			bounds = append(bounds, int64(p.Lo-half))
		}
		if p.Hi != 0 {
			bounds = append(bounds, int64(p.Hi-half))
		}
	}
	return insideAtFirst, bounds
}

// belongsByKey is about keyspaces that are ordered by the key itself, text in C order.
func (o ownership) belongsByKey(columns []string) (condition, error) {
	ordered := familyCasts(o.keyspace, columns)
	types := families(o.keyspace)
	for i, t := range types {
		if t == key.Text {
			ordered[i] += ` COLLATE pg_catalog."C"`
		}
	}
	pieces := mergedKeys(o.ranges)
	if len(columns) > 1 {
		return o.belongsByTuple(ordered, types, pieces)
	}
	insideAtFirst := false
	var thresholds []string
	for _, p := range pieces {
		for _, bound := range []string{p.Lo, p.Hi} {
			values, err := boundValues(o.keyspace, types, bound)
			if err != nil {
				return condition{}, err
			}
			thresholds = append(thresholds, values...)
		}
		insideAtFirst = insideAtFirst || p.Lo == ""
	}
	return bucketed(ordered[0], insideAtFirst, len(thresholds), "ARRAY["+list(thresholds)+"]"), nil
}

// belongsByTuple compares with each range: a bound of the first columns alone compares those.
func (o ownership) belongsByTuple(ordered []string, types []key.Type, pieces []placement.KeyRange) (condition, error) {
	var any []string
	bounds := 0
	for _, p := range pieces {
		var both []string
		for _, side := range []struct{ bound, operator string }{{p.Lo, ">="}, {p.Hi, "<"}} {
			values, err := boundValues(o.keyspace, types, side.bound)
			if err != nil {
				return condition{}, err
			}
			if len(values) > 0 {
				both = append(both, fmt.Sprintf("(%s) OPERATOR(pg_catalog.%s) (%s)", list(ordered[:len(values)]), side.operator, list(values)))
				bounds++
			}
		}
		if len(both) == 0 {
			return condition{sql: "true"}, nil
		}
		any = append(any, strings.Join(both, " AND "))
	}
	if len(any) == 0 {
		return condition{sql: "false"}, nil
	}
	return condition{sql: strings.Join(any, " OR "), bounds: bounds}, nil
}

// mergedKeys joins ranges that follow each other.
func mergedKeys(ranges []topology.Range) []placement.KeyRange {
	var merged []placement.KeyRange
	for _, r := range ranges {
		if n := len(merged); n > 0 && merged[n-1].Hi == r.Key.Lo {
			merged[n-1].Hi = r.Key.Hi
			continue
		}
		merged = append(merged, r.Key)
	}
	return merged
}

// boundValues prints a bound as SQL, nothing for an open end.
func boundValues(k *topology.Keyspace, types []key.Type, encoded string) ([]string, error) {
	point, err := k.Texts(encoded)
	if err != nil {
		return nil, err
	}
	values := make([]string, len(point))
	for i, text := range point {
		values[i] = sqltext.QuoteLiteral(text) + "::" + typeSQL(types[i])
	}
	return values, nil
}
