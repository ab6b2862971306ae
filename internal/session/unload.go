package session

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// unload is a COPY TO the client whose rows come from several shards, one after the other: one header, all rows, one end.
type unload struct {
	header, binary bool
	// begun says for which shard, by its place, data has come.
	begun int
}

// Binary data begins with a header of this length and ends with a count of columns that is -1.
const (
	binaryHeader = 19
	binaryEnd    = "\xff\xff"
)

func newUnload(load *plan.Load) *unload {
	u := &unload{begun: -1}
	for _, o := range load.Options {
		switch o.Name {
		case "format":
			u.binary = o.Value == "binary"
		case "header":
			u.header = o.Bare || slices.Contains([]string{"true", "on", "1"}, strings.ToLower(o.Value))
		}
	}
	return u
}

// looks says whether data has to be looked into.
func (u *unload) looks() bool { return u != nil && (u.header || u.binary) }

// gatherData says whether the client is to see a message of data as it is.
func (s *session) gatherData(message []byte) (show bool) {
	g := s.gather
	if g.failed {
		return false
	}
	if !g.unload.looks() {
		return true
	}
	isFirst := g.unload.begun < g.at
	g.unload.begun = g.at
	if !g.unload.binary {
		return !isFirst || g.at == 0 // the header is a message of its own
	}
	data := wire.Body(message)
	if isFirst && g.at > 0 && len(data) >= binaryHeader {
		data = data[binaryHeader:]
	}
	if g.at < g.last { // the end is the last one's
		if rest, ends := strings.CutSuffix(string(data), binaryEnd); ends && (rest == "" || isFirst && g.at == 0 && len(rest) == binaryHeader) {
			data = data[:len(rest)]
		}
	}
	if len(data) > 0 {
		s.instead = wire.AppendCopyData(s.instead, data)
	}
	return false
}
