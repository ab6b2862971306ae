package placement_test

import (
	"fmt"

	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/placement/key"
)

// A cache client that wants to know which of its servers has a key.
func Example() {
	ring, err := placement.New("ring", placement.Config{})
	if err != nil {
		panic(err)
	}
	caches := placement.Named("cache-a", "cache-b", "cache-c")
	placer, err := ring.Keys(caches)
	if err != nil {
		panic(err)
	}
	servers := placement.NewLocator(placer, caches, nil)
	fmt.Println(servers.Locate("user:42").Name)
	for _, s := range servers.Replicas("user:42", 2) {
		fmt.Print(s.Name, " ")
	}
	// Output:
	// cache-b
	// cache-b cache-a
}

// What would it cost to add a shard? Exactly, before anything moves.
func ExampleMap_Diff() {
	minimal, err := placement.New("minimal", placement.Config{})
	if err != nil {
		panic(err)
	}
	three, err := minimal.Ranges(nil, placement.Numbered("shard-", 3))
	if err != nil {
		panic(err)
	}
	four, err := minimal.Ranges(three, placement.Numbered("shard-", 4))
	if err != nil {
		panic(err)
	}
	movement := three.Diff(four)
	fmt.Println(movement.Extent.Rat(), "of the space moves:")
	for _, move := range movement.Moves {
		fmt.Println(move.Range, move.From, "->", move.To)
	}
	// Output:
	// 1/4 of the space moves:
	// [0x4000000000000000, 0x5580000000000000) shard-0 -> shard-3
	// [0x9580000000000000, 0xaac0000000000000) shard-1 -> shard-3
	// [0xeac0000000000000, end) shard-2 -> shard-3
}

// A keyspace that is ordered by the raw key keeps neighbours together.
func ExampleKeyMap() {
	at := func(year int64) string { return string(key.AppendInt(nil, year)) }
	m, err := placement.PreSplit([]string{"old", "new"}, at(2020))
	if err != nil {
		panic(err)
	}
	fmt.Println(m.Owner(at(1999)), m.Owner(at(2020)))
	// Output: old new
}

// Connections spread by key, and no server gets more than 1.25 times its share.
func ExampleBalancer() {
	b, err := placement.NewBalancer(placement.Named("a", "b", "c", "d"), placement.Config{})
	if err != nil {
		panic(err)
	}
	for range 100 {
		b.Acquire(key.HashText("one very hot key", 0))
	}
	fmt.Println(b.Loads())
	// Output: [31 6 32 31]
}
