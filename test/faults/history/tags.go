package history

import (
	"fmt"
	"slices"
)

// Tagged is a transaction that left a row with its tag on every one of its shards.
type Tagged struct {
	Head
	Tag    string `json:"tag"`
	Shards []int  `json:"shards"`
}

// CheckTags compares what clients know of their transactions with the tags that each shard has in the end.
func CheckTags(transactions []Tagged, found []map[string]bool) (wrong []string) {
	known := map[string]bool{}
	for _, one := range transactions {
		known[one.Tag] = true
		there := 0
		for _, shard := range one.Shards {
			if found[shard][one.Tag] {
				there++
			}
		}
		switch {
		case there > 0 && there < len(one.Shards):
			wrong = append(wrong, fmt.Sprintf("half of a transaction: %s (%s: %s) is on %d of its shards %v", one.Tag, one.Outcome, one.Error, there, one.Shards))
		case one.Outcome == Committed && there == 0:
			wrong = append(wrong, "lost: "+one.Tag+" was committed and is not there")
		case one.Outcome == Failed && there > 0:
			wrong = append(wrong, fmt.Sprintf("not undone: %s has failed (%s) and is there", one.Tag, one.Error))
		}
	}
	for shard, tags := range found {
		for tag := range tags {
			if !known[tag] {
				wrong = append(wrong, fmt.Sprintf("from nowhere: shard %d has %s, which nobody wrote", shard, tag))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}
