package session

import "github.com/cleavedb/cleave/internal/traffic"

// counting is which statements of a session count, and when. Statements are placed more than once before they are sent, and some are sent otherwise after all: only what routeTo
// places counts, and the statements of one text when it is clear that they go together.
type counting struct {
	on      bool // what is looked up now is about to be sent
	putOff  bool // it is not clear yet whether it is sent like that
	numbers []*traffic.Number
}

// count counts what was looked up, or puts that off.
func (c *counting) count(n *traffic.Number) {
	if !c.putOff {
		n.Add()
		return
	}
	c.numbers = append(c.numbers, n)
}

// begin puts counting off.
func (c *counting) begin() { c.putOff, c.numbers = true, c.numbers[:0] }

// end counts what was put off, or forgets it, because it will be placed again.
func (c *counting) end(counts bool) {
	for _, n := range c.numbers {
		if counts {
			n.Add()
		}
	}
	c.putOff, c.numbers = false, c.numbers[:0]
}
