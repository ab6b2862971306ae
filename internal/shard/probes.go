package shard

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/placement/key"
)

// Probe is one value whose hash was computed on the server and here. They differ if the server's byte order is another,
// or if its hash functions are.
type Probe struct {
	Type         key.Type
	Value        string
	Server, Here uint64
}

// Agrees says whether both hashes are the same.
func (p Probe) Agrees() bool { return p.Server == p.Here }

// probeSeed has all of its bytes different, so that one that is lost or out of place shows.
const probeSeed = 0x0123456789abcdef

// probeValues have short and long ones of each type, and both signs.
var probeValues = map[key.Type][]string{
	key.Bigint:      {"0", "1", "-1", "4294967296", "9223372036854775807", "-9223372036854775808"},
	key.Integer:     {"0", "42", "-42", "2147483647", "-2147483648"},
	key.Smallint:    {"0", "7", "-7", "32767", "-32768"},
	key.Text:        {"", "a", "twelve bytes", "thirteen byte", "naïve Σ 東京", "a text that is well above twice the twelve bytes that are mixed at a time"},
	key.Varchar:     {"", "b", "customer-00000042"},
	key.UUID:        {"00000000-0000-0000-0000-000000000000", "0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
	key.Date:        {"2000-01-01", "1970-01-01", "2024-02-29", "infinity", "-infinity"},
	key.Timestamptz: {"2000-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", "2024-02-29 12:34:56.789+00", "infinity"},
	key.Bytea:       {`\x`, `\x00`, `\xdeadbeef`, `\x000102030405060708090a0b0c0d0e0f`},
}

func inspectHashes(ctx context.Context, conn *pgx.Conn, r *Report) error {
	if r.Encoding != "UTF8" {
		return nil // such a server is refused anyway, and may not even take the values
	}
	for _, t := range key.Types() {
		probes, err := probe(ctx, conn, t)
		if err != nil {
			return fmt.Errorf("hash values of type %s: %w", t, err)
		}
		r.Probes = append(r.Probes, probes...)
	}
	return nil
}

func probe(ctx context.Context, conn *pgx.Conn, t key.Type) ([]Probe, error) {
	expression, err := t.SQL("value::"+t.String(), "$2::bigint")
	if err != nil {
		return nil, err
	}
	values := probeValues[t]
	rows, err := conn.Query(ctx, "SELECT "+expression+" FROM unnest($1::text[]) WITH ORDINALITY AS probe (value, place) ORDER BY place", values, int64(probeSeed))
	if err != nil {
		return nil, err
	}
	hashes, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	probes := make([]Probe, len(values))
	for i, text := range values {
		value, err := t.Parse(text)
		if err != nil {
			return nil, err
		}
		probes[i] = Probe{Type: t, Value: text, Server: uint64(hashes[i]), Here: value.Hash(probeSeed)}
	}
	return probes, nil
}
