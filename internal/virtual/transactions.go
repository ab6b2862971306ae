package virtual

import (
	"context"
	"errors"
	"strconv"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/txn"
)

func transactionRows(ctx context.Context, s *Schema) ([][]any, error) {
	list, err := s.config.Cluster.Transactions(ctx)
	if err != nil {
		return nil, err
	}
	if len(list.Findings) > 0 { // an empty answer would look like good news
		return nil, pgerr.New(pgerr.ConnectionFailure, "%s", list.Findings[0].Message).WithHint("%s", "'cleave transactions list' has those that could be found.")
	}
	var rows [][]any
	for _, t := range list.Transactions {
		rows = append(rows, []any{
			t.ID, strconv.FormatFloat(t.AgeSeconds, 'f', 3, 64) + " seconds", t.Participants, t.Phase, t.Router, t.DecidedOn, t.PreparedOn, t.LostOn, orNull(t.Detail),
		})
	}
	return rows, nil
}

func transactionOutcome(ctx context.Context, s *Schema, _ session.Call, arguments map[string]*string, _ []*string) (string, error) {
	return s.config.Cluster.TransactionOutcome(ctx, text(arguments, "id"))
}

// resolveTransaction is for superusers: it can make half of a transaction.
func resolveTransaction(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	id, how := text(arguments, "id"), text(arguments, "how")
	if err := txn.CheckResolve(id, how); err != nil {
		return "", err
	}
	if call.Notice != nil && how != txn.ByForget {
		call.Notice("this decides for the parts that are prepared, and nothing is asked again: if another part of the transaction has ended otherwise, half of it stays")
	}
	return s.config.Cluster.ResolveTransaction(ctx, id, how)
}

// mustBeSuperuser refuses who is not one on the home shard.
func (s *Schema) mustBeSuperuser(ctx context.Context, call session.Call) error {
	m := s.config.Map()
	if m == nil || m.Home() == nil || call.OnShard == nil {
		return errors.New("there is no shard that knows who you are")
	}
	var super bool
	err := call.OnShard(m.Home().Number(), func(ask shard.Asker) error {
		rows, err := ask(ctx, "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = "+sqltext.QuoteLiteral(call.Role))
		super = err == nil && len(rows) == 1 && len(rows[0]) == 1 && rows[0][0] == "t"
		return err
	})
	if err == nil && !super {
		err = pgerr.New(pgerr.InsufficientPrivilege, "permission denied for cleave.%s", call.Function).WithDetail("Only superusers may call it.")
	}
	return err
}
