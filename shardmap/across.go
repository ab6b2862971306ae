package shardmap

import "errors"

// ErrTxDone is returned by a [Tx] that is used after its callback has returned.
var ErrTxDone = errors.New("shardmap: the transaction is over")

// Across runs fn on several keys, of whatever shards, as one step. It is the
// only way to touch more than one shard at once.
//
// Fn reads and writes the named keys, and no others, through its [Tx]. If it
// returns nil, all its writes happen; if it returns an error or panics, none
// does, and Across returns the error or goes on with the panic. For everybody
// else, including plain Get and Set, the writes happen at a single moment.
//
// While fn runs, the locks of the shards are held, and whoever wants one of the
// keys waits: fn must be quick and must not call the same map, nor another whose
// callbacks call this one (for two maps there is [Cross]). Locks are taken
// in one order everywhere, so calls of Across cannot deadlock one another. A key
// may be named twice.
func (m *Map[K, V]) Across(keys []Routed[K], fn func(tx *Tx[K, V]) error) error {
	if err := m.checkAll(keys); err != nil {
		return err
	}
	shards := make([]*shard, len(keys))
	for i, key := range keys {
		shards[i] = m.shard(key.hash)
	}
	defer lockAll(shards)()

	tx := &Tx[K, V]{m: m, held: make([]held[K, V], 0, len(keys))}
	// Also after a panic; in this order, and before the locks are given back.
	defer tx.shrink()
	defer tx.end()
	for _, key := range keys {
		if tx.find(key) == nil {
			tx.held = append(tx.held, m.hold(key))
		}
	}
	if err := fn(tx); err != nil {
		return err
	}
	tx.commit = true
	return nil
}

func (m *Map[K, V]) checkAll(keys []Routed[K]) error {
	for _, key := range keys {
		if err := m.check(key); err != nil {
			return err
		}
		if !equalsItself(key.key) {
			return &AffinityError{Reason: ErrNotEqualToItself, Want: -1, Got: key.Shard()}
		}
	}
	return nil
}

// Tx reads and writes the keys named in one call of [Map.Across]. It is for the
// goroutine and the duration of that callback only.
type Tx[K comparable, V any] struct {
	m      *Map[K, V]
	held   []held[K, V]
	commit bool
	done   bool
}

// Get returns the value of a named key and whether it is there, with the writes
// of this transaction applied.
func (tx *Tx[K, V]) Get(key Routed[K]) (value V, present bool, err error) {
	h, err := tx.named(key)
	if err != nil {
		return value, false, err
	}
	value, present = h.cell.Get()
	return value, present, nil
}

// Set stores a value under a named key.
func (tx *Tx[K, V]) Set(key Routed[K], value V) error {
	h, err := tx.named(key)
	if err != nil {
		return err
	}
	h.cell.Set(value)
	return nil
}

// Delete removes a named key.
func (tx *Tx[K, V]) Delete(key Routed[K]) error {
	h, err := tx.named(key)
	if err != nil {
		return err
	}
	h.cell.Delete()
	return nil
}

func (tx *Tx[K, V]) named(key Routed[K]) (*held[K, V], error) {
	if tx.done {
		return nil, ErrTxDone
	}
	if err := tx.m.check(key); err != nil {
		return nil, err
	}
	h := tx.find(key)
	if h == nil {
		return nil, &AffinityError{Reason: ErrNotNamed, Want: -1, Got: key.Shard()}
	}
	return h, nil
}

// find goes through the keys one by one: a transaction names a few.
func (tx *Tx[K, V]) find(key Routed[K]) *held[K, V] {
	for i := range tx.held {
		h := &tx.held[i]
		if h.hash == key.hash && h.entry.key == key.key {
			return h
		}
	}
	return nil
}

func (tx *Tx[K, V]) end() {
	tx.done = true
	for i := range tx.held {
		tx.m.release(&tx.held[i], tx.commit)
	}
}

func (tx *Tx[K, V]) shrink() {
	for i := range tx.held {
		hash := tx.held[i].hash
		tx.m.shrinkIfSparse(tx.m.shard(hash), hash)
	}
}

// Cell is one key as a callback sees it: the value it had, with what the callback
// has done to it since. It is for the goroutine and the duration of that callback
// only.
type Cell[V any] struct {
	value   V
	present bool
}

// Get returns the value and whether there is one.
func (c *Cell[V]) Get() (V, bool) { return c.value, c.present }

// Set stores a value.
func (c *Cell[V]) Set(value V) { c.value, c.present = value, true }

// Delete removes the value.
func (c *Cell[V]) Delete() { *c = Cell[V]{} }

// held is a key that nobody else can see or change: its entry is unsettled. A
// key that was not there has an entry all the same, so that whoever looks for
// it waits too.
type held[K comparable, V any] struct {
	hash  uint64
	entry *entry[K]
	was   Cell[V]
	cell  Cell[V]
}

// hold takes a key away from everybody else, under the lock.
func (m *Map[K, V]) hold(key Routed[K]) held[K, V] {
	h := held[K, V]{hash: key.hash, entry: m.table(key.hash).find(key.hash, key.key)}
	if h.entry == nil {
		h.entry = m.values.makeUnsettled(key.key)
		m.insert(m.shard(key.hash), key.hash, h.entry)
		return h
	}
	h.was.Set(m.values.unsettle(h.entry))
	h.cell = h.was
	return h
}

// release gives a key back as it was or as it has become, under the lock.
func (m *Map[K, V]) release(h *held[K, V], commit bool) {
	s := m.shard(h.hash)
	outcome := h.was
	if commit {
		outcome = h.cell
		s.count(h.was.present, h.cell.present)
	}
	if value, present := outcome.Get(); present {
		m.values.settle(h.entry, value)
	} else {
		m.remove(s, h.hash, h.entry)
	}
}

// count counts the change of one key.
func (s *shard) count(was, is bool) {
	if is && !was {
		s.inserts++
	}
	if was && !is {
		s.deletes++
	}
}
