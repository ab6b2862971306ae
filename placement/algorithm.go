package placement

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/cleavedb/cleave/placement/key"
)

// Placer says, key by key, which shard a key belongs to. Shards are numbers: their place in the list that the placer was
// made for.
type Placer interface {
	// Place returns the shard of the key with this hash.
	Place(hash uint64) int
	// Replicas appends to dst k distinct shards for the key, the one of Place first. If fewer than k shards can be
	// reached it appends those.
	Replicas(dst []int, hash uint64, k int) []int
}

// Algorithm assigns keys to shards, in two ways.
type Algorithm interface {
	// Info tells the algorithm's name and how it does both.
	Info() Info
	// Keys returns a placer for keys one by one.
	Keys(shards []Shard) (Placer, error)
	// Ranges returns the map for these shards. From is the map in force, nil if there is none: an algorithm with memory
	// starts from it, the others need only the shards. What the map's numbers mean, [Map.Shards] says: mostly the shards
	// as given, but an algorithm that keeps seats leaves them where they were.
	Ranges(from *Map, shards []Shard) (*Map, error)
}

// Info describes an algorithm.
type Info struct {
	// Name is what [New] takes.
	Name string `json:"name"`
	// Summary is one line for people who choose.
	Summary string `json:"summary"`
	// Origin is the paper or the practice that it comes from.
	Origin string `json:"origin"`
	// Keys says how keys one by one are placed.
	Keys string `json:"keys"`
	// Ranges says what its maps are made of.
	Ranges string `json:"ranges"`
	// Weighted says whether unequal weights are honoured; if not they are refused.
	Weighted bool `json:"weighted"`
	// Remembers says whether the map that it gives depends on the map in force.
	Remembers bool `json:"remembers"`
}

// How an algorithm works on keys and on ranges; the words of Info.
const (
	keysDirect  = "direct"
	keysByMap   = "through its map"
	rangesArcs  = "arcs of the ring, exactly what its keys see"
	rangesSlots = "slots, each placed as a key would be"
	rangesEven  = "slots, counted out evenly"
	rangesOwn   = "ranges of any length"
)

// Names of the algorithms.
const (
	nameRing               = "ring"
	nameRing32             = "ring32"
	nameRendezvous         = "rendezvous"
	nameRendezvousFast     = "rendezvous-fast"
	nameJump               = "jump"
	nameModulo             = "modulo"
	nameFibonacci          = "fibonacci"
	nameSlots              = "slots"
	nameDoubling           = "doubling"
	nameWeightedRing       = "weighted-ring"
	nameWeightedRendezvous = "weighted-rendezvous"
	nameBounded            = "bounded"
	nameMinimal            = "minimal"
)

// Config tunes the algorithms. The zero value is the default.
type Config struct {
	// VirtualNodes is how many points a shard of weight 1 has on a ring; 150 by default.
	VirtualNodes int
	// Slots is how many equal parts the space has for algorithms that place slots: a power of two; 1,024 by default.
	Slots int
	// LoadFactor bounds a shard's load under bounded loads to this multiple of its fair share; 1.25 by default, more
	// than 1.
	LoadFactor float64
	// NodeHash hashes the names of shards and virtual nodes; PostgreSQL's hash of the text with seed 0 by default. It has
	// to fill all 64 bits, for a ring begins with the upper ones: a 32-bit hash belongs into the upper half.
	NodeHash func(label string) uint64
}

// defaultSlots is the usual number of logical shards.
const defaultSlots = 1024

// Limits that keep a slip of the pen from filling the memory.
const (
	maxVirtualNodes = 1 << 20
	maxPoints       = 1 << 25 // virtual nodes of all shards
	maxSlots        = 1 << 28
)

// slots tells what the algorithm that embeds this configuration places at slot level.
func (c Config) slots() int { return c.Slots }

func (c Config) withDefaults() (Config, error) {
	if c.VirtualNodes == 0 {
		c.VirtualNodes = 150
	}
	if c.Slots == 0 {
		c.Slots = defaultSlots
	}
	if c.LoadFactor == 0 {
		c.LoadFactor = 1.25
	}
	if c.NodeHash == nil {
		c.NodeHash = func(label string) uint64 { return key.HashText(label, 0) }
	}
	return c, c.check()
}

func (c Config) check() error {
	switch {
	case c.VirtualNodes < 1 || c.VirtualNodes > maxVirtualNodes:
		return fmt.Errorf("%d virtual nodes: a shard has from 1 to %d", c.VirtualNodes, maxVirtualNodes)
	case c.Slots < 1 || c.Slots > maxSlots || bits.OnesCount(uint(c.Slots)) != 1:
		return fmt.Errorf("%d slots: their number is a power of two up to %d", c.Slots, maxSlots)
	case !(c.LoadFactor > 1) || math.IsInf(c.LoadFactor, 0):
		return fmt.Errorf("load factor %v: it must be more than 1, or some key has nowhere to go", c.LoadFactor)
	default:
		return nil
	}
}

