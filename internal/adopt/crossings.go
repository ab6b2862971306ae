package adopt

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// Crossing is what was seen of a foreign key: how many rows were looked at, and how many of them have another shard key than the row that they refer to.
type Crossing struct {
	Rows   int64 `json:"rows"`
	Differ int64 `json:"differ"`
}

// crossingID names a foreign key of a table.
func crossingID(table topology.TableName, name string) string { return table.String() + " " + name }

// probe is a question about one foreign key.
type probe struct{ id, sql string }

const (
	// probeRows is about how many rows are looked at.
	probeRows = 2000
	// probeTimeout is how long that may take: who does not know hears of it when the new foreign key is validated.
	probeTimeout = "5s"
)

// FindCrossings looks at some rows of each foreign key that is to get the shard key, whether it would hold.
func FindCrossings(ctx context.Context, conn *pgx.Conn, c *Catalogue, p *Plan) (map[string]Crossing, error) {
	found := map[string]Crossing{}
	for _, probe := range probes(c, p) {
		var seen Crossing
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '"+probeTimeout+"'"); err != nil {
				return err
			}
			return tx.QueryRow(ctx, probe.sql).Scan(&seen.Rows, &seen.Differ)
		})
		switch {
		case isCode(err, codeCancelled):
		case err != nil:
			return nil, fmt.Errorf("look at some rows of %s: %w", probe.id, err)
		default:
			found[probe.id] = seen
		}
	}
	return found, nil
}

// probes are the questions about all foreign keys that are to get the shard key. The one that the key itself comes by needs none.
func probes(c *Catalogue, p *Plan) []probe {
	p = p.clone()
	p.handleConstraints(c)
	var found []probe
	for _, planned := range p.Sharded() {
		t := c.Table(planned.Name())
		if t == nil {
			continue
		}
		for _, f := range t.ForeignKeys {
			ownSource := planned.KeyFrom != nil && planned.KeyFrom.Table == f.Target().String() && sameSet(planned.KeyFrom.Columns, f.Columns)
			if planned.ForeignKeys[f.Name] != WithKey || ownSource && t.Column(planned.Key) == nil || p.judge(c, t, f).fits {
				continue
			}
			if sql := probeSQL(c, p, t, planned, f); sql != "" {
				found = append(found, probe{crossingID(t.ID(), f.Name), sql})
			}
		}
	}
	return found
}

// probeSQL compares the keys of rows and of those that they refer to, following both to where the key is.
func probeSQL(c *Catalogue, p *Plan, t *Table, planned *TablePlan, f ForeignKey) string {
	var joins strings.Builder
	ownKey, found := follow(c, p, &joins, "r", t, planned, "o")
	if !found {
		return ""
	}
	conditions := (&Source{Columns: f.Columns, Referenced: f.TargetColumns}).joined("r", "t")
	fmt.Fprintf(&joins, " JOIN %s t ON %s", f.Target(), conditions)
	targetKey, found := follow(c, p, &joins, "t", c.Table(f.Target()), p.table(f.Target()), "p")
	if !found {
		return ""
	}
	return fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE %s <> %s) FROM (SELECT * FROM %s%s LIMIT %d) r%s", ownKey, targetKey, t, sample(t), probeRows, joins.String())
}

// sample is a part of a large table, all over it.
func sample(t *Table) string {
	if t.Rows <= 10*probeRows {
		return ""
	}
	return fmt.Sprintf(" TABLESAMPLE SYSTEM (%f)", min(100, 300*probeRows/float64(t.Rows)))
}

// follow joins the tables that the key of a row is found through, and returns where it is. Prefix begins their aliases.
func follow(c *Catalogue, p *Plan, joins *strings.Builder, alias string, t *Table, planned *TablePlan, prefix string) (key string, found bool) {
	for step := range c.Tables {
		if t == nil || planned == nil {
			return "", false
		}
		if t.Column(planned.Key) != nil {
			return alias + "." + quote(planned.Key), true
		}
		if planned.KeyFrom == nil {
			return "", false
		}
		next := fmt.Sprintf("%s%d", prefix, step)
		fmt.Fprintf(joins, " JOIN %s %s ON %s", planned.KeyFrom.Table, next, planned.KeyFrom.joined(alias, next))
		name := mustName(planned.KeyFrom.Table)
		alias, t, planned = next, c.Table(name), p.table(name)
	}
	return "", false
}
