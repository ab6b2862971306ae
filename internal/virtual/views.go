package virtual

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/traffic"
)

// view is one view: its columns, and how its rows are found.
type view struct {
	columns []session.ViewColumn
	rows    func(ctx context.Context, s *Schema) ([][]any, error)
}

func column(name, typ string) session.ViewColumn { return session.ViewColumn{Name: name, Type: typ} }

var views = map[string]view{
	"shards": {
		columns: []session.ViewColumn{
			column("name", "text"), column("number", "int4"), column("address", "text"), column("state", "text"), column("weight", "float8"),
			column("labels", "jsonb"), column("home", "bool"), column("ranges", "int4"), column("pins", "int4"), column("single_tables", "int4"),
		},
		rows: shardRows,
	},
	"keyspaces": {
		columns: []session.ViewColumn{
			column("name", "text"), column("strategy", "text"), column("key_types", "text[]"), column("ranges", "int4"), column("pins", "int4"),
			column("algorithm", "text"),
		},
		rows: keyspaceRows,
	},
	"ranges": {
		columns: []session.ViewColumn{
			column("keyspace", "text"), column("lo", "text"), column("hi", "text"), column("shard", "text"), column("statements_per_second", "float8"),
		},
		rows: rangeRows,
	},
	"pins": {
		columns: []session.ViewColumn{column("keyspace", "text"), column("key", "text[]"), column("shard", "text"), column("statements_per_second", "float8")},
		rows:    pinRows,
	},
	"tables": {
		columns: []session.ViewColumn{
			column("name", "text"), column("kind", "text"), column("keyspace", "text"), column("key", "text"), column("shard", "text"),
			column("schema_name", "text"), column("table_name", "text"),
		},
		rows: tableRows,
	},
	"table_sizes": {
		columns: []session.ViewColumn{
			column("schema_name", "text"), column("table_name", "text"), column("kind", "text"), column("shard", "text"), column("total_bytes", "int8"),
			column("table_bytes", "int8"), column("index_bytes", "int8"), column("estimated_rows", "int8"),
		},
		rows: sizeRows,
	},
	"routers": {
		columns: []session.ViewColumn{
			column("name", "text"), column("id", "text"), column("address", "text"), column("http_address", "text"),
			column("started", "timestamptz"), column("version", "text"), column("map_version", "int8"),
		},
		rows: routerRows,
	},
	"sessions": {
		columns: []session.ViewColumn{
			column("router", "text"), column("pid", "int4"), column("user_name", "text"), column("database_name", "text"),
			column("application_name", "text"), column("client_address", "text"), column("started", "timestamptz"), column("state", "text"),
			column("shard", "text"), column("pinned_shards", "text[]"), column("pin_reasons", "text[]"),
		},
		rows: sessionRows,
	},
	"pools": {
		columns: []session.ViewColumn{
			column("router", "text"), column("shard", "text"), column("address", "text"), column("max_backends", "int4"), column("in_use", "int4"),
			column("idle", "int4"), column("waiting", "int4"), column("logins_running", "int4"), column("opened", "int8"), column("closed", "int8"),
			column("failed_logins", "int8"), column("waits", "int8"), column("wait_seconds", "float8"), column("timeouts", "int8"),
			column("breaker", "text"), column("last_error", "text"),
		},
		rows: poolRows,
	},
	"moves": {
		columns: []session.ViewColumn{
			column("id", "text"), column("keyspace", "text"), column("from_shard", "text"), column("to_shard", "text"), column("ranges", "int4"), column("keys", "int4"), column("phase", "text"),
			column("since", "timestamptz"), column("asked_at", "timestamptz"), column("ended_at", "timestamptz"), column("paused", "bool"), column("stopped", "text"), column("waiting", "text"), column("error", "text"),
			column("rows", "int8"), column("bytes", "int8"), column("share", "float8"), column("seconds_left", "float8"), column("lag_bytes", "int8"), column("held_ms", "float8"), column("can_roll_back", "bool"),
		},
		rows: moveRows,
	},
	"automation": {
		columns: []session.ViewColumn{
			column("keyspace", "text"), column("moves", "text"), column("splits", "text"), column("merges", "text"), column("hours", "text"), column("max_bytes", "int8"), column("spent_bytes", "int8"),
			column("halted", "text"), column("halted_at", "timestamptz"), column("move", "text"), column("looked_at", "timestamptz"), column("waiting", "text[]"),
		},
		rows: automationRows,
	},
	"automation_events": {
		columns: []session.ViewColumn{
			column("at", "timestamptz"), column("what", "text"), column("keyspace", "text"), column("move", "text"), column("bytes", "int8"), column("why", "text"),
		},
		rows: automationEventRows,
	},
	"automation_proposals": {
		columns: []session.ViewColumn{
			column("what", "text"), column("keyspace", "text"), column("bytes", "int8"), column("why", "text"), column("command", "text"),
		},
		rows: automationProposalRows,
	},
	"rollouts": {
		columns: []session.ViewColumn{
			column("name", "text"), column("state", "text"), column("change", "text"), column("undo", "text"), column("tables", "text[]"), column("role", "text"),
			column("begun_at", "timestamptz"), column("closed_at", "timestamptz"), column("shard", "text"), column("shard_state", "text"),
			column("applied_at", "timestamptz"), column("undone_at", "timestamptz"),
		},
		rows: rolloutRows,
	},
	"transactions": {
		columns: []session.ViewColumn{
			column("id", "text"), column("age", "interval"), column("participants", "text[]"), column("phase", "text"), column("router", "text"),
			column("decided_on", "text"), column("prepared_on", "text[]"), column("lost_on", "text[]"), column("detail", "text"),
		},
		rows: transactionRows,
	},
	"statements": {
		columns: []session.ViewColumn{
			column("router", "text"), column("fingerprint", "text"), column("statement", "text"), column("calls", "int8"), column("errors", "int8"),
			column("rows", "int8"), column("bytes", "int8"), column("total_seconds", "float8"), column("mean_seconds", "float8"),
			column("p50_seconds", "float8"), column("p95_seconds", "float8"), column("p99_seconds", "float8"), column("max_seconds", "float8"),
		},
		rows: statementRows,
	},
}

