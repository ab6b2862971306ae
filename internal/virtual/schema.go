package virtual

import (
	"context"

	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Config says whom to ask.
type Config struct {
	// Version of this program, and Router, the name of this process.
	Version, Router string
	// Map is the map in force. Required, as all that follow.
	Map func() *topology.Map
	// Cluster carries out what functions ask for.
	Cluster *control.Cluster
	// Look asks the catalogue.
	Look func(ctx context.Context, relations []plan.RelationName, functions []plan.FunctionName, searchPath []string) (*plan.Known, error)
	// Access says how to ask a shard.
	Access shard.Access
	// Routers lists the processes of the cluster.
	Routers func(ctx context.Context) ([]store.Router, error)
	// Pools, Sessions and Statements are this process's own.
	Pools      func() []pool.ShardStats
	Sessions   func() []session.Info
	Statements *observe.Statements
}

// Schema is the schema cleave. It is a [session.Virtual].
type Schema struct{ config Config }

var _ session.Virtual = (*Schema)(nil)

// New returns the schema.
func New(c Config) *Schema { return &Schema{config: c} }

// View returns a view's columns and, unless only they are wanted, its rows.
func (s *Schema) View(ctx context.Context, name string, columnsOnly bool) (session.View, *pgerr.Error) {
	v, found := views[name]
	if !found {
		return session.View{}, pgerr.New(pgerr.UndefinedTable, "relation \"cleave.%s\" does not exist", name)
	}
	answer := session.View{Columns: v.columns}
	if columnsOnly {
		return answer, nil
	}
	var err error
	if answer.Rows, err = v.rows(ctx, s); err != nil {
		return session.View{}, asError("cleave."+name+" could not be read", err)
	}
	return answer, nil
}

// Views lists the names of the views with their columns.
func Views() map[string][]session.ViewColumn {
	all := make(map[string][]session.ViewColumn, len(views))
	for name, v := range views {
		all[name] = v.columns
	}
	return all
}

// Functions lists the names of the functions with their parameters.
func Functions() map[string][]string {
	all := make(map[string][]string, len(functions))
	for name, f := range functions {
		all[name] = f.parameters
	}
	return all
}
