package session

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// numberRows writes numbers into the rows of an INSERT into a reference table, where it leaves them to sequences: every copy of a row has to
// have the same. The home shard's sequences give them, and as with any sequence nobody gives them back. Into those of a sharded table it
// writes the keys that the router draws.
func (s *session) numberRows(st *plan.Statement, src source) ([]edit, *pgerr.Error) {
	found := s.rowsOf(src, st.Route.ValuesAt)
	if found != nil && st.Route.Numbers[0].Place > 0 {
		edits := found.defaultsAt(st.Route.Numbers[0].Place - 1)
		if len(edits) != len(found.rows) {
			return nil, pgerr.New(pgerr.InternalError, "%d rows of the INSERT were to have a key drawn, %d were found", len(found.rows), len(edits))
		}
		return edits, s.drawKeys(&st.Route, edits)
	}
	if found == nil || len(found.rows) == 0 || found.columnsEnd < 0 {
		return nil, pgerr.New(pgerr.FeatureNotSupported, "this form of INSERT into %s is not supported", st.Route.Table).
			WithDetail("It leaves numbers or keys to the router, and where they have to be written cannot be told.").WithHint("Write VALUES right behind the list of columns.")
	}
	edits := make([]edit, len(found.rows)+1)
	edits[0] = edit{start: found.columnsEnd, end: found.columnsEnd}
	for i, row := range found.rows {
		edits[i+1] = edit{start: row.end - 1, end: row.end - 1}
	}
	for _, number := range st.Route.Numbers {
		if number.Sequence == "" {
			edits[0].by += ", " + sqltext.QuoteIdentifier(number.Column)
			for i := range found.rows {
				edits[i+1].by += ", "
			}
			return edits, s.drawKeys(&st.Route, edits[1:])
		}
		values, refused := s.nextNumbers(number.Sequence, len(found.rows))
		if refused != nil {
			return nil, refused
		}
		s.told.note(toldNumber{number: values[len(values)-1], sequence: number.Sequence})
		edits[0].by += ", " + sqltext.QuoteIdentifier(number.Column)
		for i, value := range values {
			edits[i+1].by += ", " + value
		}
	}
	return edits, nil
}

// maxKeyDraws is how many keys are drawn for one that belongs on a shard.
const maxKeyDraws = 1_000_000

// drawKeys writes a random UUID into each row that belongs on the shard which the statement goes to.
func (s *session) drawKeys(route *plan.Route, edits []edit) *pgerr.Error {
	keyspace := s.currentMap().Keyspace(route.Keyspace)
	if keyspace == nil {
		return pgerr.New(pgerr.InternalError, "keyspace %q is not in the shard map", route.Keyspace)
	}
	for i := range edits {
		id, found := drawKey(keyspace, s.shardNow())
		if !found {
			return pgerr.New(pgerr.CannotConnectNow, "no key could be drawn that belongs on shard %q", s.shardName(s.shardNow())).
				WithDetail("It owns too little of keyspace %q.", route.Keyspace).WithHint("Give the key a value.")
		}
		edits[i].by += "'" + id + "'"
	}
	return nil
}

// defaultsAt are the places of the words DEFAULT that are the values of a column.
func (r *rowText) defaultsAt(place int) []edit {
	var edits []edit
	for _, d := range r.defaults {
		if d.place == place {
			edits = append(edits, edit{start: d.start, end: d.end})
		}
	}
	return edits
}

// drawKey draws one UUID of version 4, as gen_random_uuid does.
func drawKey(keyspace *topology.Keyspace, shard int) (id string, found bool) {
	for range maxKeyDraws {
		var drawn [16]byte
		_, _ = rand.Read(drawn[:]) // it never fails
		drawn[6], drawn[8] = drawn[6]&0x0f|0x40, drawn[8]&0x3f|0x80
		value := key.OfUUID(drawn)
		if place, err := keyspace.Locate(value); err == nil && !place.Held && place.Shard.Number() == shard {
			return value.String(), true
		}
	}
	return "", false
}

// nextNumbers takes numbers from a sequence of the home shard: by the transaction's own backend, if it has one there.
func (s *session) nextNumbers(sequence string, count int) ([]string, *pgerr.Error) {
	sql := fmt.Sprintf("SELECT pg_catalog.nextval(%s) FROM pg_catalog.generate_series(1, %d)", sqltext.QuoteLiteral(sequence), count)
	a, refused := s.askShard(s.home(), func() (answer, error) { return s.ask(sql) })
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
