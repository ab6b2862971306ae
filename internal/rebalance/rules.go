package rebalance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// Rule binds keys to shards with a label, such as region=eu. Where several rules bind a key, it needs all of their labels.
type Rule struct {
	Keyspace string `json:"keyspace"`
	// From and To bound what is bound in the keyspace's order, hashes or raw keys; nothing is the beginning and the end. A range that is bound in part goes as a whole if it may not be
	// cut. A pinned key is bound as the place is that it would have without its pin.
	From topology.Point `json:"from,omitempty"`
	To   topology.Point `json:"to,omitempty"`
	// Key is one pinned key, such as a schema, instead of From and To.
	Key   topology.Point `json:"key,omitempty"`
	Label string         `json:"label"`
	Value string         `json:"value"`
}

// label is a label with the value that it must have.
type label struct{ name, value string }

func (l label) String() string { return l.name + "=" + l.value }

// boundRule is a rule in terms of its keyspace's order.
type boundRule struct {
	label
	span span
	key  string // of a pin; empty if the rule has a span
	used bool   // whether the pin is there
}

// bindRules returns the rules of one keyspace.
func bindRules(k *topology.Keyspace, rules []Rule) ([]boundRule, error) {
	var bound []boundRule
	for _, r := range rules {
		if r.Keyspace != k.Name() {
			continue
		}
		b, err := r.bind(k)
		if err != nil {
			return nil, fmt.Errorf("rule %s of keyspace %q: %w", b.label, k.Name(), err)
		}
		bound = append(bound, b)
	}
	return bound, nil
}

func (r Rule) bind(k *topology.Keyspace) (b boundRule, err error) {
	b.label = label{r.Label, r.Value}
	if r.Label == "" || r.Value == "" {
		return b, errors.New("a rule needs a label and its value")
	}
	if len(r.Key) > 0 {
		if len(r.From) > 0 || len(r.To) > 0 {
			return b, errors.New("it has both a key and bounds")
		}
		b.key, err = k.Encode(r.Key)
		return b, err
	}
	if b.span.Lo, err = encodeBound(k, r.From); err != nil {
		return b, err
	}
	if b.span.Hi, err = encodeBound(k, r.To); err != nil {
		return b, err
	}
	if b.span.Hi != "" && b.span.Hi <= b.span.Lo {
		return b, fmt.Errorf("from %s to %s there is nothing", r.From, r.To)
	}
	return b, nil
}

// checkRules makes sure that every rule is about something.
func checkRules(m *topology.Map, rules []Rule) error {
	for _, r := range rules {
		if m.Keyspace(r.Keyspace) == nil {
			return fmt.Errorf("rule %s: %w", label{r.Label, r.Value}, &topology.NotFoundError{Kind: "keyspace", Name: r.Keyspace})
		}
	}
	return nil
}

// ruleCuts returns where rules begin and end, in order.
func ruleCuts(rules []boundRule) []string {
	var cuts []string
	for _, r := range rules {
		if r.key == "" {
			cuts = append(cuts, r.span.Lo, r.span.Hi)
		}
	}
	slices.Sort(cuts)
	return slices.DeleteFunc(slices.Compact(cuts), func(cut string) bool { return cut == "" })
}

// labelsOfRange returns what a range needs.
func labelsOfRange(rules []boundRule, s span) []label {
	var labels []label
	for _, r := range rules {
		if r.key == "" && overlap(s, r.span) {
			labels = append(labels, r.label)
		}
	}
	return labels
}

// labelsOfPin returns what a pinned key needs, and notes that there is such a pin.
func labelsOfPin(k *topology.Keyspace, rules []boundRule, encoded string) []label {
	var labels []label
	for i := range rules {
		r := &rules[i]
		switch {
		case r.key == encoded:
			r.used = true
			labels = append(labels, r.label)
		case r.key == "" && r.span.Contains(placeOfKey(k, encoded)):
			labels = append(labels, r.label)
		}
	}
	return labels
}

