package session

import (
	"slices"
	"sync"
)

// resolved are the types of a text's parameters for what clients declare of them, as a server resolved them.
type resolved struct {
	mu      sync.RWMutex
	entries []resolvedEntry
}

type resolvedEntry struct {
	declared, types []uint32
	columns         string // as columnsOf writes them
}

// maxResolved bounds how many ways to declare the parameters of one text are remembered.
const maxResolved = 16

func (p *planned) types(declared []uint32) []uint32 {
	p.resolved.mu.RLock()
	defer p.resolved.mu.RUnlock()
	for _, e := range p.resolved.entries {
		if slices.Equal(e.declared, declared) {
			return e.types
		}
	}
	return nil
}

// columns are those of the answer; false if nobody has asked yet.
func (p *planned) columns(declared []uint32) (string, bool) {
	p.resolved.mu.RLock()
	defer p.resolved.mu.RUnlock()
	for _, e := range p.resolved.entries {
		if slices.Equal(e.declared, declared) {
			return e.columns, true
		}
	}
	return "", false
}

func (p *planned) keepTypes(declared, types []uint32, columns string) {
	p.resolved.mu.Lock()
	defer p.resolved.mu.Unlock()
	if len(p.resolved.entries) < maxResolved {
		p.resolved.entries = append(p.resolved.entries, resolvedEntry{slices.Clone(declared), types, columns})
	}
}
