// Package draw makes pictures of placements, as SVG: rings and range maps in shard colours, and comparisons of
// algorithms.
//
// [Maps] draws one or several maps, [Comparison] draws distribution and movement side by side. Both stay readable from
// three shards to hundreds: few shards get a legend, many get a chart of their shares; ranges finer than the picture are
// drawn as the shard that owns the most of each spot, and the picture says so.
//
// The package computes nothing that it does not draw; figures come from package placement. It has no state.
package draw
