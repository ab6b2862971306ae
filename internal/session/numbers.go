package session

import (
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// numberRows writes numbers into the rows of an INSERT into a reference table, where it leaves them to sequences: every copy of a row has to
// have the same. The home shard's sequences give them, and as with any sequence nobody gives them back.
func (s *session) numberRows(st *plan.Statement, src source) ([]edit, *pgerr.Error) {
	found, ok := findRows(src.wholeText(), s.standardConforming(), st.Route.ValuesAt)
	if !ok || len(found.rows) == 0 || found.columnsEnd < 0 {
		return nil, pgerr.New(pgerr.FeatureNotSupported, "this form of INSERT into reference table %s is not supported", st.Route.Table).
			WithDetail("It leaves numbers to a sequence, and where they have to be written cannot be told.").WithHint("Write VALUES right behind the list of columns.")
	}
	edits := make([]edit, len(found.rows)+1)
	edits[0] = edit{start: found.columnsEnd, end: found.columnsEnd}
	for i, row := range found.rows {
		edits[i+1] = edit{start: row.end - 1, end: row.end - 1}
	}
	for _, number := range st.Route.Numbers {
		values, refused := s.nextNumbers(number.Sequence, len(found.rows))
		if refused != nil {
			return nil, refused
		}
		edits[0].by += ", " + sqltext.QuoteIdentifier(number.Column)
		for i, value := range values {
			edits[i+1].by += ", " + value
		}
	}
	return edits, nil
}

// nextNumbers takes numbers from a sequence of the home shard: by the transaction's own backend, if it has one there.
func (s *session) nextNumbers(sequence string, count int) ([]string, *pgerr.Error) {
	sql := fmt.Sprintf("SELECT pg_catalog.nextval(%s) FROM pg_catalog.generate_series(1, %d)", sqltext.QuoteLiteral(sequence), count)
	question := func() (answer, error) { return s.ask(sql) }
	s.visitHome()
	ask := func() (answer, *pgerr.Error) { return s.asideOn(s.home(), question) }
	if s.mayAskInside() && s.backend.Shard() == s.home() {
		ask = func() (answer, *pgerr.Error) { return s.inside("", question) }
	}
	a, refused := ask()
	switch {
	case refused != nil:
		return nil, refused
	case a.failure != nil:
		return nil, a.failure.PGError()
	case len(a.rows) != count:
		return nil, pgerr.New(pgerr.InternalError, "sequence %s gave %d numbers of %d", sequence, len(a.rows), count)
	}
	values := make([]string, count)
	for i, row := range a.rows {
		values[i] = strings.Join(row, "")
	}
	return values, nil
}
