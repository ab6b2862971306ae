package rebalance

import (
	"slices"

	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// maxMoveParts is how many pins, and ranges that do not follow each other, one move has, and maxMoveText how long all of their points are: it is stored as one job, and servers look through all of it for each row.
	maxMoveParts = 2000
	maxMoveText  = 256 << 10
)

// Room is what is left in a move. The zero value is a move that has nothing yet.
type Room struct {
	parts, text int
	last        topology.Point // where the last range ended
}

// Range puts a range into the move, and says false if there is no room for it. One that begins where the last one ended takes none.
func (r *Room) Range(from, to topology.Point) bool {
	follows := len(from) > 0 && slices.Equal(r.last, from)
	if !follows && !r.take(from, to) {
		return false
	}
	r.last = to
	return true
}

// Pin puts a pinned key into the move, and says false if there is no room for it.
func (r *Room) Pin(key topology.Point) bool { return r.take(key) }

func (r *Room) take(points ...topology.Point) bool {
	text := 0
	for _, p := range points {
		for _, value := range p {
			text += len(value)
		}
	}
	if r.parts > 0 && (r.parts == maxMoveParts || r.text+text > maxMoveText) {
		return false
	}
	r.parts, r.text = r.parts+1, r.text+text
	return true
}
