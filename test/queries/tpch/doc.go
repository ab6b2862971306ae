// Package tpch has what is needed to run the queries of the TPC-H benchmark: its tables, with a declaration for the router, rows for them,
// and its 22 queries. It runs nothing itself; the tests beside it and the benchmark program do.
//
// Rows are made up by a generator of our own, from a seed: the same rows for the same seed. Columns that queries look at have the values, and
// about the distributions, of the benchmark's specification; other texts are shorter, and no figure is comparable with one
// that others publish. Parameters of the queries are chosen such that small tables give every query rows to return.
//
// Everything is safe for concurrent use. Start reading at queries.go.
package tpch
