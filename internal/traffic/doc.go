// Package traffic counts the statements that a router sends for keys of each range and of each pin, and adds up what all routers count.
//
// A [Counter] has a [Number] for each range, to which a session adds one for every key that it has looked up. [Counter.Run] makes rates of these
// numbers, and hands a [Report] of the busiest on whenever they have changed noticeably. [Sum] says what the reports of all routers mean for the ranges
// of a map. A statement counts once for each key that it names: an INSERT for each of its rows, as PostgreSQL counts rows written. One that goes
// to all shards counts for no range.
//
// It does not say how much work a statement is, which only PostgreSQL knows: package control shares out what PostgreSQL counts by what is counted
// here. Where reports are kept is others' business.
//
// What it guarantees: counting takes no lock and no memory; a range that is in the next map too keeps its number, and one that
// was divided or joined leaves its rate to those that have its keys now; a report has at most [maxTold] ranges and pins in [maxToldBytes], and the sum of the rest.
//
// A Counter is safe for concurrent use. Start reading at counter.go.
package traffic
