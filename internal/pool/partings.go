package pool

import "sync"

// partings are the backends that were given back in the middle of something: the server goes on with a statement, and perhaps commits it, until it notices that nobody is there.
type partings struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]struct{}
}

// begin notes one, and returns what notes that the server has hung up.
func (p *partings) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[uint64]struct{}{}
	}
	p.last++
	number := p.last
	p.open[number] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, number)
	}
}

// Retired is how many backends were given back so far in the middle of something.
func (p *Pools) Retired() uint64 {
	p.partings.mu.Lock()
	defer p.partings.mu.Unlock()
	return p.partings.last
}

// HaveParted says whether the servers of the first so many of them have hung up, or were given up after a while.
func (p *Pools) HaveParted(first uint64) bool {
	p.partings.mu.Lock()
	defer p.partings.mu.Unlock()
	for number := range p.partings.open {
		if number <= first {
			return false
		}
	}
	return true
}
