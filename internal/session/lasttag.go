package session

import "github.com/cleavedb/cleave/internal/wire"

// PostgreSQL commits what a simple query has done before it gives the command tag of the query's last statement: a client that has seen
// the tag knows that nothing can go wrong any more. Where the router commits, it keeps that tag back until it has. In the extended
// protocol the tag comes with Execute, and the commit with Sync, in PostgreSQL too.

// commitsAfter says whether the statement that runs is the last one of a simple query whose transaction the router ends by itself.
func (s *session) commitsAfter() bool {
	return s.inHand == wire.MsgQuery && s.tx.implicit && !s.textGoesOn
}

// endsQuery says whether a statement that completes is the last one of a simple query.
func (s *session) endsQuery(e *expect) bool {
	p, _ := s.ran(e)
	return e.kind == expectQuery && (p == nil || e.next+1 >= len(p.plan.Statements))
}

// keepTag keeps the message that ends the last statement, as the client is to see it, until the transaction is committed.
func (s *session) keepTag(message []byte) {
	if len(s.instead) > 0 { // the client gets another one
		message = s.instead
	}
	s.lastTag = append(s.lastTag[:0], message...)
	s.instead = s.instead[:0]
}

// tellTag answers a statement that the session itself has run.
func (s *session) tellTag(tag string) {
	complete := wire.AppendCommandComplete(nil, tag)
	if s.commitsAfter() {
		s.keepTag(complete)
		return
	}
	s.addLocal(complete)
}

// tellGathered answers a statement that several shards have run.
func (s *session) tellGathered(tag string) {
	if s.endsWithQuery() && s.commitsAfter() {
		s.keepTag(wire.AppendCommandComplete(nil, tag))
		return
	}
	s.out = wire.AppendCommandComplete(s.out, tag)
}
