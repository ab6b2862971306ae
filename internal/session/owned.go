package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// While rows move, shards have some that they do not own. What is bound to keys by equality goes to their owners and meets no others; what runs on several shards must not see
// copies, nor must what runs where the client says, and names views in the place of tables: that is the last thing that is done to a text, whatever planned it.

// isUnbound says whether a statement is about to be sent where no key says which rows it uses: to several shards, or to the one that the client names.
func (s *session) isUnbound(st *plan.Statement) bool {
	return len(s.spreadTo) > 0 || s.whatRuns(st).Route.Hinted
}

// ownedText is a text that is about to be sent to shards whatever rows they have, as each of them uses its own rows alone. Its parameters are of the types that are declared, if any are.
func (s *session) ownedText(text string, declared []uint32) (string, *pgerr.Error) {
	m := s.currentMap()
	if m == nil || !m.IsMoving() {
		return text, nil
	}
	readable, back, refused := s.readAgain(text)
	if refused != nil {
		return "", refused
	}
	statements, err := facts.Of(readable)
	if err != nil { // whoever has made it has read it
		return "", pgerr.New(pgerr.InternalError, "a statement cannot be read again").WithDetail("%s", err)
	}
	context, refused := s.planContext()
	if refused != nil {
		return "", refused
	}
	context.Map, context.Literals = m, nil
	known, refused := s.look(statements, &context)
	if refused != nil {
		return "", refused
	}
	if known, refused = s.lookBehind(readable, statements, known, &context); refused != nil {
		return "", refused
	}
	replaced, doubtful, refused := plan.Owned(readable, statements, known, context, shard.OwnedView)
	if refused != nil || len(replaced) == 0 {
		return text, refused
	}
	edits := make([]edit, len(replaced))
	for i, r := range replaced {
		edits[i] = edit{start: back(r.Start), end: back(r.End), by: r.By}
	}
	owned := string(applyEdits([]byte(text), edits))
	if doubtful {
		return owned, s.standsIn(text, owned, declared)
	}
	return owned, nil
}

// readAgain makes a text readable that is too long because of its strings, or has some in another encoding; back tells where a place of a name is in the text itself.
func (s *session) readAgain(text string) (readable string, back func(place int) int, refused *pgerr.Error) {
	readable, back = text, func(place int) int { return place }
	if len(text) > facts.MaxText {
		var scan sqltext.Normalized
		if err := scan.Scan([]byte(text), s.standardConforming()); err != nil {
			return "", nil, pgerr.New(pgerr.InternalError, "a statement cannot be read again").WithDetail("%s", err)
		}
		readable, back = shorten(text, scan.Literals)
	}
	if s.foreignEncoding && hasHighByte([]byte(readable)) {
		readable = maskHighBytes(readable)
	}
	return readable, back, nil
}

// standsIn refuses a text in which views stand in for tables if PostgreSQL does not take it, or makes other columns of it than of the tables' own. What it does not take anyway the shards say.
func (s *session) standsIn(text, owned string, declared []uint32) *pgerr.Error {
	if len(text) <= maxPlannedText && s.tx.defined == "" {
		key := fmt.Sprint(string(s.contextKey), declared, owned)
		if known, found := s.server.planner.stoodIn.GetIfPresent(key); found {
			return known
		}
		refused := s.mayStandIn(text, owned, declared)
		if refused == nil || refused.Code == pgerr.FeatureNotSupported {
			_, _ = s.server.planner.stoodIn.Set(key, refused)
		}
		return refused
	}
	return s.mayStandIn(text, owned, declared)
}

func (s *session) mayStandIn(text, owned string, declared []uint32) *pgerr.Error {
	asked := func(text string) (answer, *pgerr.Error) {
		return s.askShard(s.home(), func() (answer, error) { return s.askTypes(text, declared) })
	}
	was, refused := asked(text)
	if refused != nil || was.failure != nil {
		return refused
	}
	is, refused := asked(owned)
	if refused != nil || is.failure == nil && slices.Equal(is.types, was.types) {
		return refused
	}
	why := "their rows are of other types."
	if is.failure != nil {
		why = "PostgreSQL says: " + is.failure.PGError().Message
	}
	return pgerr.New(pgerr.FeatureNotSupported, "this form of a statement is not supported over several shards while rows of its tables move between them").
		WithDetail("Views stand in for the tables meanwhile, and %s", why).WithHint("Name all columns in GROUP BY, and columns instead of whole rows; or bind it to a key, or try again when the move is over: cleave.moves shows it.")
}

// ownedStatement is a statement that several shards run, as each of them uses its own rows alone.
func (s *session) ownedStatement(st *statement) (*statement, *pgerr.Error) {
	text, refused := s.ownedText(st.text, st.oids)
	if refused != nil || text == st.text {
		return st, refused
	}
	owned := *st
	owned.text, owned.elsewhere, owned.serverName, owned.scan = text, true, "", nil
	if owned.origin == nil {
		owned.origin = st
	}
	if st.sql != nil { // backends know it by the name that it was given, and the text by what its names mean now
		digest := sha256.Sum256([]byte(text))
		owned.serverName = st.serverName + "_" + hex.EncodeToString(digest[:6])
		owned.sql = &sqlPrepared{types: st.sql.types, source: "PREPARE " + owned.serverName + " " + st.sql.types + " AS " + text}
	}
	return &owned, nil
}

// ownParts has the parts of a run use only what their shards own.
func (s *session) ownParts(r *spreadRun) *pgerr.Error {
	if m := s.currentMap(); m == nil || !m.IsMoving() || r.divided != plan.Same && r.divided != plan.Kept {
		return nil
	}
	made := map[*statement]*statement{}
	for i := range r.parts {
		given := r.parts[i].statement
		if made[given] == nil {
			owned, refused := s.ownedStatement(given)
			if refused != nil {
				return refused
			}
			made[given] = owned
		}
		r.parts[i].statement = made[given]
	}
	return nil
}

// ownQuery has a text that goes to several shards use only what these own.
func (s *session) ownQuery(o *op) *pgerr.Error {
	if s.loading != nil {
		return nil
	}
	text, refused := s.ownedText(string(o.data), nil)
	if refused == nil && text != string(o.data) {
		o.data, o.elsewhere = []byte(text), true
	}
	return refused
}
