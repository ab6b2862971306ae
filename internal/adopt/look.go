package adopt

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// LookOptions say what to look for.
type LookOptions struct {
	// Role is the one that the cluster's processes log in as.
	Role string
	// Plan is what to hold the database against. Default: one is proposed, with the options.
	Plan    *Plan
	Options Options
	// Drop are foreign keys to be given up, by table and name.
	Drop map[topology.TableName][]string
	// PrimaryKeys are the columns that tell rows of tables apart which have no primary key to move rows by.
	PrimaryKeys map[topology.TableName][]string
}

// Proposal is all that there is to say about a database that is to be adopted.
type Proposal struct {
	Catalogue *Catalogue
	Report    *shard.Report
	// Server is what was found about the server and the role.
	Server     []api.Finding
	Plan       *Plan
	Candidates []Candidate
	Assessment *Assessment
	Crossings  map[string]Crossing
	Door       *Door
}

// Look reads the database, proposes a plan if there is none, and says what stands in its way. It changes nothing. Of a server that is too old
// it has no more than that.
func Look(ctx context.Context, conn *pgx.Conn, o LookOptions) (*Proposal, error) {
	p := &Proposal{}
	var err error
	if p.Report, p.Server, err = CheckServer(ctx, conn, o.Role); err != nil {
		return nil, err
	}
	if p.Report.VersionNumber < leastVersion {
		return p, nil
	}
	if p.Catalogue, err = Read(ctx, conn); err != nil {
		return nil, err
	}
	if p.Door, err = LookAtDoor(ctx, conn, o.Role); err != nil {
		return nil, err
	}
	if p.Plan = o.Plan; p.Plan == nil {
		if p.Plan, p.Candidates, err = Propose(p.Catalogue, o.Options); err != nil {
			return nil, err
		}
	} else if err := p.Plan.For(p.Catalogue); err != nil {
		return nil, err
	}
	for table, columns := range o.PrimaryKeys {
		if err := p.Plan.SetPrimaryKey(table, columns); err != nil {
			return nil, err
		}
	}
	p.Plan.handleConstraints(p.Catalogue)
	for table, names := range o.Drop {
		for _, name := range names {
			if err := p.Plan.DropForeignKey(table, name); err != nil {
				return nil, err
			}
		}
	}
	if p.Crossings, err = FindCrossings(ctx, conn, p.Catalogue, p.Plan); err != nil {
		return nil, err
	}
	p.Assessment = Assess(p.Catalogue, p.Plan, p.Crossings)
	return p, Verify(ctx, conn, p.Plan, p.Assessment)
}

// Problems returns what is wrong with the server or the role, so that the database cannot be a shard.
func (p *Proposal) Problems() []api.Finding {
	return slices.DeleteFunc(slices.Clone(p.Server), func(f api.Finding) bool { return f.Severity != api.Problem })
}

// WithoutBlocked is the plan with all tables left single that something stands in the way of, and those that cannot be declared without them. It also names them.
func (p *Proposal) WithoutBlocked() (*Plan, []string) {
	plan := p.Plan.clone()
	var left []string
	obstacles := p.Assessment.Obstacles
	for len(obstacles) > 0 {
		before := len(left)
		for _, o := range obstacles {
			t := plan.table(mustName(o.Table))
			if t.Kind == topology.Single {
				// A single table is in the way of those that it refers to.
				left = plan.leaveTargets(p.Catalogue.Table(t.Name()), left)
				continue
			}
			left = plan.leave(t, left)
		}
		if len(left) == before {
			break
		}
		obstacles = Assess(p.Catalogue, plan, p.Crossings).Obstacles
	}
	slices.Sort(left)
	return plan, left
}

// leave lets a table stay as it is.
func (p *Plan) leave(t *TablePlan, left []string) []string {
	*t = TablePlan{Table: t.Table, Kind: topology.Single, Reason: "something stands in its way"}
	return append(left, t.Table)
}

// leaveTargets lets the sharded tables stay as they are that a table refers to which stays itself.
func (p *Plan) leaveTargets(t *Table, left []string) []string {
	if t == nil {
		return left
	}
	for _, f := range t.ForeignKeys {
		if target := p.table(f.Target()); target != nil && target.Kind == topology.Sharded {
			left = p.leave(target, left)
		}
	}
	return left
}
