package adopt

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
)

// Candidate is a table that others could be sharded by.
type Candidate struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	// Reaches is how many tables lead to it by chains of foreign keys, and Rows how many rows those have.
	Reaches int     `json:"reaches"`
	Rows    int64   `json:"rows"`
	Score   float64 `json:"score"`
	// Lookup: it looks like a list that others look things up in, which tells little apart.
	Lookup bool `json:"lookup,omitempty"`
}

// What a step of a chain is worth.
const (
	// stepFactor: who is near knows better whose it is.
	stepFactor = 0.9
	// nullableFactor and impliedFactor: it may say nothing, or not be meant.
	nullableFactor = 0.8
	impliedFactor  = 0.7
	// lookupFactor is what is left to a table that looks like a list.
	lookupFactor = 0.2
)

// candidates returns the tables that could be the root, the best first.
func (c *Catalogue) candidates() []Candidate {
	var found []Candidate
	for _, t := range c.Tables {
		id := t.rowID()
		if id == nil || id.family() == "" {
			continue
		}
		if candidate := c.candidate(t, id.Name); candidate.Reaches > 0 {
			found = append(found, candidate)
		}
	}
	slices.SortStableFunc(found, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Table, b.Table))
	})
	return found
}

// candidate adds up what leads to a table. Rows count by their logarithm: a table with ten times the rows is not ten times the reason.
func (c *Catalogue) candidate(root *Table, key string) Candidate {
	found := Candidate{Table: root.String(), Key: key, Lookup: c.isLookup(root)}
	for name, worth := range c.reach(root) {
		t := c.Table(name)
		found.Reaches++
		found.Rows += t.Rows
		found.Score += worth * math.Log2(float64(t.Rows)+2)
	}
	if found.Lookup {
		found.Score *= lookupFactor
	}
	return found
}

// reach returns the tables from which chains lead to a table, with what the best chain of each is worth.
func (c *Catalogue) reach(root *Table) map[topology.TableName]float64 {
	worth := map[topology.TableName]float64{root.ID(): 1 / stepFactor}
	for changed := true; changed; {
		changed = false
		for _, t := range c.Tables {
			if t == root {
				continue
			}
			for _, f := range c.references(t) {
				before, reached := worth[f.Target()]
				if better := before * c.stepWorth(t, f); reached && better > worth[t.ID()]*(1+1e-9) {
					worth[t.ID()], changed = better, true
				}
			}
		}
	}
	delete(worth, root.ID())
	return worth
}

// stepWorth is what one foreign key says about whose the rows are. Where a row of the target has hardly more than one row that refers to it, the
// target is a part of those rows, such as an address, and they are not a part of it.
func (c *Catalogue) stepWorth(t *Table, f ForeignKey) float64 {
	target := c.Table(f.Target())
	if target == nil || target == t {
		return 0
	}
	worth := stepFactor
	if may, _ := t.mayBeNull(f.Columns); may {
		worth *= nullableFactor
	}
	if f.implied() {
		worth *= impliedFactor
	}
	if target.Rows > 0 {
		worth *= min(1, max(0.05, float64(t.Rows)/float64(2*target.Rows)))
	}
	return worth
}

// Words by which tables are told that are lists to look things up in, and those that are whose everything is.
var (
	lookupWords = []string{
		"country", "countries", "currency", "currencies", "category", "categories", "status", "statuses", "state", "states", "type", "types", "kind", "kinds", "role", "roles",
		"permission", "permissions", "group", "groups", "language", "languages", "locale", "locales", "region", "regions", "tag", "tags", "plan", "plans", "unit", "units",
		"city", "cities", "zone", "zones", "feature", "features", "setting", "settings", "tax", "taxes", "brand", "brands", "product", "products",
	}
	tenantWords = []string{
		"account", "accounts", "tenant", "tenants", "org", "orgs", "company", "companies", "customer", "customers", "client", "clients",
		"workspace", "workspaces", "team", "teams", "shop", "shops", "store", "stores", "merchant", "merchants", "user", "users", "member", "members", "site", "sites",
	}
)

// isLookup says whether a table looks like a list to look things up in: by its name, its size, and how little it has to say.
func (c *Catalogue) isLookup(t *Table) bool {
	points := 0
	switch last := lastWord(t.Name); {
	case slices.Contains(lookupWords, last):
		points += 2
	case slices.Contains(tenantWords, last), strings.HasPrefix(last, "organi"): // in either spelling
		points -= 3
	}
	const fewRows, fewColumns = 1000, 4
	if t.Rows <= fewRows && 20*t.Rows <= c.mostRows() {
		points++
	}
	if len(t.Columns) <= fewColumns {
		points++
	}
	if id := t.rowID(); id != nil && !id.isDrawn() {
		points++
	}
	return points >= 3
}

// lastWord of a name such as shop_customers.
func lastWord(name string) string {
	return strings.ToLower(name[strings.LastIndexByte(name, '_')+1:])
}

// mostRows is how many the largest table has.
func (c *Catalogue) mostRows() int64 {
	var most int64
	for _, t := range c.Tables {
		most = max(most, t.Rows)
	}
	return most
}
