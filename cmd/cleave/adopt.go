package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/adopt"
	"github.com/cleavedb/cleave/internal/topology"
)

// formatText is the format for people of commands that print more than a table.
const formatText = "text"

// adoptFlags are the flags of 'cleave adopt'.
type adoptFlags struct {
	dsn, address              string
	planFile                  string
	keys, drops, primaryKeys  []string
	dropped, primary          map[topology.TableName][]string // what the last two say
	options                   adopt.Options
	login                     loginFlags
	mend, apply, final        bool
	checkDoor, sql            bool
	skipBlocked, visitorsLeft bool
}

func newAdopt() *cobra.Command {
	var c connection
	var f adoptFlags
	var out output
	cmd := &cobra.Command{
		Use:   "adopt --dsn CONNECTION-STRING",
		Short: "Take a database that is in use as the first shard of a cluster",
		Long: `Look at a PostgreSQL database that an application uses, and say how its tables could be sharded: which
table is at the root, which ones go by its key, which ones every shard has a copy of, what stands in the
way, and the statements that mend it while the application goes on. That changes nothing and needs no cluster.

Then, step by step, no rows are copied and the application need not stop:
  --mend           run those statements, one by one; may be interrupted, and run again
  --apply          make the database shard one of the cluster and create the keyspace. The application can
                   now use a router as well as the database itself, table by table as before
  --check-door     who is still connected past the routers, and how to close that door
  --apply --final  declare the tables. From then on writes past a router are refused, so this is refused
                   while somebody is connected directly

Every step can be run again: it goes on where it was. With --plan the decisions are kept in a file, which you
may edit; it is written if it is not there, and taken if it is.`,
		Example: `  cleave adopt --dsn postgres://postgres@db1/shop
  cleave adopt --dsn postgres://postgres@db1/shop --key customers.id --plan shop.json
  cleave adopt --dsn postgres://postgres@db1/shop --plan shop.json --mend
  cleave adopt --dsn postgres://postgres@db1/shop --plan shop.json --apply
  cleave adopt --dsn postgres://postgres@db1/shop --plan shop.json --apply --final`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), f.check()); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			a := &adoption{cmd: cmd, connection: &c, flags: &f, out: &out}
			err := a.run(ctx)
			if err != nil && ctx.Err() != nil {
				return errors.New("interrupted: what is done stays done, and the same command goes on from there")
			}
			return err
		},
	}
	c.flags(cmd)
	out.flags(cmd, formatText, formatJSON)
	f.register(cmd)
	return cmd
}

func (f *adoptFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.dsn, "dsn", "", "the database, as postgres://user@host:port/name; a password may also be in PGPASSWORD or ~/.pgpass. Mending takes the rights of the tables' owner")
	flags.StringVar(&f.options.Shard, "name", "", "name of the shard (default shard1)")
	flags.StringVar(&f.options.Keyspace, "keyspace", "", "name of the keyspace (default: that of the root table)")
	flags.StringArrayVar(&f.keys, "key", nil, "TABLE.COLUMN to shard a table by; the primary key of the root chooses the root; may be repeated (default: the foreign keys decide)")
	flags.StringVar(&f.options.IDs, "ids", "", "what serial columns that are not the key get: keyed or counted (default keyed)")
	flags.StringArrayVar(&f.drops, "drop-foreign-key", nil, "TABLE.NAME of a foreign key that cannot be kept and is given up; may be repeated")
	flags.StringArrayVar(&f.primaryKeys, "primary-key", nil, "TABLE.COLUMN that tells rows of a table apart which has no primary key to move rows by; one that is not there is added, with UUIDs; may be repeated")
	flags.StringVar(&f.planFile, "plan", "", "file with the decisions: written if it is not there, taken if it is")
	flags.BoolVar(&f.sql, "sql", false, "print the statements that mend the tables, as a script for psql, and nothing else")
	flags.BoolVar(&f.mend, "mend", false, "run the statements that mend the tables")
	flags.BoolVar(&f.apply, "apply", false, "make the database a shard and create the keyspace")
	flags.BoolVar(&f.final, "final", false, "with --apply: declare the tables, too, which closes them to who comes past the routers")
	flags.BoolVar(&f.skipBlocked, "skip-blocked", false, "leave tables as they are that something stands in the way of")
	flags.BoolVar(&f.checkDoor, "check-door", false, "say who is connected past the routers, and how to close that door")
	flags.BoolVar(&f.visitorsLeft, "despite-connections", false, "with --final: declare the tables although somebody is connected directly, whose writes then fail")
	flags.StringVar(&f.address, "address", "", "host:port at which the cluster's processes reach the server (default: that of --dsn)")
	flags.StringVar(&f.login.user, "user", "", "role that the cluster's processes log in as (default: that of their configuration, taken for cleave)")
	flags.StringVar(&f.login.passwordFile, "password-file", "", "absolute path of the file with that role's password, where the cluster runs")
	flags.StringVar(&f.login.passwordEnv, "password-env", "", "environment variable with that password, where the cluster runs")
	flags.StringVar(&f.login.sslMode, "sslmode", "", "what the cluster's processes ask of connections: "+strings.Join(topology.SSLModes(), ", "))
	flags.StringVar(&f.login.sslRootCert, "sslrootcert", "", "certificates that the server's must be signed by, where the cluster runs")
	complete(cmd, "sslmode", topology.SSLModes())
	complete(cmd, "ids", []string{"keyed", "counted"})
	_ = cmd.MarkFlagFilename("plan", "json")
}