func shardRows(_ context.Context, s *Schema) ([][]any, error) {
	m := s.config.Map()
	holdings := m.Holdings()
	var rows [][]any
	for shard := range m.Shards() {
		h := holdings[shard.Number()]
		labels, err := json.Marshal(shard.Spec().Labels)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []any{
			shard.Name(), shard.Number(), shard.Primary(), shard.State(), shard.Weight(), json.RawMessage(labels), shard == m.Home(), h.Ranges, h.Pins, h.Tables,
		})
	}
	return rows, nil
}

func keyspaceRows(_ context.Context, s *Schema) ([][]any, error) {
	var rows [][]any
	for _, k := range s.config.Map().Keyspaces() {
		rows = append(rows, []any{k.Name(), k.Strategy(), typeNames(k), k.RangeCount(), k.PinCount(), k.Assignment().Algorithm})
	}
	return rows, nil
}

func typeNames(k *topology.Keyspace) []string {
	names := []string{}
	for _, t := range k.KeyTypes() {
		names = append(names, t.String())
	}
	return names
}

func rangeRows(ctx context.Context, s *Schema) ([][]any, error) {
	reports := s.reports(ctx)
	var rows [][]any
	for _, k := range s.config.Map().Keyspaces() {
		rates, _ := traffic.Sum(k, reports)
		for i, r := range k.Spec().Ranges {
			rows = append(rows, []any{k.Name(), boundText(r.From), boundText(r.To), r.Shard, rateOrNull(rates.Ranges[i])})
		}
	}
	return rows, nil
}

// reportsTimeout is how long a view of the map waits to hear how busy ranges are.
const reportsTimeout = 2 * time.Second

// reports are what routers count; none if etcd does not answer, because a view of the map needs only the map.
func (s *Schema) reports(ctx context.Context) []traffic.Report {
	ctx, cancel := context.WithTimeout(ctx, reportsTimeout)
	defer cancel()
	reports, err := s.config.Cluster.TrafficReports(ctx)
	if err != nil {
		return nil
	}
	return reports
}

