package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
)

// sagasView is the view of the sagas of all shards that have not ended. Each shard is asked in the client's own name, so that the rights on the
// tables of sagas hold here too.
const sagasView = "sagas"

var sagasColumns = []ViewColumn{
	{"shard", "text"}, {"type", "text"}, {"key", "text"}, {"id", "uuid"}, {"idempotency_key", "text"}, {"state", "text"}, {"step", "text"}, {"attempts", "int4"}, {"age", "interval"},
	{"created_at", "timestamptz"}, {"due_at", "timestamptz"}, {"holder", "text"}, {"last_error", "text"}, {"failed_step", "text"}, {"failure", "text"}, {"note", "text"},
}

// sagasShown is how many sagas the view shows at most. If there are more it is refused: a part of them would look like all.
const sagasShown = 20_000

// sagas asks every shard for its sagas. There are none where package saga was never installed.
func (s *session) sagas(columnsOnly bool) (View, *pgerr.Error) {
	view := View{Columns: sagasColumns}
	if columnsOnly {
		return view, nil
	}
	m := s.currentMap()
	for _, one := range shard.SagaShards(m) {
		var found []shard.Saga
		err := s.onShard(one.Number(), func(ask shard.Asker) (err error) {
			found, err = shard.Sagas(s.ctx, ask, shard.SagaFilter{States: shard.OpenSagaStates(), Limit: sagasShown + 1})
			return err
		})
		if err != nil {
			return view, sagasUnread(one.Name(), err)
		}
		for _, saga := range shard.OwnSagas(m, one, found) {
			view.Rows = append(view.Rows, sagaRow(one.Name(), saga))
		}
		if len(view.Rows) > sagasShown {
			return view, pgerr.New(pgerr.ProgramLimitExceeded, "there are more than %d sagas that have not ended", sagasShown).
				WithDetail("cleave.sagas is read as a whole, whatever the statement asks for.").WithHint("Ask the table: SELECT * FROM sagas.sagas WHERE state = 'stuck'.")
		}
	}
	return view, nil
}

// sagasUnread is the shard's own error, if it has said why.
func sagasUnread(name string, err error) *pgerr.Error {
	var said *pgerr.Error
	if errors.As(err, &said) {
		return said
	}
	return pgerr.New(pgerr.InternalError, "the sagas of shard %q could not be read", name).WithDetail("%s", err)
}

func sagaRow(name string, s shard.Saga) []any {
	return []any{
		name, s.Type, s.Key, s.ID, s.IdempotencyKey, s.State, textOrNull(s.Step), s.Attempts, fmt.Sprintf("%.6f seconds", s.Age.Seconds()), s.Created.Format(time.RFC3339Nano),
		timeOrNull(s.Due), textOrNull(s.Holder), textOrNull(s.LastError), textOrNull(s.FailedStep), textOrNull(s.Failure), textOrNull(s.Note),
	}
}

func textOrNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func timeOrNull(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.Format(time.RFC3339Nano)
}
