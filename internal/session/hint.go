package session

import (
	"bytes"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// hintMark begins a comment that is for the router.
const hintMark = "cleave:"

// hintIn returns the shard that a comment of a text names, as in /* cleave: shard=shard2 */; empty if none does. What stands in a literal
// is no hint.
func (s *session) hintIn(text []byte) (shard string, refused *pgerr.Error) {
	if !bytes.Contains(text, []byte(hintMark)) {
		return "", nil
	}
	sqltext.Comments(text, s.standardConforming(), func(comment []byte) bool {
		words, isHint := strings.CutPrefix(strings.TrimSpace(string(comment)), hintMark)
		if isHint {
			shard, refused = s.readHint(strings.TrimSpace(words))
		}
		return !isHint
	})
	return shard, refused
}

func (s *session) readHint(words string) (shard string, refused *pgerr.Error) {
	name, isShard := strings.CutPrefix(words, "shard=")
	if !isShard || strings.ContainsAny(name, " \t\n,=") {
		return "", pgerr.New(pgerr.InvalidParameterValue, "routing hint \"%s\" is not known", words).WithHint("There is /* cleave: shard=NAME */.")
	}
	if s.currentMap().Shard(name) == nil {
		return "", pgerr.New(pgerr.UndefinedObject, "shard \"%s\" of a routing hint does not exist", name).WithHint("SELECT name FROM cleave.shards lists them.")
	}
	return name, nil
}

// noteHint says in the log that a client's word has decided where a statement runs, once for each session and route.
func (s *session) noteHint(st *plan.Statement) {
	what := st.Route.Shard
	if what == "" {
		what = "key " + s.shardKey
	}
	if s.hinted == what {
		return
	}
	s.hinted = what
	s.server.config.Logger.Info("a routing hint decides where statements of a session run", "session", s.number, "user", s.user, "hint", what, "statement", st.Name)
}
