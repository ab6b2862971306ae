package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/hash"
	"github.com/cleavedb/cleave/placement/key"
)

func newPlacement() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Which key lives on which shard, and what a change would move",
		Long: `Plan, compare and draw placements. Nothing here touches a server: it is arithmetic
on keys, hashes and ranges, so every question can be asked before anything is changed.`,
		Args: cobra.ArbitraryArgs,
		RunE: helpOrUnknown,
	}
	cmd.AddCommand(newAlgorithms(), newCompare(), newSimulate(), newPlan(), newDraw(), newHashes())
	return cmd
}

// tuning has the flags that tune algorithms.
type tuning struct {
	config placement.Config
}

func (t *tuning) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&t.config.VirtualNodes, "vnodes", 150, "points of a shard on a ring")
	cmd.Flags().IntVar(&t.config.Slots, "slots", 1024, "logical slots, a power of two, for algorithms that place slots")
	cmd.Flags().Float64Var(&t.config.LoadFactor, "load-factor", 1.25, "most load of a shard under 'bounded', in fair shares")
}

// algorithm builds one by name. A ring may carry its number of virtual nodes, as in ring:100.
func (t *tuning) algorithm(name string) (placement.Algorithm, error) {
	config := t.config
	// The library takes 0 for its default; here somebody who types 0 means it, and is told that it makes no sense.
	if config.VirtualNodes == 0 || config.Slots == 0 || config.LoadFactor == 0 {
		return nil, wrongInput(errors.New("--vnodes, --slots and --load-factor cannot be 0"))
	}
	plain, nodes, given := strings.Cut(name, ":")
	if given {
		n, err := strconv.Atoi(nodes)
		if err != nil || n < 1 {
			return nil, wrongInputf("%q: write a ring and its virtual nodes as ring:100", name)
		}
		if !strings.Contains(plain, "ring") && plain != "bounded" {
			return nil, wrongInputf("%q: only rings have virtual nodes", name)
		}
		config.VirtualNodes = n
	}
	if err := checkAlgorithm(plain); err != nil {
		return nil, err
	}
	algorithm, err := placement.New(plain, config)
	return algorithm, wrongInput(err)
}

// algorithmNames lists all names that an algorithm may be called by.
func algorithmNames() []string {
	var names []string
	for _, info := range placement.Algorithms() {
		names = append(names, info.Name)
	}
	return append(names, "even") // another name for slots
}

func checkAlgorithm(name string) error {
	if !slices.Contains(algorithmNames(), name) {
		return wrongInputf("unknown algorithm %q: use one of %s", name, strings.Join(algorithmNames(), ", "))
	}
	return nil
}

func hashNames() []string {
	var names []string
	for _, f := range hash.Functions() {
		names = append(names, f.Name)
	}
	return names
}

// keySource has the flags that say which keys to place and how to hash them.
type keySource struct {
	items    int
	prefix   string
	file     string
	typeName string
	hashName string
	seed     int64
	given    func(flag string) bool // whether the user set it
}

// flags adds them; items and function are defaults.
func (s *keySource) flags(cmd *cobra.Command, items int, function string) {
	cmd.Flags().IntVar(&s.items, "items", items, "how many keys to make up")
	cmd.Flags().StringVar(&s.prefix, "prefix", "user:", "what made-up keys begin with; a number follows")
	cmd.Flags().StringVar(&s.file, "keys", "", "read keys from this file, one a line, instead of making them up; - is standard input")
	cmd.Flags().StringVar(&s.typeName, "key-type", "", "take keys for values of this PostgreSQL type (bigint, uuid, …) and hash them as Cleave does\n(made-up keys then want --prefix ''); instead of --hash")
	cmd.Flags().StringVar(&s.hashName, "hash", function, "hash function for keys: "+strings.Join(hashNames(), ", "))
	cmd.Flags().Int64Var(&s.seed, "seed", 0, "seed of the hash function")
	s.given = cmd.Flags().Changed
	complete(cmd, "hash", hashNames())
}

const (
	// maxItems keeps counts exact in a float.
	maxItems = 1_000_000_000_000
	// maxKept is how many hashes are kept, at eight bytes each; more made-up keys are hashed anew each time.
	maxKept = 10_000_000
	// maxTyped is how many keys of a type are made up; they are kept, because any of them may be invalid.
	maxTyped = 100_000_000
)

