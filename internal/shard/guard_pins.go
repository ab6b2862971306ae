package shard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// exception is a pin that does not go where its range says, as one of the two shards sees it.
type exception struct {
	encoded string
	hash    uint64
	here    bool
}

// addException notes on both shards if a pin goes elsewhere than its range says. The shard that the range belongs to has no
// other way of knowing, because records tell each shard what it has and not what it has not.
func (k keyspaceShares) addException(p topology.Pin, wanted func(number int) bool) {
	if k.keyspace.Strategy() == topology.BySchema {
		return // whole schemas have no guard
	}
	from, hash := k.rangeTaker(p.Encoded)
	to := takerOf(p.Owner, p.Copies).Number()
	if from == to {
		return
	}
	for number, here := range map[int]bool{from: false, to: true} {
		if wanted(number) {
			has := &k.shares[number]
			has.exceptions = append(has.exceptions, exception{p.Encoded, hash, here})
		}
	}
}

// rangeTaker returns the number of the shard that a key would go to without its pin, and the key's hash.
func (k keyspaceShares) rangeTaker(encoded string) (number int, hash uint64) {
	hash = k.keyspace.Hash(valuesOf(k.keyspace, encoded)...)
	for _, r := range k.opening {
		if byHash := k.keyspace.Hashes() != nil; byHash && r.Hash.Contains(hash) || !byHash && r.Key.Contains(encoded) {
			return takerOf(r.Owner, r.Copies).Number(), hash
		}
	}
	if hashes := k.keyspace.Hashes(); hashes != nil {
		return hashes.Lookup(hash), hash
	}
	return k.keyspace.Keys().Lookup(encoded), hash
}

// valuesOf takes a pinned key apart.
func valuesOf(k *topology.Keyspace, encoded string) []key.Value {
	values := make([]key.Value, 0, topology.MaxKeyColumns)
	for _, t := range k.KeyTypes() {
		value, rest, err := t.CutOrdered(encoded)
		if err != nil {
			panic("shard: a pin of a map that was checked has a key of its types: " + err.Error())
		}
		values, encoded = append(values, value), rest
	}
	return values
}

// sentSQL is the binary form of a value of one of the families, in SQL; [sent] is the same in Go.
func sentSQL(family key.Type, value string) string {
	switch family {
	case key.Text:
		return "pg_catalog.convert_to(" + value + ", 'UTF8')"
	case key.UUID:
		return "pg_catalog.uuid_send(" + value + ")"
	case key.Date:
		return "pg_catalog.date_send(" + value + ")"
	case key.Timestamptz:
		return "pg_catalog.timestamptz_send(" + value + ")"
	case key.Bytea:
		return value
	default:
		return "pg_catalog.int8send(" + value + ")"
	}
}

// sent is the value in the binary form in which PostgreSQL sends it.
func sent(v key.Value) []byte {
	ordered := v.AppendOrdered(nil)
	switch v.Type() {
	case key.Text, key.Varchar:
		return []byte(v.String())
	case key.UUID:
		return ordered
	case key.Bytea:
		raw, err := hex.DecodeString(strings.TrimPrefix(v.String(), `\x`))
		if err != nil {
			panic("shard: a bytea is printed in hexadecimal: " + err.Error())
		}
		return raw
	default: // a number, encoded with its sign turned around, so that it sorts
		ordered[0] ^= 0x80
		if v.Type() == key.Date {
			return ordered[4:]
		}
		return ordered
	}
}

// guardPin is a row of the table that guards look into.
type guardPin struct {
	Hash int64
	Key  [][]byte
	Here bool
}

func (p guardPin) id() rowID {
	content := strconv.AppendBool([]byte("guard"), p.Here)
	for _, value := range p.Key {
		content = append(strconv.AppendInt(append(content, ' '), int64(len(value)), 10), ' ')
		content = append(content, value...)
	}
	sum := sha256.Sum256(content)
	return rowID(sum[:16])
}

// guardPins returns the rows of a shard.
func (k keyspaceShares) guardPins(number int) map[rowID]guardPin {
	rows := make(map[rowID]guardPin, len(k.shares[number].exceptions))
	for _, e := range k.shares[number].exceptions {
		pin := guardPin{Hash: int64(e.hash), Here: e.here}
		for _, value := range valuesOf(k.keyspace, e.encoded) {
			pin.Key = append(pin.Key, sent(value))
		}
		rows[pin.id()] = pin
	}
	return rows
}

// digestOf identifies rows together; none have an empty digest.
func digestOf(rows map[rowID]guardPin) []byte {
	if len(rows) == 0 {
		return []byte{}
	}
	ids := slices.SortedFunc(maps.Keys(rows), func(a, b rowID) int { return bytes.Compare(a[:], b[:]) })
	sum := sha256.New()
	for _, id := range ids {
		sum.Write(id[:])
	}
	return sum.Sum(nil)
}

// guardPins brings the table that guards look into up to date. It follows from the map, so what differs is mended under any
// version.
func (r *recorder) guardPins(ctx context.Context) error {
	have, err := guardPinDigests(ctx, r.tx)
	if err != nil {
		return err
	}
	for _, k := range r.want.Keyspaces {
		name := k.Head.Name
		want := r.pins[name]
		digest := digestOf(want)
		if bytes.Equal(digest, have[name]) {
			continue
		}
		r.changed = true
		if err := r.replaceGuardPins(ctx, name, want); err != nil {
			return fmt.Errorf("keyspace %q: %w", name, err)
		}
		if _, err := r.tx.Exec(ctx, "UPDATE cleave.keyspaces SET guard_pins_digest = $2 WHERE name = $1", name, digest); err != nil {
			return err
		}
	}
	return nil
}

func guardPinDigests(ctx context.Context, tx pgx.Tx) (map[string][]byte, error) {
	rows, err := tx.Query(ctx, "SELECT name, guard_pins_digest FROM cleave.keyspaces")
	if err != nil {
		return nil, err
	}
	digests := map[string][]byte{}
	var name string
	var digest []byte
	_, err = pgx.ForEachRow(rows, []any{&name, &digest}, func() error {
		digests[name] = bytes.Clone(digest)
		return nil
	})
	return digests, err
}

func (r *recorder) replaceGuardPins(ctx context.Context, keyspace string, want map[rowID]guardPin) error {
	missing := maps.Clone(want)
	stray, err := stray(ctx, r.tx, "guard_pins", keyspace, missing, scanGuardPin)
	if err != nil {
		return err
	}
	if err := r.remove(ctx, "guard_pins", keyspace, stray); err != nil {
		return err
	}
	rows := make([][]any, 0, len(missing))
	for id, pin := range missing {
		rows = append(rows, []any{keyspace, id[:], pin.Hash, pin.Key, pin.Here})
	}
	return r.add(ctx, "guard_pins", []string{"keyspace", "id", "hash", "key", "here"}, rows)
}

func scanGuardPin(rows pgx.Rows) (id []byte, p guardPin, err error) {
	var keyspace string
	err = rows.Scan(&keyspace, &id, &p.Hash, &p.Key, &p.Here)
	return id, p, err
}
