package faults

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Tables are what the workload works on, with their keys by shard. All tables have the same keys on the same shards.
type Tables struct {
	Keys [][]int64 // of each shard, in order
	// Money is what all accounts have together, always.
	Money int64
}

const (
	keysInAll     = 90 // about thirty for each shard
	registers     = 600
	firstBalance  = 1000
	definedTables = 5
)

// definitions of the tables. Their key is always id.
var definitions = [definedTables]struct{ name, columns string }{
	{"accounts", "id bigint PRIMARY KEY, balance bigint NOT NULL"},
	{"counters", "id bigint PRIMARY KEY, n bigint NOT NULL"},
	{"tags", "id bigint NOT NULL, tag text NOT NULL, PRIMARY KEY (id, tag)"},
	{"registers", "id bigint PRIMARY KEY, value bigint NOT NULL"},
	{"lists", "id bigint PRIMARY KEY, items bigint[] NOT NULL"},
}

// MakeTables makes them through a router.
func (c *Cluster) MakeTables(ctx context.Context) (*Tables, error) {
	client := NewClient(1, c.Routers[0])
	defer client.Drop()
	conn, err := client.Connection(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range definitions {
		for _, sql := range []string{fmt.Sprintf("CREATE TABLE %s (%s)", d.name, d.columns), fmt.Sprintf("SELECT cleave.shard_table('%s', 'id')", d.name)} {
			if err := define(ctx, conn, sql); err != nil {
				return nil, err
			}
		}
	}
	t := &Tables{Keys: make([][]int64, len(c.Shards)), Money: keysInAll * firstBalance}
	if err := t.findKeys(ctx, conn, c.Shards); err != nil {
		return nil, err
	}
	c.probe = "SELECT id FROM counters"
	return t, t.fill(ctx, conn)
}

// define runs a definition. On a machine that has much to do etcd may not hear of a router in time: then nothing has happened, and it is
// tried again.
func define(ctx context.Context, conn *pgx.Conn, sql string) error {
	for tries := 20; ; tries-- {
		_, err := conn.Exec(ctx, sql)
		if err == nil {
			return nil
		}
		var refused *pgconn.PgError
		if tries == 0 || !errors.As(err, &refused) || refused.Code != pgerr.CannotConnectNow && refused.Code != pgerr.LockNotAvailable {
			return fmt.Errorf("%s: %w", sql, err)
		}
		time.Sleep(time.Second)
	}
}

func (t *Tables) findKeys(ctx context.Context, conn *pgx.Conn, shards []*Shard) error {
	for id := int64(1); id <= keysInAll; id++ {
		var name string
		if err := conn.QueryRow(ctx, fmt.Sprintf("SELECT cleave.shard_of('accounts', %d)", id)).Scan(&name); err != nil {
			return err
		}
		for i, s := range shards {
			if s.Name == name {
				t.Keys[i] = append(t.Keys[i], id)
			}
		}
	}
	for i := range t.Keys {
		if len(t.Keys[i]) < groups {
			return fmt.Errorf("shard %s has only %d of %d keys", shards[i].Name, len(t.Keys[i]), keysInAll)
		}
	}
	return nil
}

// fill puts a row for each key into the tables that have one.
func (t *Tables) fill(ctx context.Context, conn *pgx.Conn) error {
	for _, f := range []struct {
		table, value string
		rows         int
	}{{"accounts", strconv.Itoa(firstBalance), keysInAll}, {"counters", "0", keysInAll}, {"lists", "'{}'", keysInAll}, {"registers", "0", registers}} {
		rows := make([]string, f.rows)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d, %s)", i+1, f.value)
		}
		if _, err := conn.Exec(ctx, "INSERT INTO "+f.table+" VALUES "+strings.Join(rows, ", ")); err != nil {
			return fmt.Errorf("fill %s: %w", f.table, err)
		}
	}
	return nil
}

// groups is how many families of counters there are, with a counter on each shard. Those of one are always counted together.
const groups = 6

// counter is the key of a group's counter on a shard.
func (t *Tables) counter(group, shard int) int64 { return t.Keys[shard][group] }
