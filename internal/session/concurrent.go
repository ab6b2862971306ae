package session

import (
	"fmt"
	"maps"
	"slices"
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

// indexState asks what has the name: whether it is a complete index, of which table and how it is defined.
const indexState = `SELECT i.indisvalid::text, (i.indrelid = pg_catalog.to_regclass(%s))::text, pg_catalog.pg_get_indexdef(i.indexrelid)
	FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid WHERE c.oid = pg_catalog.to_regclass(%s)`

// resumption looks which shards have the index already. It is nil for other statements. If only some have it, it must be the one that is to
// be made: one of another table, or defined in another way, only has its name.
func (s *session) resumption(st *plan.Statement, text string, shards []int) (*resumption, *pgerr.Error) {
	if st.Index == nil {
		return nil, nil
	}
	r := &resumption{index: st.Index.Name, valid: map[int]bool{}, broken: map[int]bool{}}
	found := map[int][]string{}
	for _, shard := range shards {
		rows, refused := s.rowsOn(shard, fmt.Sprintf(indexState, sqltext.QuoteLiteral(st.Index.Table), sqltext.QuoteLiteral(st.Index.Name)))
		if refused != nil {
			return nil, refused
		}
		if len(rows) == 1 {
			found[shard] = rows[0]
			r.valid[shard], r.broken[shard] = rows[0][0] == "true", rows[0][0] == "false"
		}
		r.missing = r.missing || !r.valid[shard]
	}
	if !r.missing || len(found) == 0 {
		return r, nil
	}
	return r, s.isSameIndex(st.Index, text, found)
}

// isSameIndex fails if what has the index's name on some shards is something else.
func (s *session) isSameIndex(index *plan.Index, text string, found map[int][]string) *pgerr.Error {
	wanted := ""
	for _, shard := range slices.Sorted(maps.Keys(found)) {
		state := found[shard]
		if wanted == "" && state[1] == "true" {
			var refused *pgerr.Error
			if wanted, refused = s.definitionOf(shard, index, text); refused != nil {
				return refused
			}
		}
		if state[1] != "true" || behindTable(state[2]) != wanted || strings.HasPrefix(state[2], createUnique) != index.Unique {
			return pgerr.New(duplicateTable, "relation %q already exists", index.Bare).
				WithDetail("Shard %q has something else of that name, and others have nothing.", s.shardName(shard)).
				WithHint("Choose another name. If it is an index that was left half-done: DROP INDEX IF EXISTS %s", index.Name)
		}
	}
	return nil
}

const (
	duplicateTable = "42P07"
	createUnique   = "CREATE UNIQUE INDEX"
)

// behindTable is the part of an index's definition that follows the name of its table.
func behindTable(definition string) string {
	_, rest, _ := strings.Cut(definition, " USING ")
	return rest
}

// definitionOf is how PostgreSQL writes down what the statement would make, behind the table. It is made for a moment, of a table that has the
// same columns and no rows.
func (s *session) definitionOf(shard int, index *plan.Index, text string) (string, *pgerr.Error) {
	const model = "pg_temp.cleave_model"
	create := "CREATE INDEX "
	if index.Unique {
		create = createUnique + " "
	}
	rows, refused := s.rowsOn(shard, "CREATE TEMPORARY TABLE cleave_model (LIKE "+index.Table+") ON COMMIT DROP; "+
		create+sqltext.QuoteIdentifier(index.Bare)+" ON "+model+" "+text[index.Rest:]+"\n; "+
		"SELECT pg_catalog.pg_get_indexdef(indexrelid) FROM pg_catalog.pg_index WHERE indrelid = '"+model+"'::pg_catalog.regclass")
	if refused != nil || len(rows) != 1 {
		return "", refused
	}
	return behindTable(rows[0][0]), nil
}

// rowsOn asks a shard something, outside any transaction.
func (s *session) rowsOn(shard int, sql string) ([][]string, *pgerr.Error) {
	a, refused := s.askOn(shard, sql)
	if refused == nil && a.failure != nil {
		refused = a.failure.PGError()
	}
	return a.rows, refused
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

// outsideBlocks is what PostgreSQL calls a statement that it runs outside transaction blocks only.
func outsideBlocks(st *plan.Statement) string {
	switch st.Name {
	case "CREATE INDEX", "DROP INDEX", "REINDEX":
		return st.Name + " CONCURRENTLY"
	case "ALTER TABLE":
		return "ALTER TABLE ... DETACH CONCURRENTLY"
	default:
		return st.Name
	}
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
			return "", pgerr.New(pgerr.FeatureNotSupported, "this form of password is not supported").
				WithDetail("The router makes a verifier of it, so that no shard and no log sees it.").WithHint("Write it as a plain string.")
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
