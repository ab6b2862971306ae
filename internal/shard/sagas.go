package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Saga is a saga as the tables that package saga installs show it.
type Saga struct {
	Key, ID, Type, IdempotencyKey, State string
	// Step is where it is, empty if it has not begun or has ended; Attempts how often that step has failed or was cut off.
	Step     string
	Attempts int
	// Age is how long ago it was started, by the shard's clock.
	Age     time.Duration
	Created time.Time
	// Due is when it is to be gone on with, or when its holder's lease ends. Zero: it is not.
	Due                                          time.Time
	Holder, LastError, FailedStep, Failure, Note string
}

// SagaFilter says which sagas to read.
type SagaFilter struct {
	// States are those that count. Type is the only type that does; empty: all do.
	States []string
	Type   string
	// Limit is how many are read, the oldest first.
	Limit int
}

// SagaStates are the states of sagas, the last three of which are ends.
func SagaStates() []string {
	return []string{"running", "compensating", "stuck", "completed", "compensated", "abandoned"}
}

// OpenSagaStates are the states of sagas that have not ended.
func OpenSagaStates() []string { return SagaStates()[:3] }

// SagaTable is the table that has a row for each saga.
var SagaTable = topology.TableName{Schema: "sagas", Name: "sagas"}

// sagaColumns are the columns that are read, and their types. What has others is somebody else's.
var sagaColumns = [][2]string{
	{"id", "uuid"}, {"type", "text"}, {"idempotency_key", "text"}, {"state", "text"}, {"step", "text"}, {"attempts", "int4"}, {"created_at", "timestamptz"}, {"due_at", "timestamptz"},
	{"holder", "text"}, {"last_error", "text"}, {"failed_step", "text"}, {"failure", "text"}, {"note", "text"},
}

// sagasThereSQL finds the table, if it is what package saga makes. Anybody may have made a relation of that name, and who reads it acts with
// rights of their own: a view, or a column of a type that brings its own functions, would have those run.
func sagasThereSQL() string {
	columns := make([]string, len(sagaColumns))
	for i, c := range sagaColumns {
		columns[i] = "(" + sqltext.QuoteLiteral(c[0]) + "::pg_catalog.name, " + sqltext.QuoteLiteral("pg_catalog."+c[1]) + "::pg_catalog.regtype::pg_catalog.oid)"
	}
	return `SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'sagas' AND c.relname = 'sagas' AND c.relkind = 'r' AND NOT c.relhasrules
		AND (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND (a.attname, a.atttypid) IN (` + strings.Join(columns, ", ") + `)) = ` + strconv.Itoa(len(columns)) + `
		AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND a.attname = 'key' AND a.atttypid < 16384)`
}

// sagasSQL reads sagas, as one JSON text. Times and dates in JSON are the same under all settings.
func (f SagaFilter) sagasSQL() string {
	states := make([]string, len(f.States))
	for i, s := range f.States {
		states[i] = sqltext.QuoteLiteral(s)
	}
	condition := "state IN (" + strings.Join(states, ", ") + ")"
	if f.Type != "" {
		condition += " AND type = " + sqltext.QuoteLiteral(f.Type)
	}
	return `SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(pg_catalog.to_json(key) #>> '{}', id, type, idempotency_key, state, step, attempts,
		pg_catalog.extract('epoch', pg_catalog.clock_timestamp() - created_at), created_at, due_at, holder, last_error, failed_step, failure, note)), '[]')
		FROM (SELECT * FROM ONLY sagas.sagas WHERE ` + condition + " ORDER BY created_at LIMIT " + strconv.Itoa(f.Limit) + ") AS s"
}

// Sagas reads the sagas that a shard has, over a connection that is in no transaction: none if the tables are not there.
func Sagas(ctx context.Context, ask Asker, filter SagaFilter) ([]Saga, error) {
	there, err := ask(ctx, sagasThereSQL())
	if err != nil || len(there) == 0 {
		return nil, err
	}
	if _, err := ask(ctx, "BEGIN READ ONLY"); err != nil {
		return nil, err
	}
	sagas, err := lockedSagas(ctx, ask, filter)
	if _, ended := ask(ctx, "ROLLBACK"); err == nil {
		err = ended
	}
	return sagas, err
}

// lockedSagas looks at the table again when it cannot become another one any more.
func lockedSagas(ctx context.Context, ask Asker, filter SagaFilter) ([]Saga, error) {
	if _, err := ask(ctx, "LOCK TABLE ONLY sagas.sagas IN ACCESS SHARE MODE"); err != nil {
		return nil, err
	}
	there, err := ask(ctx, sagasThereSQL())
	if err != nil || len(there) == 0 {
		return nil, err
	}
	rows, err := ask(ctx, filter.sagasSQL())
	if err != nil {
		return nil, err
	}
	return readSagas(rows)
}

func readSagas(rows [][]string) ([]Saga, error) {
	if len(rows) != 1 || len(rows[0]) != 1 {
		return nil, fmt.Errorf("a question for sagas was answered with %d rows", len(rows))
	}
	var records [][]any
	if err := json.Unmarshal([]byte(rows[0][0]), &records); err != nil {
		return nil, fmt.Errorf("read sagas: %w", err)
	}
	sagas := make([]Saga, len(records))
	for i, r := range records {
		text := func(column int) string { value, _ := r[column].(string); return value }
		number := func(column int) float64 { value, _ := r[column].(float64); return value }
		instant := func(column int) time.Time { at, _ := time.Parse(time.RFC3339Nano, text(column)); return at }
		sagas[i] = Saga{
			Key: text(0), ID: text(1), Type: text(2), IdempotencyKey: text(3), State: text(4), Step: text(5), Attempts: int(number(6)),
			Age: time.Duration(number(7) * float64(time.Second)), Created: instant(8), Due: instant(9), Holder: text(10), LastError: text(11), FailedStep: text(12), Failure: text(13), Note: text(14),
		}
	}
	return sagas, nil
}

// SagaShards are the shards that may have sagas: all of them if the table is sharded, otherwise the home shard.
func SagaShards(m *topology.Map) []*topology.Shard {
	if m.Home() == nil {
		return nil
	}
	if declared := m.Table(SagaTable.Schema, SagaTable.Name); declared == nil || declared.Keyspace() == nil {
		return []*topology.Shard{m.Home()}
	}
	return slices.Collect(m.Shards())
}

// OwnSagas are those of a shard's sagas whose keys it owns. Rows that a shard has and does not own are another's to show.
func OwnSagas(m *topology.Map, shard *topology.Shard, sagas []Saga) []Saga {
	declared := m.Table(SagaTable.Schema, SagaTable.Name)
	if declared == nil || declared.Keyspace() == nil || len(declared.Keyspace().KeyTypes()) != 1 {
		return sagas
	}
	keyspace := declared.Keyspace()
	return slices.DeleteFunc(sagas, func(s Saga) bool {
		value, err := keyspace.KeyTypes()[0].Parse(s.Key)
		if err != nil {
			return false // rather twice than not at all
		}
		place, err := keyspace.Locate(value)
		return err == nil && place.Shard.Number() != shard.Number()
	})
}
