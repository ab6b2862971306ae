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
	// begun says for which shard, by its place, data has come. start is the header of binary data, until something follows it.
	begun int
	start []byte
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

// gatherData says whether the client is to see a message of data as it is. A message has one row, or the header; the header of binary data comes with the
// first row, or with the end.
func (s *session) gatherData(message []byte) (show bool) {
	g := s.gather
	if g.failed {
		return false
	}
	if !g.unload.looks() {
		return g.gives()
	}
	isFirst := g.unload.begun < g.at
	g.unload.begun = g.at
	if !g.unload.binary {
		if isFirst {
			return g.at == 0
		}
		return g.gives()
	}
	row := wire.Body(message)
	if isFirst && len(row) >= binaryHeader {
		if g.at == 0 {
			g.unload.start = slices.Clone(row[:binaryHeader])
		}
		row = row[binaryHeader:]
	}
	if isEnd := string(row) == binaryEnd; isEnd && g.at == g.last || !isEnd && len(row) > 0 && g.gives() {
		s.instead = wire.AppendCopyData(s.instead, append(g.unload.start, row...))
		g.unload.start = nil
	}
	return false
}
