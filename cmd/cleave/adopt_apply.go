package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/adopt"
	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// apply makes the database a shard, creates the keyspace and, if asked to, declares the tables. What is done already is passed over.
func (a *adoption) apply(ctx context.Context) error {
	plan, err := a.applicable()
	if err != nil {
		return err
	}
	w := a.cmd.OutOrStdout()
	if a.out.format != formatText || a.out.file != "" {
		w = a.cmd.ErrOrStderr()
	}
	if err := a.claim(ctx, w, plan); err != nil {
		return err
	}
	if err := a.makeKeyspace(ctx, w, plan); err != nil {
		return err
	}
	if a.flags.final {
		if err := a.declare(ctx, w, plan); err != nil {
			return err
		}
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	if a.out.format == formatJSON {
		return a.out.write(a.cmd, a.print)
	}
	return a.out.write(a.cmd, func(w io.Writer) error { return a.printApplied(ctx, w, plan) })
}

// applicable is the plan that can be carried out, or why it cannot, before anything is touched.
func (a *adoption) applicable() (*adopt.Plan, error) {
	p := a.proposal
	if problems := p.Problems(); len(problems) > 0 {
		refusal := &detailedError{error: fmt.Errorf("database %s cannot be a shard as it is", a.conn.Config().Database)}
		for _, f := range problems {
			refusal.lines = append(refusal.lines, strings.TrimSpace(findingLine(f)))
		}
		return nil, refusal
	}
	if len(p.Assessment.Obstacles) == 0 {
		return p.Plan, nil
	}
	if a.flags.skipBlocked {
		plan, left := p.WithoutBlocked()
		fmt.Fprintf(a.cmd.ErrOrStderr(), "cleave: left as they are: %s\n", strings.Join(left, ", "))
		return plan, nil
	}
	refusal := &detailedError{error: errors.New("something stands in the way of the tables, and nothing was changed")}
	for _, o := range p.Assessment.Obstacles {
		refusal.lines = append(refusal.lines, fmt.Sprintf("%s: %s", o.Table, o.Message))
	}
	refusal.lines = append(refusal.lines, "hint: --mend mends what can be mended meanwhile; --skip-blocked leaves those tables as they are")
	return nil, refusal
}

// cluster asks for the map, which has to be there.
func (a *adoption) cluster(ctx context.Context) (*topology.Map, error) {
	m, err := ask(a.cmd, a.connection, "asking for the map", func(_ context.Context, client *api.Client) (*topology.Map, error) { return client.Map(ctx) })
	var refused *api.RequestError
	if errors.As(err, &refused) && refused.Answer.Code == api.CodeNoMap {
		return nil, &detailedError{error: errors.New("the cluster has no map yet"), lines: []string{"hint: cleave map create"}}
	}
	return m, err
}

// claim makes the database the cluster's first shard.
func (a *adoption) claim(ctx context.Context, w io.Writer, plan *adopt.Plan) error {
	m, err := a.cluster(ctx)
	if err != nil {
		return err
	}
	id := a.proposal.Report.Identity
	switch {
	case id != nil && id.Cluster == m.Cluster() && m.Shard(id.Shard) != nil && m.Home().Name() == id.Shard:
		fmt.Fprintf(w, "The database is shard %s of the cluster already.\n", id.Shard)
		return nil
	case m.ShardCount() > 0:
		return &detailedError{
			error: fmt.Errorf("the cluster has shards already, the first of which is %s", m.Home().Name()),
			lines: []string{"hint: the tables that nobody has declared are those of the first shard, so a database that is in use can only be that one. Use a cluster of its own for it; others join it afterwards."},
		}
	}
	spec, err := a.shardSpec(plan)
	if err != nil {
		return err
	}
	added, err := ask(a.cmd, a.connection, "adding shard "+spec.Name, func(_ context.Context, client *api.Client) (api.ShardChanged, error) {
		return client.AddShard(ctx, api.AddShard{ShardSpec: spec})
	})
	if err != nil {
		return err
	}
	warn(a.cmd, slices.DeleteFunc(added.Findings, func(f api.Finding) bool { return f.Code == "other_tables" })) // all of them are, and all are found
	fmt.Fprintf(w, "The database is shard %s (number %d) now. Map version %d.\n", added.Shard.Name, added.Shard.Number, added.MapVersion)
	return nil
}

// shardSpec describes the shard as the cluster's processes reach it.
func (a *adoption) shardSpec(plan *adopt.Plan) (topology.ShardSpec, error) {
	config := a.conn.Config()
	spec := topology.ShardSpec{Name: plan.Shard, Weight: 1}
	login := a.flags.login
	login.database = config.Database
	if err := login.apply(&spec); err != nil {
		return spec, err
	}
	spec.Primary.Address = cmp.Or(a.flags.address, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	if a.flags.address == "" && strings.HasPrefix(config.Host, "/") {
		return spec, wrongInputf("--dsn leads over a Unix socket: say with --address host:port how the cluster's processes reach the server")
	}
	return spec, nil
}

// makeKeyspace creates the keyspace while the cluster has one shard, so that all of it is there and no row has to move.
func (a *adoption) makeKeyspace(ctx context.Context, w io.Writer, plan *adopt.Plan) error {
	if len(plan.Sharded()) == 0 {
		return nil
	}
	m, err := a.cluster(ctx)
	if err != nil {
		return err
	}
	if k := m.Keyspace(plan.Keyspace); k != nil {
		return fitsKeyspace(k, plan, m.Home().Name())
	}
	if m.ShardCount() > 1 {
		return &detailedError{
			error: fmt.Errorf("keyspace %s is not there, and the cluster has %d shards: it would be dealt to all of them, and rows would have to move", plan.Keyspace, m.ShardCount()),
			lines: []string{"hint: create it while the database is the only shard, with --apply; others can be added afterwards."},
		}
	}
	made, err := ask(a.cmd, a.connection, "creating keyspace "+plan.Keyspace, func(_ context.Context, client *api.Client) (api.KeyspaceChanged, error) {
		return client.CreateKeyspace(ctx, api.CreateKeyspace{Name: plan.Keyspace, Key: []string{plan.KeyType}})
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Keyspace %s (%s) is there, all of it on shard %s. Map version %d.\n", made.Keyspace.Name, plan.KeyType, m.Home().Name(), made.MapVersion)
	return nil
}

// fitsKeyspace sees whether a keyspace that is there takes the tables without a row that moves.
func fitsKeyspace(k *topology.Keyspace, plan *adopt.Plan, home string) error {
	want, err := key.ParseType(plan.KeyType)
	if err != nil {
		return err
	}
	if k.Strategy() == topology.BySchema || !slices.Equal(shard.KeyFamilies(k.KeyTypes()), shard.KeyFamilies([]key.Type{want})) {
		return fmt.Errorf("keyspace %s is there, and does not take keys of type %s: name another with --keyspace, or in the plan", k.Name(), plan.KeyType)
	}
	for r := range k.Ranges() {
		if r.Owner.Name() != home {
			return fmt.Errorf("keyspace %s is there, and a part of it is on shard %s: rows would have to be copied there; name another with --keyspace, or in the plan", k.Name(), r.Owner.Name())
		}
	}
	return nil
}

// declare declares the tables that are not what they are to be, reference tables first, since sharded ones refer to them.
func (a *adoption) declare(ctx context.Context, w io.Writer, plan *adopt.Plan) error {
	m, err := a.cluster(ctx)
	if err != nil {
		return err
	}
	if err := a.doorIsClosed(m); err != nil {
		return err
	}
	references, err := undeclared(m, plan, plan.References())
	if err != nil {
		return err
	}
	sharded, err := undeclared(m, plan, plan.Sharded())
	if err != nil {
		return err
	}
	for _, request := range []api.DeclareTables{
		{Kind: topology.Reference, Tables: references},
		{Kind: topology.Sharded, Tables: sharded, Keyspace: plan.Keyspace, UniquePerShard: plan.UniquePerShard(), IDs: plan.IDs},
	} {
		if len(request.Tables) == 0 {
			continue
		}
		if err := a.declareAll(ctx, w, request); err != nil {
			return err
		}
	}
	return nil
}

func (a *adoption) declareAll(ctx context.Context, w io.Writer, request api.DeclareTables) error {
	changed, err := ask(a.cmd, a.connection, "declaring "+counted(len(request.Tables), "table"), func(_ context.Context, client *api.Client) (api.TablesChanged, error) {
		return client.DeclareTables(ctx, request)
	})
	if err != nil {
		return err
	}
	warn(a.cmd, changed.Findings)
	for _, t := range changed.Tables {
		fmt.Fprintln(w, describeTable(t, changed))
	}
	fmt.Fprintf(w, "%d rows moved from shard to shard. Map version %d.\n", changed.RowsMoved, changed.MapVersion)
	return nil
}

// undeclared are those of the tables that the map does not have yet; one that it has otherwise is an error.
func undeclared(m *topology.Map, plan *adopt.Plan, tables []*adopt.TablePlan) ([]api.TableKey, error) {
	var found []api.TableKey
	for _, t := range tables {
		declared := m.Table(t.Name().Schema, t.Name().Name)
		switch {
		case declared == nil || declared.Kind() == topology.Single:
			entry := api.TableKey{Name: t.Table}
			if t.Key != "" {
				entry.Key = []string{t.Key}
			}
			found = append(found, entry)
		case declared.Kind() != t.Kind,
			t.Kind == topology.Sharded && (declared.Keyspace().Name() != plan.Keyspace || !slices.Equal(declared.KeyColumns(), []string{t.Key})):
			return nil, fmt.Errorf("table %s is declared already, and not as the plan has it: bring it back with 'cleave table undistribute %[1]s', or change the plan", t.Table)
		}
	}
	return found, nil
}

// doorIsClosed refuses to declare tables while writers would be locked out by it.
func (a *adoption) doorIsClosed(m *topology.Map) error {
	if a.flags.visitorsLeft {
		return nil
	}
	refusal := &detailedError{error: errors.New("the tables are not declared yet: whoever is connected past the routers could not write any more")}
	for _, v := range a.proposal.Door.Visitors {
		refusal.lines = append(refusal.lines, fmt.Sprintf("%s as %s from %s: %s", cmp.Or(v.Application, "a program without a name"), v.User, cmp.Or(v.Address, "this machine"), counted(v.Connections, "connection")))
	}
	for _, f := range a.proposal.Door.Fillings {
		if m.ShardCount() > 1 && !f.Last.IsZero() {
			refusal.error = errors.New("the tables are not declared yet: an application leaves out shard keys, which a cluster of several shards cannot do without")
			refusal.lines = append(refusal.lines, fmt.Sprintf("%s: last on %s", f.Table, f.Last.UTC().Format("2006-01-02 15:04:05 UTC")))
		}
	}
	if len(refusal.lines) == 0 {
		return nil
	}
	refusal.lines = append(refusal.lines, "hint: let them use a router, then run this again; --despite-connections declares the tables all the same")
	return refusal
}

// printApplied says what is to be done now, and how to get to the router.
func (a *adoption) printApplied(ctx context.Context, w io.Writer, plan *adopt.Plan) error {
	fmt.Fprintln(w)
	status, err := ask(a.cmd, a.connection, "asking for the routers", func(_ context.Context, client *api.Client) (api.Status, error) { return client.Status(ctx) })
	if err != nil {
		return err
	}
	if !a.flags.final {
		fmt.Fprintln(w, "Nothing has changed for the application: it may go on writing to the database itself, and use a router as well,\nwhich finds the tables where they are. Point it to a router now, process by process:")
	} else {
		fmt.Fprintln(w, "Applications connect to a router:")
	}
	for _, r := range status.Routers {
		if r.Listen != "" {
			fmt.Fprintf(w, "  postgres://USER@%s/%s\n", routerAddress(r), a.conn.Config().Database)
		}
	}
	fmt.Fprintf(w, "The name of the database there is shards.database of the routers' configuration, %s if it is to stay the same.\n\n", a.conn.Config().Database)
	if err := printDoor(w, a.proposal.Door); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if a.flags.final {
		a.printLast(w, plan)
		return nil
	}
	_, err = fmt.Fprintln(w, "When nobody is left who comes past the routers: --apply --final declares the tables.")
	return err
}

// printLast says what is left to do before there are more shards.
func (a *adoption) printLast(w io.Writer, plan *adopt.Plan) {
	var filled []string
	for _, t := range plan.Sharded() {
		if slices.ContainsFunc(a.proposal.Door.Fillings, func(f adopt.Filling) bool { return f.Table == t.Table }) {
			filled = append(filled, fmt.Sprintf("%s (%s)", t.Table, t.Key))
		}
	}
	if len(filled) > 0 {
		fmt.Fprintf(w, "Before a second shard is added, applications have to give the shard key when they insert rows into: %s.\nWhile there is one shard triggers fill it in, and --check-door says when they last had to.\n", strings.Join(filled, ", "))
	}
	fmt.Fprintln(w, "Then: cleave shard add NAME --address host:port")
}

// routerAddress is where clients connect to a router, by its name if it listens everywhere.
func routerAddress(r api.Router) string {
	host, port, err := net.SplitHostPort(r.Listen)
	if err != nil {
		return r.Listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = r.Name
	}
	return net.JoinHostPort(host, port)
}
