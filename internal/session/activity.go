package session

import (
	"encoding/json"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// activityView is the view of what all shards do. Each shard is asked in the client's own name, so everybody sees what PostgreSQL lets
// them see.
const activityView = "stat_activity"

var activityColumns = []ViewColumn{
	{"shard", "text"}, {"pid", "int4"}, {"user_name", "text"}, {"database_name", "text"}, {"application_name", "text"}, {"client_address", "text"},
	{"backend_start", "timestamptz"}, {"xact_start", "timestamptz"}, {"query_start", "timestamptz"}, {"state_change", "timestamptz"},
	{"wait_event_type", "text"}, {"wait_event", "text"}, {"state", "text"}, {"query", "text"}, {"backend_type", "text"},
}

const activitySQL = `SELECT coalesce(json_agg(json_build_array(pid, usename, datname, application_name, host(client_addr), backend_start, xact_start, query_start, state_change,
	wait_event_type, wait_event, state, query, backend_type)), '[]') FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid()`

// activity asks every shard what it does.
func (s *session) activity(columnsOnly bool) (View, *pgerr.Error) {
	view := View{Columns: activityColumns}
	if columnsOnly {
		return view, nil
	}
	for shard := range s.currentMap().Shards() {
		if shard.State() == topology.Maintenance {
			continue
		}
		a, refused := s.asideOn(shard.Number(), func() (answer, error) { return s.ask(activitySQL) })
		switch {
		case refused != nil:
			return view, refused
		case a.failure != nil:
			return view, a.failure.PGError()
		case len(a.rows) != 1 || len(a.rows[0]) != 1:
			return view, pgerr.New(pgerr.InternalError, "shard %q did not say what it does", shard.Name())
		}
		var rows [][]any
		if err := json.Unmarshal([]byte(a.rows[0][0]), &rows); err != nil {
			return view, pgerr.New(pgerr.InternalError, "what shard %q does could not be read", shard.Name()).WithDetail("%s", err)
		}
		for _, row := range rows {
			view.Rows = append(view.Rows, append([]any{shard.Name()}, row...))
		}
	}
	return view, nil
}