// placeOfKey says where a key is in the keyspace's order.
func placeOfKey(k *topology.Keyspace, encoded string) string {
	if k.Strategy() == topology.ByRange {
		return encoded
	}
	var values []key.Value
	for _, t := range k.KeyTypes() {
		value, rest, err := t.CutOrdered(encoded)
		if err != nil {
			panic("rebalance: " + err.Error()) // pins are decoded when a map is made
		}
		values, encoded = append(values, value), rest
	}
	return hashBound(k.Hash(values...))
}

// class is all that needs the same labels.
type class struct {
	labels   []label
	eligible []bool // which shards may take it, by their place in the planner
	open     bool   // whether there is such a shard
}

func (c *class) String() string {
	texts := make([]string, len(c.labels))
	for i, l := range c.labels {
		texts[i] = l.String()
	}
	return strings.Join(texts, ", ")
}

// allows says whether the shard has all labels.
func (c *class) allows(s *topology.Shard) bool {
	return !slices.ContainsFunc(c.labels, func(l label) bool { return s.Label(l.name) != l.value })
}

// classOf returns the class of what needs these labels. The first class needs none.
func (p *planner) classOf(labels []label) int {
	if len(labels) == 0 && len(p.classes) > 0 {
		return 0
	}
	slices.SortFunc(labels, func(a, b label) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value)) })
	labels = slices.Compact(labels)
	if at := slices.IndexFunc(p.classes, func(c class) bool { return slices.Equal(c.labels, labels) }); at >= 0 {
		return at
	}
	c := class{labels: labels, eligible: make([]bool, len(p.shards))}
	for i := range p.shards {
		c.eligible[i] = p.shards[i].role == taking && c.allows(p.shards[i].Shard)
		c.open = c.open || c.eligible[i]
	}
	p.classes = append(p.classes, c)
	return len(p.classes) - 1
}

// setTargets says what each shard should have: its share by weight, but more where rules leave no other place. Of all sets of shards that a class is bound to, the one that
// would be fullest is settled first, with all that can be nowhere else; the others share the rest. For classes of which one includes the other, or that have no shard in
// common, no fairer shares are possible.
func (p *planner) setTargets(demand []int64) {
	free := make([]bool, len(p.shards))
	for i := range p.shards {
		free[i] = p.shards[i].role == taking
	}
	open := make([]bool, len(p.classes))
	for i := range open {
		open[i] = true
	}
	for {
		tightest, fill := p.tightest(demand, free, open)
		if tightest < 0 {
			return
		}
		for c := range p.classes {
			open[c] = open[c] && !p.within(c, tightest, free)
		}
		for i := range p.shards {
			if free[i] && p.classes[tightest].eligible[i] {
				p.shards[i].setTarget(fill*p.shards[i].Weight(), p.options.Tolerance)
				free[i] = false
			}
		}
	}
}

// tightest returns the class whose shards would be fullest by weight if all that can be nowhere else were on them, the first class if it is all the same.
func (p *planner) tightest(demand []int64, free, open []bool) (at int, fill float64) {
	at = -1
	for c := range p.classes {
		weight, sum := 0.0, int64(0)
		for i := range p.shards {
			if free[i] && p.classes[c].eligible[i] {
				weight += p.shards[i].Weight()
			}
		}
		for other := range p.classes {
			if open[other] && p.within(other, c, free) {
				sum += demand[other]
			}
		}
		// Nothing is tighter than its superset by rounding alone.
		if weight > 0 && (at < 0 || float64(sum)/weight > fill*(1+1e-9)) {
			at, fill = c, float64(sum)/weight
		}
	}
	return at, fill
}

// within says whether all free shards of one class are of the other too.
func (p *planner) within(inner, outer int, free []bool) bool {
	for i, f := range free {
		if f && p.classes[inner].eligible[i] && !p.classes[outer].eligible[i] {
			return false
		}
	}
	return true
}
