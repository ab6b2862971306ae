package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// Verify asks the code that declares tables what it would refuse, and adds that to the assessment. Of tables that steps have still to mend it asks
// only what no step changes.
func Verify(ctx context.Context, conn *pgx.Conn, p *Plan, a *Assessment) error {
	m, err := p.imagined()
	if err != nil {
		return err
	}
	settled := len(a.Obstacles) == 0
	for _, planned := range slices.Concat(p.Sharded(), p.References()) {
		definition, err := shard.Describe(ctx, conn, planned.Name())
		if err == nil {
			err = p.wouldRefuse(definition, planned, m, settled)
		}
		var refused *pgerr.Error
		switch {
		case err == nil:
		case !errors.As(err, &refused):
			return fmt.Errorf("see whether table %s can be declared: %w", planned.Table, err)
		case refused.Code == pgerr.UndefinedTable, isLeftByUs(a, planned), isBlocked(a, planned):
		default:
			a.Obstacles = append(a.Obstacles, Obstacle{Table: planned.Table, Code: "declaring", Message: refused.Message + ": " + refused.Detail, Hint: refused.Hint})
		}
	}
	return nil
}

// isLeftByUs says whether a step about an index of the table is still to be run: until then one that is not valid may be there.
func isLeftByUs(a *Assessment, planned *TablePlan) bool {
	return slices.ContainsFunc(a.Steps, func(s Step) bool { return s.Table == planned.Table && s.phase == makesIndex })
}

// isBlocked says whether something is known already that a person has to see to: the rest is said when that is done.
func isBlocked(a *Assessment, planned *TablePlan) bool {
	return slices.ContainsFunc(a.Undecided(), func(o Obstacle) bool { return o.Table == planned.Table })
}

// wouldRefuse is what declaring the table would be refused for.
func (p *Plan) wouldRefuse(d *shard.Definition, planned *TablePlan, m *topology.Map, settled bool) error {
	sharded := planned.Kind == topology.Sharded
	isReference := func(name topology.TableName) bool { return p.kind(name) == topology.Reference }
	if err := d.CheckCarried(isReference, sharded); err != nil || !settled {
		return err
	}
	if sharded {
		if _, err := d.KeyTypes([]string{planned.Key}); err != nil {
			return err
		}
		if !p.UniquePerShard() {
			if err := d.CheckUnique([]string{planned.Key}); err != nil {
				return err
			}
		}
	}
	return d.CheckForeignKeys(m)
}

// imagined is the map as it will be: one shard, one keyspace, and the tables.
func (p *Plan) imagined() (*topology.Map, error) {
	m, err := topology.New("00000000-0000-4000-8000-000000000000")
	if err == nil {
		m, err = m.Next(topology.AddShard(topology.ShardSpec{Name: p.Shard, Primary: topology.InstanceSpec{Address: "placeholder:1"}}))
	}
	if err != nil {
		return nil, fmt.Errorf("shard %q: %w", p.Shard, err)
	}
	var changes []topology.Change
	if len(p.Sharded()) > 0 {
		spec := topology.NewKeyspaceSpec(p.Keyspace, topology.ByHash, 1, p.KeyType)
		if spec.Ranges, spec.Assignment, err = m.Assign(topology.Assignment{Algorithm: "slots"}); err != nil {
			return nil, err
		}
		changes = append(changes, topology.CreateKeyspace(spec))
	}
	for _, t := range p.Tables {
		switch t.Kind {
		case topology.Sharded:
			changes = append(changes, topology.SetTable(topology.TableSpec{Name: t.Table, Kind: t.Kind, Keyspace: p.Keyspace, Key: []string{t.Key}}))
		case topology.Reference:
			changes = append(changes, topology.SetTable(topology.TableSpec{Name: t.Table, Kind: t.Kind}))
		default:
		}
	}
	if m, err = m.Next(changes...); err != nil {
		return nil, fmt.Errorf("the plan makes no map: %w", err)
	}
	return m, nil
}
