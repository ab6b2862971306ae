package compose

import (
	"slices"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// repeats says whether a query gives the same rows however often it is run in one statement.
func (s *splitter) repeats(q *pgquery.SelectStmt) bool {
	same := true
	each(q, func(m proto.Message) bool {
		switch n := m.(type) {
		case *pgquery.FuncCall:
			schema, name := qualified(n.Funcname)
			same = same && (name == parentheses || s.q.Steady(schema, name))
		case *pgquery.A_Expr:
			same = same && s.steadyOperator(n)
		case *pgquery.RangeTableSample, *pgquery.RangeTableFunc, *pgquery.LockingClause:
			same = false
		}
		return same
	})
	return same
}

// share has queries that a statement contains several times pulled once. Those that leave out rows for what one place compares them with stay for that place alone.
func (s *splitter) share() {
	if s.out.Kind != Reads {
		return
	}
	numbers := make([]int, len(s.out.Pulls))
	known := map[string]int{}
	var kept []Pull
	for i := range s.out.Pulls {
		p := &s.out.Pulls[i]
		key := s.valueOf(p.SQL)
		first, again := known[key]
		if shared := s.repeated[i] && !s.isLinkedPull(i); again && shared && s.isSame(&kept[first], p) {
			if kept[first].SQL.String() != p.SQL.String() { // because literals are equal
				s.shapedByText(kept[first].SQL)
				s.shapedByText(p.SQL)
			}
			numbers[i] = first
			continue
		}
		numbers[i] = len(kept)
		if s.repeated[i] && !s.isLinkedPull(i) {
			known[key] = len(kept)
		}
		kept = append(kept, *p)
	}
	if len(kept) < len(s.out.Pulls) {
		s.renumber(kept, numbers)
	}
}

// isSame says whether two pulls of the same query give the same columns.
func (s *splitter) isSame(a, b *Pull) bool {
	return a.Hidden == b.Hidden && a.Numbered == b.Numbered && a.Any == b.Any && slices.Equal(a.Collated, b.Collated) && s.valueOf(a.Core) == s.valueOf(b.Core)
}

func (s *splitter) isLinkedPull(number int) bool {
	return slices.ContainsFunc(s.out.Links, func(l Link) bool { return l.Pull == number || l.OtherPull == number })
}

// renumber gives pulls other numbers, wherever they are named.
func (s *splitter) renumber(kept []Pull, numbers []int) {
	for i := range kept {
		kept[i].SQL, kept[i].Core = kept[i].SQL.renumbered(numbers), kept[i].Core.renumbered(numbers)
	}
	s.out.Pulls, s.out.Final = kept, s.out.Final.renumbered(numbers)
	for i := range s.out.Links {
		l := &s.out.Links[i]
		l.Pull, l.OtherPull = numbers[l.Pull], numbers[l.OtherPull]
	}
	for i := range s.out.Unlike {
		s.out.Unlike[i].Pull = numbers[s.out.Unlike[i].Pull]
	}
}

// renumbered is the text with other numbers of pulls.
func (t Text) renumbered(numbers []int) Text {
	pieces := slices.Clone(t.pieces)
	for i := range pieces {
		if k := pieces[i].kind; k == isPull || k == isVisible || k == isType {
			pieces[i].number = numbers[pieces[i].number]
		}
	}
	return Text{pieces}
}