// makers is every algorithm, in the order in which they are listed.
var makers = []func(Config) Algorithm{
	func(c Config) Algorithm { return ring{c, false} },
	func(c Config) Algorithm { return ring{c, true} },
	func(c Config) Algorithm { return rendezvous{c} },
	func(c Config) Algorithm { return rendezvousFast{c} },
	func(c Config) Algorithm { return jump{c} },
	func(c Config) Algorithm { return modulo{c} },
	func(c Config) Algorithm { return fibonacci{c} },
	func(c Config) Algorithm { return evenSlots{c} },
	func(c Config) Algorithm { return doubling{c} },
	func(c Config) Algorithm { return weightedRing{c} },
	func(c Config) Algorithm { return weightedRendezvous{c} },
	func(c Config) Algorithm { return bounded{c} },
	func(c Config) Algorithm { return minimal{c} },
}

// Algorithms describes every algorithm that [New] knows.
func Algorithms() []Info {
	infos := make([]Info, len(makers))
	for i, make := range makers {
		infos[i] = make(Config{}).Info()
	}
	return infos
}

// ErrUnknownAlgorithm is wrapped by the error of [New] for a name that it does not know.
var ErrUnknownAlgorithm = errors.New("unknown algorithm")

// New returns the algorithm of that name. "even" is another name for even slots.
func New(name string, config Config) (Algorithm, error) {
	if name == "even" {
		name = nameSlots
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(makers))
	for i, make := range makers {
		algorithm := make(config)
		if names[i] = algorithm.Info().Name; names[i] == name {
			return algorithm, nil
		}
	}
	return nil, fmt.Errorf("%w %q: use one of %s", ErrUnknownAlgorithm, name, strings.Join(names, ", "))
}

// mix is a bijection that spreads every input bit over all output bits: David Stafford's thirteenth variant of Murmur3's
// finaliser, as in SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x
}

// golden is 2^64 divided by the golden ratio, made odd.
const golden = 0x9e3779b97f4a7c15

// slotKey is the hash under which a slot is placed by algorithms that place slots as they would place keys.
func slotKey(slot int) uint64 { return mix(golden * uint64(slot+1)) }

// slotMap places every slot and makes a map of them. An algorithm that throws slots at shards by hash can leave a shard
// without any; such a map is refused, because that shard would be paid for and never used.
func slotMap(algorithm string, slots int, shards []Shard, place func(slot int) int) (*Map, error) {
	l := list[uint64]{names: namesOf(shards)}
	for slot := range slots {
		l.push(slotStart(slot, slots), uint32(place(slot)))
	}
	if idle := idleShards(l); idle > 0 {
		return nil, fmt.Errorf("%s over %d slots leaves %d of %d shards without any: use more slots", algorithm, slots, idle, len(shards))
	}
	return mapOf(l.compact()), nil
}

// idleShards counts the shards that own nothing; empty seats do not count.
func idleShards(l list[uint64]) int {
	owns := make([]bool, len(l.names))
	for _, owner := range l.owners {
		owns[owner] = true
	}
	idle := 0
	for i, name := range l.names {
		if name != "" && !owns[i] {
			idle++
		}
	}
	return idle
}

func slotStart(slot, slots int) uint64 {
	return uint64(slot) << (64 - bits.TrailingZeros(uint(slots)))
}

// rehashed appends k distinct shards by placing the key again and again under further hashes: for algorithms that have no
// order of their own to follow. Should chance be slow, the lowest numbers that are missing fill up.
func rehashed(dst []int, hash uint64, k, shards int, place func(uint64) int) []int {
	first := len(dst)
	k = min(k, shards)
	for try := uint64(0); len(dst)-first < k; try++ {
		var candidate int
		switch {
		case try == 0:
			candidate = place(hash)
		case try < 64+8*uint64(k):
			candidate = place(mix(hash + try*golden))
		default:
			candidate = lowestMissing(dst[first:])
		}
		dst = appendMissing(dst, first, candidate)
	}
	return dst
}

func appendMissing(dst []int, first, shard int) []int {
	for _, have := range dst[first:] {
		if have == shard {
			return dst
		}
	}
	return append(dst, shard)
}

func lowestMissing(have []int) int {
	for candidate := 0; ; candidate++ {
		if len(appendMissing(have[:len(have):len(have)], 0, candidate)) > len(have) {
			return candidate
		}
	}
}
