package session

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cleavedb/cleave/internal/compose"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// Pulls need not all run at once: if one gives few rows, and another is compared with it, then only those rows of the other matter that have one of its
// values. So the small one is pulled first, and its values are sent along as a filter. How many rows a pull gives is estimated by a server, once.

// maxKeys is how many values a filter has at most; worth is how many times more rows the filtered pull has to have, and manyRows how many at least.
const (
	maxKeys  = 20_000
	worth    = 4
	manyRows = 1000
)

// estimates are how many rows pulls give, by a server's guess.
type estimates struct {
	mu   sync.Mutex
	rows []float64
}

// filter says that rows of a pull are wanted only where a column has one of the values of another pull's.
type filter struct {
	column int
	from   int
	of     int
}

// phase is a set of pulls that run together, with the filters of each.
type phase map[int][]filter

// phasesOf says in which order pulls run; one phase if there is nothing to gain, or no snapshot that all phases could see.
func (s *session) phasesOf(c *composing, pulls []pull) ([]phase, *pgerr.Error) {
	all := phase{}
	for i := range pulls {
		if len(pulls[i].shards) > 0 {
			all[i] = nil
		}
	}
	if len(c.outline.composition.Links) == 0 || len(all) < 2 || !s.maySnapshot() {
		return []phase{all}, nil
	}
	rows, refused := s.estimate(c, pulls)
	if refused != nil {
		return nil, refused
	}
	links := slices.DeleteFunc(slices.Clone(c.outline.composition.Links), func(l compose.Link) bool { return !c.outline.comparesAlike(l) })
	level, filters := levelsOf(links, rows, all)
	var phases []phase
	for at := 0; ; at++ {
		now := phase{}
		for i := range all {
			if level[i] == at {
				now[i] = filters[i]
			}
		}
		if len(now) == 0 {
			break
		}
		phases = append(phases, now)
	}
	if len(phases) > 1 {
		s.startSnapshot()
	}
	return phases, nil
}

// comparesAlike says whether both columns of a link are compared by one collation, so that values of one can stand for those of the other.
func (m *outline) comparesAlike(l compose.Link) bool {
	a, b := &m.pulls[l.Pull].columns[l.Column], &m.pulls[l.OtherPull].columns[l.OtherColumn]
	return a.collationName() == b.collationName()
}

// levelsOf says in which phase each pull runs, and by what it is filtered.
func levelsOf(links []compose.Link, rows []float64, all phase) (level map[int]int, filters map[int][]filter) {
	level, filters = map[int]int{}, map[int][]filter{}
	order := make([]int, 0, len(all))
	for i := range all {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rows[a], rows[b]), cmp.Compare(a, b))
	})
	for _, i := range order { // what it may be filtered by has fewer rows, so its place is known
		for _, l := range links {
			if _, runs := all[l.OtherPull]; l.Pull != i || !runs || rows[i] < manyRows || rows[l.OtherPull] > maxKeys || rows[l.OtherPull]*worth > rows[i] {
				continue
			}
			filters[i] = append(filters[i], filter{column: l.Column, from: l.OtherPull, of: l.OtherColumn})
			level[i] = max(level[i], level[l.OtherPull]+1)
		}
	}
	return level, filters
}

// maySnapshot says whether the statement can be given a transaction of its own, in which all that it asks a shard is of one moment.
func (s *session) maySnapshot() bool {
	return s.tx.begin == "" && !s.inText && !s.wantsConsistent() && s.backend == nil && !s.isSpread() &&
		(s.inHand == 'Q' || s.in.endsUnit(s.server.config.MaxMessage))
}

