package session

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// callOwn runs a function of the router's own.
func (s *session) callOwn(call Call) (*string, *pgerr.Error) {
	if call.Function == "shard_local_function" {
		return s.declareLocal(call)
	}
	if refused := s.mayRollOut(call.Function); refused != nil {
		return nil, refused
	}
	if isRollout(call.Function) { // its steps run on backends of the session's own, where they are cancelled
		return s.server.config.Virtual.Call(s.ctx, call)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.setInterrupt(cancel)
	defer s.setInterrupt(nil)
	value, refused := s.server.config.Virtual.Call(ctx, call)
	if refused != nil && refused.Code != pgerr.OutcomeUnknown && ctx.Err() != nil && s.ctx.Err() == nil {
		return nil, errCancelled // whatever it was doing then
	}
	return value, refused
}

// functionSQL finds a function by its name, with the types of its arguments or without.
func functionSQL(name string) string {
	find := "to_regproc"
	if strings.Contains(name, "(") {
		find = "to_regprocedure"
	}
	return fmt.Sprintf("SELECT p.oid::pg_catalog.regprocedure::text FROM pg_catalog.pg_proc p WHERE p.oid = pg_catalog.%s(%s)::pg_catalog.oid", find, sqltext.QuoteLiteral(name))
}

// declareLocal takes the client's word that a function uses only rows of the shard that it runs on. It is kept with the function, as a
// setting of it, so who may change the function may say so, and it goes where the function goes.
func (s *session) declareLocal(call Call) (*string, *pgerr.Error) {
	if len(call.Arguments) < 1 || len(call.Arguments) > 2 || call.Arguments[0].Text == nil {
		return nil, pgerr.New(pgerr.UndefinedFunction, "function cleave.shard_local_function takes the name of a function").
			WithHint("cleave.shard_local_function('name(argument types)' [, is_local]).")
	}
	name, setting := *call.Arguments[0].Text, "SET cleave.shard_local TO on"
	if len(call.Arguments) == 2 && call.Arguments[1].Text != nil && isOff(*call.Arguments[1].Text) {
		setting = "RESET cleave.shard_local"
	}
	found, refused := s.aside(func() (answer, error) { return s.ask(functionSQL(name)) })
	switch {
	case refused != nil:
		return nil, refused
	case found.failure != nil:
		return nil, found.failure.PGError()
	case len(found.rows) != 1:
		return nil, pgerr.New(pgerr.UndefinedFunction, "function \"%s\" does not exist, or there are several of that name", name).WithHint("Write it with the types of its arguments: 'name(bigint, text)'.")
	}
	st := &plan.Statement{Name: "ALTER FUNCTION", Schema: true, Route: plan.Route{Level: plan.Everywhere, Parts: plan.Copies, Lenient: true}}
	if _, refused = s.define(st, "ALTER ROUTINE "+found.rows[0][0]+" "+setting); refused != nil {
		s.tx.failed = true
		s.endImplicit()
		return nil, refused
	}
	if refused := s.commitLegs(); refused != nil {
		s.spreadEnded(false)
		return nil, refused
	}
	s.spreadEnded(true)
	said := "function " + found.rows[0][0] + " uses the rows of one shard"
	if setting != "SET cleave.shard_local TO on" {
		said = "function " + found.rows[0][0] + " may use the rows of any shard"
	}
	return &said, nil
}
