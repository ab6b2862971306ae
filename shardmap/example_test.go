package shardmap_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cleavedb/cleave/shardmap"
)

func ExampleMap() {
	stock := shardmap.New[string, int]()
	stock.Set("apples", 3)
	stock.Set("pears", 5)

	if n, ok := stock.Get("apples"); ok {
		fmt.Println("apples:", n)
	}
	stock.Delete("pears")
	fmt.Println("kinds:", stock.Len())
	// Output:
	// apples: 3
	// kinds: 1
}

func ExampleMap_Compute() {
	stock := shardmap.New[string, int]()
	stock.Set("apples", 2)

	// Take one, and remove the entry with the last.
	take := func(n int, present bool) (int, shardmap.Action) {
		switch {
		case !present:
			return 0, shardmap.Keep
		case n == 1:
			return 0, shardmap.Remove
		default:
			return n - 1, shardmap.Put
		}
	}
	for range 3 {
		n, left := stock.Compute("apples", take)
		fmt.Println(n, left)
	}
	// Output:
	// 1 true
	// 0 false
	// 0 false
}

func ExampleNewWithConfig() {
	type tenant struct {
		region uint32
		number uint32
	}
	m, err := shardmap.NewWithConfig[tenant, string](shardmap.Config[tenant]{
		Shards:   100, // rounded up
		Capacity: 10_000,
		Hasher:   func(t tenant) uint64 { return uint64(t.region)<<32 | uint64(t.number) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Set(tenant{1, 7}, "seven")
	for key, value := range m.All() {
		fmt.Println(key, value, m.Shards())
	}
	// Output: {1 7} seven 128
}

func ExampleActors() {
	accounts, err := shardmap.NewActors[string, int](shardmap.ActorsConfig[string]{Mailbox: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer accounts.Close()

	ctx := context.Background()
	deposit := func(name string, amount int) error {
		return accounts.Do(ctx, name, func(state *shardmap.State[string, int]) {
			// Nobody else touches this shard now, however long this takes.
			balance, _ := state.Get(name)
			state.Set(name, balance+amount)
			fmt.Println(name, balance+amount)
		})
	}
	fmt.Println(deposit("ann", 5))
	fmt.Println(deposit("ann", 7))
	// Output:
	// ann 5
	// <nil>
	// ann 12
	// <nil>
}

// What a caller can tell from the error.
func ExampleActors_Do() {
	actors, err := shardmap.NewActors[string, int](shardmap.ActorsConfig[string]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer actors.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = actors.Do(ctx, "k", func(*shardmap.State[string, int]) { fmt.Println("never printed") })
	fmt.Println(errors.Is(err, shardmap.ErrNotRun), errors.Is(err, context.Canceled))

	err = actors.Do(context.Background(), "k", func(*shardmap.State[string, int]) { panic("oh no") })
	var panicked *shardmap.PanicError
	fmt.Println(errors.As(err, &panicked), err)
	// Output:
	// true true
	// true shardmap: the function panicked: oh no
}

func ExampleRouted() {
	m, err := shardmap.NewWithConfig[int, string](shardmap.Config[int]{Shards: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	key := m.Route(1)
	home, other := m.Shard(key.Shard()), m.Shard(1-key.Shard())

	fmt.Println(home.Set(key, "one"))
	err = other.Set(key, "one")
	fmt.Println(errors.Is(err, shardmap.ErrOtherShard))
	err = home.Set(shardmap.Routed[int]{}, "one")
	fmt.Println(errors.Is(err, shardmap.ErrUnrouted))
	// Output:
	// <nil>
	// true
	// true
}

func ExampleMap_Across() {
	balances := shardmap.New[string, int]()
	balances.Set("ann", 10)

	transfer := func(from, to string, amount int) error {
		source, target := balances.Route(from), balances.Route(to)
		keys := []shardmap.Routed[string]{source, target}
		return balances.Across(keys, func(tx *shardmap.Tx[string, int]) error {
			has, _, err := tx.Get(source)
			if err != nil {
				return err
			}
			if err := tx.Set(source, has-amount); err != nil {
				return err
			}
			if has < amount {
				return errors.New("not enough") // Undoes the Set above.
			}
			had, _, err := tx.Get(target)
			if err != nil {
				return err
			}
			return tx.Set(target, had+amount)
		})
	}
	fmt.Println(transfer("ann", "bob", 7))
	fmt.Println(transfer("ann", "bob", 7))
	ann, _ := balances.Get("ann")
	bob, _ := balances.Get("bob")
	fmt.Println(ann, bob)
	// Output:
	// <nil>
	// not enough
	// 3 7
}

// The tags of two shards that are fixed in the code.
type (
	usersShard  struct{}
	ordersShard struct{}
)

func ExampleCross() {
	users, err := shardmap.NewShard[usersShard, string, int](shardmap.Config[string]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	orders, err := shardmap.NewShard[ordersShard, int, string](shardmap.Config[int]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ann := users.Key("ann")
	users.Set(ann, 10)
	// orders.Set(ann, "book") would not compile: ann is a key of another shard.

	err = shardmap.Cross(users, ann, orders, orders.Key(1), func(credit *shardmap.Cell[int], order *shardmap.Cell[string]) error {
		left, _ := credit.Get()
		credit.Set(left - 4)
		order.Set("book")
		return nil
	})
	left, _ := users.Get(ann)
	order, _ := orders.Get(shardmap.KeyOf[ordersShard](1))
	fmt.Println(err, left, order)
	// Output: <nil> 6 book
}