// rateOrNull is NULL for what nobody tells.
func rateOrNull(rate float64) any {
	if rate == 0 {
		return nil
	}
	return rate
}

// boundText writes a bound as the map's JSON has it, nil for none.
func boundText(bound any) any {
	text, err := json.Marshal(bound)
	if err != nil || string(text) == "null" || string(text) == `""` {
		return nil
	}
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		return plain
	}
	return string(text)
}

func pinRows(ctx context.Context, s *Schema) ([][]any, error) {
	reports := s.reports(ctx)
	var rows [][]any
	for _, k := range s.config.Map().Keyspaces() {
		rates, _ := traffic.Sum(k, reports)
		for _, p := range k.Spec().Pins {
			encoded, err := k.Encode(p.Key)
			if err != nil {
				return nil, err
			}
			rows = append(rows, []any{k.Name(), []string(p.Key), p.Shard, rateOrNull(rates.Pins[encoded])})
		}
	}
	return rows, nil
}

func tableRows(_ context.Context, s *Schema) ([][]any, error) {
	var rows [][]any
	for _, t := range s.config.Map().Tables() {
		spec := t.Spec()
		rows = append(rows, []any{
			spec.Name, t.Kind(), orNull(spec.Keyspace), orNull(columnList(spec.Key)), orNull(spec.Shard), t.Name().Schema, t.Name().Name,
		})
	}
	return rows, nil
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_$]*$`)

// columnList writes columns as SQL does, quoted where they must be.
func columnList(columns []string) string {
	written := make([]string, len(columns))
	for i, c := range columns {
		if written[i] = c; !plainName.MatchString(c) {
			written[i] = sqltext.QuoteIdentifier(c)
		}
	}
	return strings.Join(written, ", ")
}

// orNull is NULL for what is not there.
func orNull(value string) any {
	if value == "" {
		return nil
	}
	return value
}

func routerRows(ctx context.Context, s *Schema) ([][]any, error) {
	routers, err := s.config.Routers(ctx)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, r := range routers {
		rows = append(rows, []any{r.Name, r.ID, r.Address, orNull(r.HTTPAddress), r.Started.Format(time.RFC3339Nano), r.Binary, r.Applied})
	}
	return rows, nil
}

func sessionRows(_ context.Context, s *Schema) ([][]any, error) {
	var rows [][]any
	for _, i := range s.config.Sessions() {
		state := "active"
		switch {
		case i.Waiting:
			state = "waiting for a backend"
		case i.Idle:
			state = "idle"
		}
		shards, reasons := []string{}, []string{}
		for _, p := range i.Pins {
			shards, reasons = append(shards, p.Shard), append(reasons, p.Reason)
		}
		rows = append(rows, []any{
			s.config.Router, i.Number, i.User, i.Database, i.Application, i.Address, i.Started.UTC().Format(time.RFC3339Nano), state,
			orNull(i.Shard), shards, reasons,
		})
	}
	return rows, nil
}

func poolRows(_ context.Context, s *Schema) ([][]any, error) {
	var rows [][]any
	for _, p := range s.config.Pools() {
		rows = append(rows, []any{
			s.config.Router, p.Name, p.Address, p.Limit, p.InUse, p.Idle, p.Waiting, p.LoginsRunning, p.Opened, p.Closed, p.FailedLogins,
			p.Waits, p.WaitTime.Seconds(), p.Timeouts, p.Breaker, orNull(p.LastError),
		})
	}
	return rows, nil
}

func statementRows(_ context.Context, s *Schema) ([][]any, error) {
	var rows [][]any
	for _, st := range s.config.Statements.Snapshot() {
		var id [8]byte
		for i := range id {
			id[i] = byte(st.Fingerprint >> (56 - 8*i))
		}
		rows = append(rows, []any{
			s.config.Router, hex.EncodeToString(id[:]), strings.ToValidUTF8(st.Text, "?"), st.Calls, st.Errors, st.Rows, st.Bytes,
			st.Total.Seconds(), st.Mean.Seconds(), st.P50.Seconds(), st.P95.Seconds(), st.P99.Seconds(), st.Max.Seconds(),
		})
	}
	return rows, nil
}