// hasher returns the function that the flags ask for, and its name.
func (s *keySource) hasher() (sum func([]byte) (uint64, error), name string, err error) {
	if s.typeName != "" {
		if s.given("hash") {
			return nil, "", wrongInput(errors.New("--key-type has its own hash function: leave --hash out"))
		}
		typ, err := key.ParseType(s.typeName)
		if err != nil {
			return nil, "", wrongInput(err)
		}
		return func(k []byte) (uint64, error) {
			value, err := typ.Parse(string(k))
			if err != nil {
				return 0, err
			}
			return value.Hash(uint64(s.seed)), nil
		}, "PostgreSQL's for " + typ.String(), nil
	}
	f, err := hash.Named(s.hashName)
	if err != nil {
		return nil, "", wrongInput(err)
	}
	return func(k []byte) (uint64, error) { return f.Sum(k, uint64(s.seed)), nil }, f.Name, nil
}

// hashes returns the keys' hashes as a sequence that can be gone through many times, and how many there are.
func (s *keySource) hashes(stdin io.Reader) (iter.Seq[uint64], int, error) {
	sum, _, err := s.hasher()
	if err != nil {
		return nil, 0, err
	}
	if s.file != "" {
		return s.fromFile(stdin, sum)
	}
	most := maxItems
	if s.typeName != "" {
		most = maxTyped
	}
	if s.items < 1 || s.items > most {
		return nil, 0, wrongInputf("--items %d: at least one key is needed, and at most %d", s.items, most)
	}
	if s.items <= maxKept || s.typeName != "" {
		return s.kept(sum)
	}
	return func(yield func(uint64) bool) {
		for k := range s.madeUp() {
			h, _ := sum(k) // a function of bytes takes any key
			if !yield(h) {
				return
			}
		}
	}, s.items, nil
}

func (s *keySource) madeUp() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var buffer []byte
		for i := range s.items {
			buffer = strconv.AppendInt(append(buffer[:0], s.prefix...), int64(i), 10)
			if !yield(buffer) {
				return
			}
		}
	}
}

// kept hashes every key once, so that a bad one is found before anything is computed, and keeps the hashes.
func (s *keySource) kept(sum func([]byte) (uint64, error)) (iter.Seq[uint64], int, error) {
	hashes := make([]uint64, 0, s.items)
	for k := range s.madeUp() {
		h, err := sum(k)
		if err != nil {
			return nil, 0, wrongInput(fmt.Errorf("--prefix does not fit --key-type: %w", err))
		}
		hashes = append(hashes, h)
	}
	return slices.Values(hashes), len(hashes), nil
}

// maxKeyLine is more than PostgreSQL can index, so no shard key is longer.
const maxKeyLine = 1 << 20

func (s *keySource) fromFile(stdin io.Reader, sum func([]byte) (uint64, error)) (iter.Seq[uint64], int, error) {
	in := stdin
	if s.file != "-" {
		file, err := os.Open(s.file)
		if err != nil {
			return nil, 0, wrongInput(fmt.Errorf("cannot read keys: %w", err))
		}
		defer file.Close()
		in = file
	}
	var hashes []uint64
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxKeyLine)
	for lines.Scan() {
		h, err := sum(lines.Bytes())
		if err != nil {
			return nil, 0, wrongInput(fmt.Errorf("%s, line %d: %w", s.file, len(hashes)+1, err))
		}
		hashes = append(hashes, h)
	}
	if err := lines.Err(); err != nil {
		return nil, 0, wrongInput(fmt.Errorf("%s, line %d: %w", s.file, len(hashes)+1, err))
	}
	if len(hashes) == 0 {
		return nil, 0, wrongInputf("%s holds no keys", s.file)
	}
	return slices.Values(hashes), len(hashes), nil
}

// checkCount refuses numbers of shards that make no sense before anything is allocated for them.
func checkCount(flag string, n, least int) error {
	const most = 1_000_000
	if n < least || n > most {
		return wrongInputf("--%s %d: use a number from %d to %d", flag, n, least, most)
	}
	return nil
}
