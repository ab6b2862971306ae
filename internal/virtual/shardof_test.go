package virtual

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// keyColumn is a sharded table's only column in these tests.
type keyColumn struct {
	keyType string
	sqlType string
	oid     uint32
	mod     int32
}

var keyColumns = map[string]keyColumn{
	"bigints": {"bigint", "bigint", 20, -1}, "shorts": {"bigint", "smallint", 21, -1}, "names": {"text", "varchar(5)", 1043, 9}, "texts": {"text", "text", 25, -1},
	"ids": {"uuid", "uuid", 2950, -1}, "days": {"date", "date", 1082, -1}, "times": {"timestamptz", "timestamptz", 1184, -1}, "blobs": {"bytea", "bytea", 17, -1},
}

// keyed returns a schema over a map of many shards with a table for each type of key, and a connection to the home shard.
func keyed(t *testing.T) (*Schema, *topology.Map, *pgx.Conn) {
	t.Helper()
	server := pgtest.Start(t)
	m, err := topology.New("0b5b6f3e-1d8e-4a56-9d0c-3f6a1f3b7c11")
	next := func(change topology.Change) {
		t.Helper()
		if err == nil {
			m, err = m.Next(change)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	next(topology.AddShard(topology.ShardSpec{Name: "a", Primary: topology.InstanceSpec{Address: server.Addr()}}))
	for _, name := range []string{"b", "c", "d", "e", "f", "g", "h"} { // nobody asks these
		next(topology.AddShard(topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: name + ":5432"}}))
	}
	relations := map[plan.RelationName]*plan.Relation{}
	for table, c := range keyColumns {
		spec := topology.NewKeyspaceSpec("of_"+table, topology.ByHash, 7, c.keyType)
		if spec.Ranges, spec.Assignment, err = m.Assign(topology.Assignment{Algorithm: "even"}); err != nil {
			t.Fatal(err)
		}
		next(topology.CreateKeyspace(spec))
		next(topology.SetTable(topology.TableSpec{Name: table, Kind: topology.Sharded, Keyspace: "of_" + table, Key: []string{"k"}}))
		relations[plan.RelationName{Schema: "public", Name: table}] = &plan.Relation{
			Schema: "public", Name: table, Kind: 'r', Columns: []plan.Column{{Name: "k", TypeOID: c.oid, TypeMod: c.mod, NotNull: true}},
		}
	}
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return New(Config{
		Map:    func() *topology.Map { return m },
		Access: shard.Access{User: server.Superuser(), Database: "postgres", SSLMode: "disable", ConnectTimeout: 5 * time.Second},
		Look: func(context.Context, []plan.RelationName, []plan.FunctionName, []string) (*plan.Known, error) {
			return &plan.Known{Relations: relations}, nil
		},
	}), m, conn
}

func (s *Schema) shardOfText(t *testing.T, table, value string) (string, *pgerr.Error) {
	t.Helper()
	name := "public." + table
	shard, refused := s.Call(t.Context(), session.Call{Function: "shard_of", Arguments: []session.Argument{{Text: &name}, {Text: &value}}})
	if refused != nil {
		return "", refused
	}
	return *shard, nil
}

// TestShardOfIsWhereTheRowGoes: a value is stored in a column of that type, and the shard is that of what is then there.
func TestShardOfIsWhereTheRowGoes(t *testing.T) {
	s, m, conn := keyed(t)
	for table, values := range map[string][]string{
		"bigints": {"4", "-4", "+4", " 4 ", "9223372036854775807"}, "shorts": {"4"}, "names": {"abcde", "abcde  ", "a b  ", "", "äöüßé "}, "texts": {"abcde  ", "ü", ""},
		"ids":  {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11}", "a0eebc999c0b4ef8bb6d6bb9bd380a11"},
		"days": {"2020-01-01", "20200101", "January 8, 1999", "infinity"}, "times": {"2020-01-01 00:00:00+00", "2020-01-01T02:00:00+02", "2020-01-01 00:00 America/New_York", "infinity"},
		"blobs": {"A", `\x41`, `\101`, ``, `\x 41 42`},
	} {
		c := keyColumns[table]
		for _, value := range values {
			got, refused := s.shardOfText(t, table, value)
			if refused != nil {
				t.Errorf("%s %q: %v", table, value, refused)
				continue
			}
			var stored string
			if err := conn.QueryRow(t.Context(), "SELECT ($1::text)::"+c.sqlType+"::text", value).Scan(&stored); err != nil {
				t.Fatal(err)
			}
			if want := located(t, m, table, stored); got != want {
				t.Errorf("%s %q is stored as %q on shard %s, not %s", table, value, stored, want, got)
			}
		}
	}
	if got, refused := s.shardOfText(t, "bigints", "4.00"); refused != nil || got != located(t, m, "bigints", "4") {
		t.Errorf("4.00 is 4: %s %v", got, refused)
	}
}

func located(t *testing.T, m *topology.Map, table, canonical string) string {
	t.Helper()
	keyspace := m.Table("public", table).Keyspace()
	value, err := keyspace.KeyTypes()[0].Parse(canonical)
	if err != nil {
		t.Fatalf("%s: %v", table, err)
	}
	place, err := keyspace.Locate([]key.Value{value}...)
	if err != nil {
		t.Fatal(err)
	}
	return place.Shard.Name()
}

// TestShardOfRefuses what has no value, or not the same one for everybody.
func TestShardOfRefuses(t *testing.T) {
	s, _, _ := keyed(t)
	invalid := []string{pgerr.InvalidTextRepresentation, pgerr.FeatureNotSupported, "22007", "22003", "22P03"}
	for table, values := range map[string][]string{
		"bigints": {"4.5", "x", "9223372036854775808", "1e3"}, "shorts": {"70000"}, "names": {"abcdef", "abc\x00", "\xff"}, "ids": {"x"},
		"days": {"today", "01/02/2003", "x"}, "times": {"2020-01-01", "2020-01-01 10:00:00", "now", "x"}, "blobs": {`\x4`, `\`},
	} {
		for _, value := range values {
			shard, refused := s.shardOfText(t, table, value)
			if refused == nil || !slices.Contains(append(invalid, "22023"), refused.Code) {
				t.Errorf("%s %q: %s %v", table, value, shard, refused)
			}
		}
	}
}