// check refuses flags that make no sense, and reads those that have parts.
func (f *adoptFlags) check() error {
	switch {
	case f.dsn == "":
		return wrongInputf("say which database to adopt: --dsn postgres://user@host:port/name")
	case f.final && !f.apply:
		return wrongInputf("--final is the second half of --apply: write --apply --final")
	case f.visitorsLeft && !f.final:
		return wrongInputf("--despite-connections is for --final")
	case f.options.IDs != "" && f.options.IDs != "keyed" && f.options.IDs != "counted":
		return wrongInputf("--ids %q is neither keyed nor counted", f.options.IDs)
	case (f.sql || f.checkDoor) && (f.mend || f.apply):
		return wrongInputf("--sql and --check-door only look: run them without --mend and --apply")
	}
	if f.options.Shard != "" {
		if err := checkName("shard", f.options.Shard); err != nil {
			return err
		}
	}
	if f.options.Keyspace != "" {
		if err := checkName("keyspace", f.options.Keyspace); err != nil {
			return err
		}
	}
	f.options.Keys = nil
	for _, text := range f.keys {
		table, column, err := tableAndPart("--key", text, "COLUMN")
		if err != nil {
			return err
		}
		f.options.Keys = append(f.options.Keys, adopt.KeyChoice{Table: table, Column: column})
	}
	var err error
	if f.dropped, err = partsOfTables("--drop-foreign-key", f.drops, "NAME"); err != nil {
		return err
	}
	f.primary, err = partsOfTables("--primary-key", f.primaryKeys, "COLUMN")
	return err
}

// role is the one that the cluster's processes log in as.
func (f *adoptFlags) role() string { return cmp.Or(f.login.user, "cleave") }

// tableAndPart reads a table and the name of something of it, as in orders.user_id or public.orders.user_id.
func tableAndPart(flag, text, part string) (topology.TableName, string, error) {
	at := strings.LastIndexByte(text, '.')
	if strings.HasSuffix(text, `"`) {
		at = strings.LastIndex(text, `."`)
	}
	if at <= 0 {
		return topology.TableName{}, "", wrongInputf("%s %q: write TABLE.%s", flag, text, part)
	}
	table, err := topology.ParseTableName(text[:at])
	if err != nil {
		return topology.TableName{}, "", wrongInput(fmt.Errorf("%s: %w", flag, err))
	}
	name, err := parseColumns(text[at+1:])
	if err != nil || len(name) != 1 {
		return topology.TableName{}, "", wrongInputf("%s %q: write TABLE.%s", flag, text, part)
	}
	return table, name[0], nil
}

// partsOfTables reads what a flag names of tables.
func partsOfTables(flag string, texts []string, part string) (map[topology.TableName][]string, error) {
	parts := map[topology.TableName][]string{}
	for _, text := range texts {
		table, name, err := tableAndPart(flag, text, part)
		if err != nil {
			return nil, err
		}
		parts[table] = append(parts[table], name)
	}
	return parts, nil
}

// adoption is one run of the command.
type adoption struct {
	cmd        *cobra.Command
	connection *connection
	flags      *adoptFlags
	out        *output
	mender     *adopt.Mender
	conn       *pgx.Conn
	proposal   *adopt.Proposal
}