// estimate asks a server how many rows pulls give.
func (s *session) estimate(c *composing, pulls []pull) ([]float64, *pgerr.Error) {
	known := &c.outline.estimates
	known.mu.Lock()
	rows := known.rows
	known.mu.Unlock()
	if rows != nil {
		return rows, nil
	}
	rows = make([]float64, len(pulls))
	formats, values := c.values()
	a, refused := s.askShard(s.home(), func() (answer, error) {
		for i := range pulls {
			if len(pulls[i].shards) == 0 {
				continue
			}
			a, err := s.askParams("EXPLAIN "+pulls[i].text, s.numbering().declared(c.outline.params), formats, values)
			if err != nil || a.failure != nil {
				return a, err
			}
			if len(a.rows) > 0 {
				rows[i] = estimatedRows(a.rows[0][0]) * float64(len(pulls[i].shards))
			}
		}
		return answer{}, nil
	})
	if refused != nil {
		return nil, refused
	}
	if a.failure != nil {
		return nil, withoutPlace(a).failure.PGError()
	}
	known.mu.Lock()
	known.rows = rows
	known.mu.Unlock()
	return rows, nil
}

// estimatedRows reads the estimate in the first line of a plan.
func estimatedRows(line string) float64 {
	_, rest, found := strings.Cut(line, " rows=")
	if !found {
		return 0
	}
	number, _, _ := strings.Cut(rest, " ")
	rows, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return rows
}

// filtered is a pull with its filters: the text, and the arrays that it takes as parameters behind those of the client.
func (b *basin) filtered(pull int, text string, filters []filter, first int) (string, []givenArray, *pgerr.Error) {
	var arrays []givenArray
	var conditions []string
	for _, f := range filters {
		keys, refused := b.keys(f.from, f.of)
		if refused != nil {
			return "", nil, refused
		}
		if keys == nil {
			continue
		}
		arrays = append(arrays, *keys)
		conditions = append(conditions, "q."+columnName(f.column)+" OPERATOR(pg_catalog.=) ANY ($"+strconv.Itoa(first+len(arrays))+")")
	}
	if len(conditions) == 0 {
		return text, nil, nil
	}
	names := make([]string, len(b.c.outline.pulls[pull].columns))
	for i := range names {
		names[i] = columnName(i)
	}
	return "SELECT q.* FROM (" + text + ") AS q(" + strings.Join(names, ", ") + ") WHERE " + strings.Join(conditions, " AND "), arrays, nil
}

// givenArray is an array that a statement takes as a parameter.
type givenArray struct {
	oid   uint32
	value []byte
}

// keys are the values of a pull's column, each once; nil if there are too many.
func (b *basin) keys(pull, column int) (*givenArray, *pgerr.Error) {
	c := &b.c.outline.pulls[pull].columns[column]
	if !c.binary || c.isArray {
		return nil, nil
	}
	seen := map[string]bool{}
	var elements []byte
	tooMany := false
	refused := b.eachRow(pull, func(fields [][]byte) bool {
		field := fields[column]
		if int32(binary.BigEndian.Uint32(field)) < 0 || seen[string(field)] {
			return true
		}
		if tooMany = len(seen) == maxKeys || !b.held.add(int64(len(field))); tooMany { // then all rows come
			return false
		}
		seen[string(field)] = true
		elements = append(elements, field...)
		return true
	})
	if refused != nil || tooMany {
		return nil, refused
	}
	return &givenArray{oid: c.array, value: arrayOf(c.elementType(), len(seen), elements)}, nil
}

// arrayOf is an array of one dimension in binary format, without NULLs.
func arrayOf(element uint32, count int, elements []byte) []byte {
	dimensions := uint32(1)
	if count == 0 {
		dimensions = 0
	}
	array := binary.BigEndian.AppendUint32(nil, dimensions)
	array = binary.BigEndian.AppendUint32(array, 0)
	array = binary.BigEndian.AppendUint32(array, element)
	if count == 0 {
		return array
	}
	array = binary.BigEndian.AppendUint32(array, uint32(count))
	array = binary.BigEndian.AppendUint32(array, 1)
	return append(array, elements...)
}
