package tpch

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// Query is one of the benchmark's.
type Query struct {
	Number int
	// Name is what the specification calls it.
	Name string
	// Ordered are the places of the outputs that its rows are ordered by, from 0 on. Rows that are equal in these may come in any order.
	Ordered []int

	sql        string
	parameters []parameter
}

// parameter is a value that the specification leaves open.
type parameter struct {
	kind  kind
	value string
}

// kind says how a parameter is written.
type kind int

const (
	text kind = iota
	number
	date
)

// Literal is the query with its parameters in the text, as the specification writes them.
func (q Query) Literal() string {
	return q.fill(func(_ int, p parameter) string {
		switch p.kind {
		case number:
			return p.value
		case date:
			return "date '" + p.value + "'"
		default:
			return "'" + p.value + "'"
		}
	})
}

// Prepared is the query with places for its parameters, and their values as texts.
func (q Query) Prepared() (sql string, values []string) {
	for _, p := range q.parameters {
		values = append(values, p.value)
	}
	return q.fill(func(i int, p parameter) string {
		if p.kind == date { // what a place is added to does not tell
			return fmt.Sprintf("$%d::date", i+1)
		}
		return fmt.Sprintf("$%d", i+1)
	}), values
}

// fill writes something for each parameter.
func (q Query) fill(write func(int, parameter) string) string {
	var pairs []string
	for i, p := range q.parameters {
		pairs = append(pairs, "{"+strconv.Itoa(i+1)+"}", write(i, p))
	}
	return strings.NewReplacer(pairs...).Replace(q.sql)
}

//go:embed queries.sql
var script string

// Queries are all 22.
func Queries() []Query {
	queries := []Query{
		{Name: "pricing summary report", Ordered: []int{0, 1}, parameters: []parameter{{date, "1998-12-01"}}},
		{Name: "minimum cost supplier", Ordered: []int{0, 2, 1, 3}, parameters: []parameter{{number, "15"}, {text, "%BRASS"}, {text, "EUROPE"}}},
		{Name: "shipping priority", Ordered: []int{1, 2}, parameters: []parameter{{text, "BUILDING"}, {date, "1995-03-15"}}},
		{Name: "order priority checking", Ordered: []int{0}, parameters: []parameter{{date, "1993-07-01"}}},
		{Name: "local supplier volume", Ordered: []int{1}, parameters: []parameter{{text, "ASIA"}, {date, "1994-01-01"}}},
		{Name: "forecasting revenue change", parameters: []parameter{{date, "1994-01-01"}, {number, "0.06"}, {number, "24"}}},
		{Name: "volume shipping", Ordered: []int{0, 1, 2}, parameters: []parameter{{text, "FRANCE"}, {text, "GERMANY"}}},
		{Name: "national market share", Ordered: []int{0}, parameters: []parameter{{text, "PERU"}, {text, "AMERICA"}, {text, "ECONOMY ANODIZED STEEL"}}},
		{Name: "product type profit measure", Ordered: []int{0, 1}, parameters: []parameter{{text, "%green%"}}},
		{Name: "returned item reporting", Ordered: []int{2}, parameters: []parameter{{date, "1993-10-01"}}},
		{Name: "important stock identification", Ordered: []int{1}, parameters: []parameter{{text, "GERMANY"}, {number, "0.005"}}},
		{Name: "shipping modes and order priority", Ordered: []int{0}, parameters: []parameter{{text, "MAIL"}, {text, "SHIP"}, {date, "1994-01-01"}}},
		{Name: "customer distribution", Ordered: []int{1, 0}, parameters: []parameter{{text, "%special%requests%"}}},
		{Name: "promotion effect", parameters: []parameter{{date, "1995-09-01"}}},
		{Name: "top supplier", Ordered: []int{0}, parameters: []parameter{{date, "1996-01-01"}}},
		{Name: "parts/supplier relationship", Ordered: []int{3, 0, 1, 2}, parameters: []parameter{{text, "Brand#45"}, {text, "MEDIUM POLISHED%"}}},
		{Name: "small-quantity-order revenue", parameters: []parameter{{text, "Brand#23"}, {text, "MED BOX"}}},
		{Name: "large volume customer", Ordered: []int{4, 3}, parameters: []parameter{{number, "250"}}},
		{Name: "discounted revenue", parameters: []parameter{{text, "Brand#12"}, {number, "1"}, {text, "Brand#23"}, {number, "10"}, {text, "Brand#34"}, {number, "20"}}},
		{Name: "potential part promotion", Ordered: []int{0}, parameters: []parameter{{text, "forest%"}, {date, "1994-01-01"}, {text, "PERU"}}},
		{Name: "suppliers who kept orders waiting", Ordered: []int{1, 0}, parameters: []parameter{{text, "PERU"}}},
		{Name: "global sales opportunity", Ordered: []int{0}, parameters: []parameter{{text, "13"}, {text, "31"}, {text, "23"}, {text, "29"}, {text, "30"}, {text, "18"}, {text, "17"}}},
	}
	texts := strings.Split(script, ";\n")
	for i := range queries {
		queries[i].Number, queries[i].sql = i+1, strings.TrimSpace(texts[i])
	}
	return queries
}