func (a *adoption) run(ctx context.Context) (err error) {
	a.mender = &adopt.Mender{}
	if a.conn, err = adopt.Connect(ctx, a.flags.dsn, a.mender.Hear); err != nil {
		return err
	}
	defer func() { _ = a.conn.Close(context.Background()) }()
	if a.flags.checkDoor {
		return a.showDoor(ctx)
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	if a.proposal.Plan != nil && a.flags.mend {
		if err := a.mend(ctx); err != nil {
			return err
		}
	}
	switch {
	case a.flags.sql:
		return a.out.write(a.cmd, a.printSQL)
	case a.flags.apply:
		return a.apply(ctx)
	case a.flags.mend && a.out.format == formatText:
		return a.out.write(a.cmd, a.printMended)
	default:
		return a.out.write(a.cmd, a.print)
	}
}

// look reads the database and the plan, and keeps a new plan.
func (a *adoption) look(ctx context.Context) error {
	options := adopt.LookOptions{Role: a.flags.role(), Options: a.flags.options, Drop: a.flags.dropped, PrimaryKeys: a.flags.primary}
	var err error
	if options.Plan, err = a.readPlan(); err != nil {
		return err
	}
	err = showing(a.cmd, "looking at the database", func() (err error) {
		a.proposal, err = adopt.Look(ctx, a.conn, options)
		return err
	})
	if err != nil || a.flags.planFile == "" || a.proposal.Plan == nil || options.Plan != nil && len(options.Drop)+len(options.PrimaryKeys) == 0 {
		return err
	}
	return writeWhole(a.flags.planFile, a.proposal.Plan.Write)
}

// readPlan reads the plan if there is a file; nil if there is none.
func (a *adoption) readPlan() (*adopt.Plan, error) {
	if a.flags.planFile == "" {
		return nil, nil //nolint:nilnil // no plan is an answer: one is proposed
	}
	file, err := os.Open(a.flags.planFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, wrongInput(err)
	}
	defer file.Close()
	plan, err := adopt.ReadPlan(file)
	if err != nil {
		return nil, wrongInput(fmt.Errorf("%s: %w", a.flags.planFile, err))
	}
	if len(a.flags.keys) > 0 || a.flags.options.Shard != "" || a.flags.options.Keyspace != "" || a.flags.options.IDs != "" {
		return nil, wrongInputf("%s is there, and its decisions count: edit it instead of giving --key, --name, --keyspace or --ids, or remove it", a.flags.planFile)
	}
	return plan, nil
}

// mend runs the steps, and tells of each.
func (a *adoption) mend(ctx context.Context) error {
	shown := newProgress(a.cmd)
	w := a.cmd.OutOrStdout()
	if a.out.format != formatText || a.out.file != "" {
		w = a.cmd.ErrOrStderr()
	}
	a.mender.Conn, a.mender.Plan, a.mender.Crossings = a.conn, a.proposal.Plan, a.proposal.Crossings
	a.mender.Watch = func(ctx context.Context) (*pgx.Conn, error) { return adopt.Connect(ctx, a.flags.dsn, nil) }
	a.mender.Progress = func(step adopt.Step, text string) { shown.step("%s: %s … %s", step.Table, step.Title, text) }
	a.mender.Ended = func(step adopt.Step, took time.Duration) {
		shown.done()
		fmt.Fprintf(w, "%s: %s (%s)\n", step.Table, step.Title, took.Round(time.Millisecond))
	}
	_, err := a.mender.Run(ctx)
	shown.done()
	var failed *adopt.StepError
	if errors.As(err, &failed) {
		return &detailedError{error: err, lines: slices.DeleteFunc([]string{hintLine(failed.Hint)}, func(line string) bool { return line == "" })}
	}
	if err != nil {
		return err
	}
	a.flags.dropped = nil // they are gone
	return a.look(ctx)
}

func hintLine(hint string) string {
	if hint == "" {
		return ""
	}
	return "hint: " + hint
}

// printSQL prints the steps as a script.
func (a *adoption) printSQL(w io.Writer) error {
	if a.proposal.Plan == nil || len(a.proposal.Assessment.Steps) == 0 {
		_, err := fmt.Fprintln(w, "-- There is nothing to mend.")
		return err
	}
	fmt.Fprintf(w, "-- Mends the tables of database %s, while it is in use. Run it with psql -v ON_ERROR_STOP=1, not in one\n-- transaction. A statement that gives up because somebody uses a table can be run again.\n", a.proposal.Catalogue.Database)
	for _, step := range a.proposal.Assessment.Steps {
		fmt.Fprintf(w, "\n%s", step.SQL())
	}
	return nil
}
