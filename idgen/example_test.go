package idgen_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cleavedb/cleave/idgen"
)

func ExampleGenerator() {
	generator, err := idgen.New(idgen.Config{Number: 3})
	if err != nil {
		panic(err)
	}
	const keyHash = 0xc0ffee00_00000000 // of the row's shard key
	id, err := generator.Next(context.Background(), keyHash)
	if err != nil {
		panic(err)
	}
	parts := generator.Layout().Decode(id)
	fmt.Println("slot", parts.Slot, "generator", parts.Generator, "sequence", parts.Sequence)
	// Output: slot 771 generator 3 sequence 0
}

// A statement that knows only the id is routed by the interval of hashes that the id's slot covers.
func ExampleLayout_Hashes() {
	layout := idgen.DefaultLayout()
	const id = 247_700_900_711_273_801
	first, last := layout.Hashes(layout.SlotOfID(id))
	fmt.Printf("hashes %016x to %016x\n", first, last)
	// Output: hashes c240000000000000 to c27fffffffffffff
}

// A condition on time becomes one on ids, which an index on the id serves.
func ExampleLayout_Encode() {
	layout := idgen.DefaultLayout()
	day := time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC)
	from, err := layout.Encode(idgen.Parts{Time: day})
	if err != nil {
		panic(err)
	}
	to, err := layout.Encode(idgen.Parts{Time: day.AddDate(0, 0, 1)})
	if err != nil {
		panic(err)
	}
	fmt.Printf("WHERE id >= %d AND id < %d\n", from, to)
	// Output: WHERE id >= 247510912204800000 AND id < 247873300070400000
}

func ExampleNewLayout() {
	// Ids that JavaScript can hold: 53 bits.
	layout, err := idgen.NewLayout(idgen.LayoutConfig{TimeBits: 41, SlotBits: 6, GeneratorBits: 3, SequenceBits: 3})
	fmt.Println(layout, err)
	_, err = idgen.NewLayout(idgen.LayoutConfig{TimeBits: 41, SlotBits: 12, GeneratorBits: 8, SequenceBits: 8})
	fmt.Println(err)
	// Output:
	// time=41 slot=6 generator=3 sequence=3 epoch=2025-01-01T00:00:00.000Z <nil>
	// id layout: 41 + 12 + 8 + 8 bits are 69, and an id has room for 63
}

func ExampleUUID_Time() {
	id, err := idgen.ParseUUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
	if err != nil {
		panic(err)
	}
	fmt.Println(id.Version(), id.Time())
	// Output: 7 2022-02-22 19:22:22 +0000 UTC
}

func ExampleNewUUID() {
	first, second := idgen.NewUUID(), idgen.NewUUID()
	fmt.Println(first.String() < second.String())
	// Output: true
}

// An integer column: the numbers end with a clear error instead of an overflow.
func ExampleBlocks() {
	source := idgen.NewMemorySource(math.MaxInt32 - 1) // a PostgreSQL sequence, usually
	blocks, err := idgen.NewBlocks(source, idgen.BlocksConfig{Max: math.MaxInt32})
	if err != nil {
		panic(err)
	}
	defer blocks.Close()
	for range 3 {
		number, err := blocks.Next(context.Background())
		var limit *idgen.LimitError
		if errors.As(err, &limit) {
			fmt.Println(err)
			return
		}
		fmt.Println(number)
	}
	// Output:
	// 2147483646
	// 2147483647
	// next number of block: no number is left up to the limit of 2147483647
}

func ExampleSequenceSQL() {
	create, next, err := idgen.SequenceSQL("cleave", "invoice_numbers", 1000)
	if err != nil {
		panic(err)
	}
	fmt.Println(create)
	fmt.Println(next)
	// Output:
	// CREATE SEQUENCE "cleave"."invoice_numbers" AS bigint START 1 INCREMENT BY 1000 CACHE 1 NO CYCLE;
	// SELECT pg_catalog.nextval('"cleave"."invoice_numbers"'::pg_catalog.regclass);
}
