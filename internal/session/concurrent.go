package session

import (
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/auth"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/wire"
)

// progress tells the client, at once, how far something is that takes its time.
func (s *session) progress(format string, arguments ...any) {
	s.out = wire.AppendNotice(s.out, "NOTICE", pgerr.New("00000", format, arguments...))
	_ = s.write() // whoever is gone is noticed when it is answered
}

// resumption is what an earlier attempt at CREATE INDEX CONCURRENTLY has left: an index that is complete on some shards.
type resumption struct {
	index string
	// valid says of each shard whether the index is there and complete, broken whether it is there and not; missing: one has to make it.
	valid, broken map[int]bool
	missing       bool
}

const indexState = "SELECT i.indisvalid::text FROM pg_catalog.pg_index i WHERE i.indexrelid = pg_catalog.to_regclass(%s)"

// resumption looks which shards have the index already. It is nil for other statements.
func (s *session) resumption(st *plan.Statement, shards []int) (*resumption, *pgerr.Error) {
	if st.Name != "CREATE INDEX" || st.Index == "" {
		return nil, nil
	}
	r := &resumption{index: st.Index, valid: map[int]bool{}, broken: map[int]bool{}}
	for _, shard := range shards {
		a, refused := s.askOn(shard, fmt.Sprintf(indexState, sqltext.QuoteLiteral(st.Index)))
		switch {
		case refused != nil:
			return nil, refused
		case a.failure != nil:
			return nil, a.failure.PGError()
		}
		r.valid[shard] = len(a.rows) == 1 && a.rows[0][0] == "true"
		r.broken[shard] = len(a.rows) == 1 && a.rows[0][0] == "false"
		r.missing = r.missing || !r.valid[shard]
	}
	return r, nil
}

// maintainOn runs a statement on one shard. An index that an earlier attempt has completed there is left as it is, and one that it has
// not is made anew; if all shards have it, each says that it exists.
func (s *session) maintainOn(shard int, text string, r *resumption) (answer, *pgerr.Error) {
	if r == nil || !r.missing {
		return s.askOn(shard, text)
	}
	if r.valid[shard] {
		return answer{tag: "CREATE INDEX"}, nil
	}
	if r.broken[shard] {
		if a, refused := s.askOn(shard, "DROP INDEX CONCURRENTLY "+r.index); refused != nil || a.failure != nil {
			return a, refused
		}
	}
	return s.askOn(shard, text)
}

// samePassword makes a verifier of a password, since every shard would make another one of it, and clients log in to all of them with
// one proof.
func (s *session) samePassword(st *plan.Statement, text string) (string, *pgerr.Error) {
	if st.PasswordAt == 0 {
		return text, nil
	}
	var scan sqltext.Normalized
	if err := scan.Scan([]byte(text), s.standardConforming()); err != nil {
		return "", pgerr.New(pgerr.InternalError, "the password could not be found")
	}
	for i, literal := range scan.Literals {
		if literal.Start < st.PasswordAt-1-st.Start {
			continue
		}
		value, readable := scan.Value([]byte(text), i)
		if !readable {
			return "", pgerr.New(pgerr.FeatureNotSupported, "this form of password is not supported").WithHint("Write it as a plain string.")
		}
		if isVerifier(string(value)) {
			return text, nil
		}
		verifier, err := auth.NewVerifier(string(value), 0)
		if err != nil {
			return "", pgerr.New(pgerr.InvalidParameterValue, "%s", err)
		}
		return text[:literal.Start] + sqltext.QuoteLiteral(verifier.String()) + text[literal.End:], nil
	}
	return "", pgerr.New(pgerr.InternalError, "the password could not be found")
}

// isVerifier says whether PostgreSQL stores a password as it is.
func isVerifier(password string) bool {
	_, err := auth.ParseVerifier(password)
	return err == nil || strings.HasPrefix(password, "md5") && len(password) == len("md5")+32
}
