package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/adopt"
	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// adoptReport is all of it for programs.
type adoptReport struct {
	Server   string `json:"server"`
	Database string `json:"database"`
	Postgres string `json:"postgres"`
	// Cluster and Shard are those that the database belongs to already, if it does.
	Cluster    string            `json:"cluster,omitempty"`
	Shard      string            `json:"shard,omitempty"`
	Findings   []api.Finding     `json:"findings"`
	Plan       *adopt.Plan       `json:"plan,omitempty"`
	Candidates []adopt.Candidate `json:"candidates,omitempty"`
	Tables     []adoptTable      `json:"tables"`
	Steps      []adopt.Step      `json:"steps"`
	Warnings   []api.Finding     `json:"warnings"`
	Door       *adoptDoor        `json:"door,omitempty"`
}

// adoptTable is a table, and what stands in its way.
type adoptTable struct {
	adopt.TablePlan
	Rows      int64            `json:"rows"`
	Bytes     int64            `json:"bytes"`
	Declared  bool             `json:"declared"`
	Obstacles []adopt.Obstacle `json:"obstacles"`
}

// adoptDoor is who comes past the routers, and how to keep them out.
type adoptDoor struct {
	*adopt.Door
	HBA        []string `json:"pg_hba"`
	Statements []string `json:"statements"`
}

func doorOf(d *adopt.Door) *adoptDoor {
	if d == nil {
		return nil
	}
	lines, statements := d.Closing()
	return &adoptDoor{Door: d, HBA: lines, Statements: statements}
}

func (a *adoption) report() adoptReport {
	p := a.proposal
	r := adoptReport{Postgres: p.Report.Version, Server: a.serverText(), Database: a.conn.Config().Database, Door: doorOf(p.Door), Tables: []adoptTable{}, Findings: orEmpty(p.Server), Steps: []adopt.Step{}, Warnings: []api.Finding{}}
	if id := p.Report.Identity; id != nil {
		r.Cluster, r.Shard = id.Cluster, id.Shard
	}
	if p.Plan == nil {
		return r
	}
	r.Plan, r.Candidates, r.Steps, r.Warnings = p.Plan, p.Candidates, orEmpty(p.Assessment.Steps), orEmpty(p.Assessment.Warnings)
	for _, planned := range p.Plan.Tables {
		t := adoptTable{TablePlan: planned, Obstacles: orEmpty(p.Assessment.Of(planned.Table)), Declared: slices.Contains(p.Report.Guarded, planned.Name())}
		if found := p.Catalogue.Table(planned.Name()); found != nil {
			t.Rows, t.Bytes = found.Rows, found.Bytes
		}
		r.Tables = append(r.Tables, t)
	}
	return r
}

// orEmpty is the list, empty where there is none: programs go through it without looking.
func orEmpty[E any](list []E) []E {
	if list == nil {
		return []E{}
	}
	return list
}

func (a *adoption) serverText() string {
	config := a.conn.Config()
	return fmt.Sprintf("%s:%d", config.Host, config.Port)
}

// print shows the proposal.
func (a *adoption) print(w io.Writer) error {
	r := a.report()
	if a.out.format == formatJSON {
		return printJSON(w, r)
	}
	printAdoptHead(w, r)
	printAdoptServer(w, r.Findings, a.flags.role())
	if r.Plan == nil {
		return nil
	}
	if err := printAdoptPlan(w, r); err != nil {
		return err
	}
	printAdoptObstacles(w, r)
	printAdoptWarnings(w, r.Warnings)
	a.printNext(w, r)
	return nil
}

func printAdoptHead(w io.Writer, r adoptReport) {
	var rows, bytes int64
	for _, t := range r.Tables {
		rows, bytes = rows+t.Rows, bytes+t.Bytes
	}
	fmt.Fprintf(w, "Database %s at %s: PostgreSQL %s, %s, about %s rows, %s.\n", r.Database, r.Server, r.Postgres, counted(len(r.Tables), "table"), grouped(float64(rows)), sizeText(bytes))
	if r.Shard != "" {
		fmt.Fprintf(w, "It is shard %s of cluster %s already.\n", r.Shard, r.Cluster)
	}
}

// sizeText is a size for people.
func sizeText(bytes int64) string {
	size, unit := float64(bytes), "bytes"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, next
	}
	if size < 10 && unit != "bytes" {
		return fmt.Sprintf("%.1f %s", size, unit)
	}
	return fmt.Sprintf("%.0f %s", size, unit)
}

// printAdoptServer tells first what takes a restart, since that takes planning.
func printAdoptServer(w io.Writer, findings []api.Finding, role string) {
	var restart, rest []api.Finding
	for _, f := range findings {
		if adopt.NeedsRestart(f) {
			restart = append(restart, f)
		} else {
			rest = append(rest, f)
		}
	}
	if len(restart) > 0 {
		fmt.Fprintln(w, "\nFirst of all, what needs a restart of the server:")
		for _, f := range restart {
			fmt.Fprintf(w, "  %s: %s\n", f.Severity, f.Message)
		}
		for _, f := range restart {
			statement, _, _ := strings.Cut(f.Hint, ";")
			fmt.Fprintf(w, "    %s;\n", statement)
		}
	}
	if len(rest) > 0 {
		fmt.Fprintf(w, "\nThe server, and the rights of role %s, which the cluster logs in as:\n", role)
		printHinted(w, rest)
	}
}

func printHinted(w io.Writer, findings []api.Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "  %s: %s\n", f.Severity, f.Message)
		if f.Hint != "" {
			fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(f.Hint, "; ", ";\n    "))
		}
	}
}

func printAdoptPlan(w io.Writer, r adoptReport) error {
	if len(r.Plan.Sharded()) == 0 {
		fmt.Fprint(w, "\nNo table is at the root of others by foreign keys, or by names such as user_id, so nothing is proposed to be\nsharded. Name the root with --key TABLE.COLUMN.\n")
	} else {
		fmt.Fprintf(w, "\nProposal: shard %s, with keyspace %s", r.Plan.Shard, r.Plan.Keyspace)
		if r.Plan.Root != "" {
			fmt.Fprintf(w, " by the key of %s", r.Plan.Root)
		}
		fmt.Fprintf(w, " (%s)\n", r.Plan.KeyType)
	}
	rows := make([][]any, len(r.Tables))
	for i, t := range r.Tables {
		rows[i] = []any{t.Table, t.Kind, t.Key, grouped(float64(t.Rows)), sizeText(t.Bytes), stateText(t), t.Reason}
	}
	if err := printTable(w, []string{"table", "becomes", "by", "rows", "size", "is", "because"}, rows); err != nil {
		return err
	}
	if others := otherRoots(r); others != "" {
		fmt.Fprintf(w, "It could also go by %s: --key chooses.\n", others)
	}
	return nil
}

// stateText is how far a table is from what it is to become.
func stateText(t adoptTable) string {
	switch {
	case t.Declared:
		return "declared"
	case slices.ContainsFunc(t.Obstacles, func(o adopt.Obstacle) bool { return len(o.Steps) == 0 }):
		return "blocked"
	case len(t.Obstacles) > 0:
		return "to mend"
	case t.Kind == topology.Single:
		return ""
	default:
		return "ready"
	}
}

// otherRoots are tables that would do as well, or nearly.
func otherRoots(r adoptReport) string {
	var others []string
	for _, c := range r.Candidates {
		if c.Table != r.Plan.Root && !c.Lookup && len(others) < 2 && c.Score >= r.Candidates[0].Score/2 {
			others = append(others, fmt.Sprintf("%s.%s (tables that lead to it: %d)", strings.TrimPrefix(c.Table, "public."), c.Key, c.Reaches))
		}
	}
	return strings.Join(others, ", or by ")
}

func printAdoptObstacles(w io.Writer, r adoptReport) {
	var blocked, mendable int
	for _, t := range r.Tables {
		for _, o := range t.Obstacles {
			if len(o.Steps) == 0 {
				blocked++
			} else {
				mendable++
			}
		}
	}
	if blocked+mendable == 0 {
		return
	}
	fmt.Fprintf(w, "\nIn the way: %s that can be mended while the application goes on, %d that you have to decide or do.\n", counted(mendable, "thing"), blocked)
	for _, t := range r.Tables {
		if len(t.Obstacles) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", t.Table)
		for _, o := range t.Obstacles {
			printObstacle(w, o)
		}
	}
}

func printObstacle(w io.Writer, o adopt.Obstacle) {
	mark := "-"
	if len(o.Steps) == 0 {
		mark = "!"
	}
	fmt.Fprintf(w, "  %s %s\n", mark, o.Message)
	if o.Hint != "" {
		fmt.Fprintf(w, "      %s\n", o.Hint)
	}
	for _, step := range o.Steps {
		fmt.Fprintf(w, "      %s\n", step.Title)
	}
}

func printAdoptWarnings(w io.Writer, warnings []api.Finding) {
	if len(warnings) == 0 {
		return
	}
	fmt.Fprintln(w, "\nWorth knowing:")
	printHinted(w, warnings)
}

// printNext says what to do next.
func (a *adoption) printNext(w io.Writer, r adoptReport) {
	fmt.Fprintln(w)
	if a.flags.planFile != "" {
		fmt.Fprintf(w, "The decisions are in %s, which you may edit.\n", a.flags.planFile)
	}
	undecided := len(a.proposal.Assessment.Undecided())
	switch {
	case len(a.proposal.Problems()) > 0:
		fmt.Fprintln(w, "Next: mend what is wrong with the server or the role, and run this again.")
	case len(r.Steps) > 0:
		fmt.Fprintf(w, "Next: --mend runs %s; --sql prints them in full.\n", counted(len(r.Steps), "step"))
	case undecided > 0:
		fmt.Fprintln(w, "Next: decide what is marked with !, or leave those tables as they are with --skip-blocked.")
	case len(r.Plan.Sharded()) == 0:
	case r.Shard == "":
		fmt.Fprintln(w, "Next: --apply makes the database a shard. The application goes on, and can be moved to a router at any time after.")
	case !allDeclared(r):
		fmt.Fprintln(w, "Next: let the application connect to a router, see with --check-door that nobody is left, then --apply --final.")
	default:
		fmt.Fprintln(w, "The tables are declared. --check-door says who is still connected past the routers.")
	}
}

func allDeclared(r adoptReport) bool {
	return !slices.ContainsFunc(r.Tables, func(t adoptTable) bool { return t.Kind != topology.Single && !t.Declared })
}

// printMended says what is left after mending.
func (a *adoption) printMended(w io.Writer) error {
	r := a.report()
	if left := a.proposal.Assessment.Undecided(); len(left) > 0 {
		fmt.Fprintf(w, "\nMended, but for %s:\n", counted(len(left), "thing"))
		for _, o := range left {
			fmt.Fprintf(w, "%s\n", o.Table)
			printObstacle(w, o)
		}
	} else {
		fmt.Fprintln(w, "Nothing stands in the way of the tables any more.")
	}
	a.printNext(w, r)
	return nil
}

// showDoor prints who is connected past the routers.
func (a *adoption) showDoor(ctx context.Context) error {
	door, err := adopt.LookAtDoor(ctx, a.conn, a.flags.role())
	if err != nil {
		return err
	}
	return a.out.write(a.cmd, func(w io.Writer) error {
		if a.out.format == formatJSON {
			return printJSON(w, doorOf(door))
		}
		return printDoor(w, door)
	})
}

func printDoor(w io.Writer, d *adopt.Door) error {
	if err := printVisitors(w, d); err != nil {
		return err
	}
	for _, f := range d.Fillings {
		if f.Last.IsZero() {
			fmt.Fprintf(w, "No row of %s has come without its shard key since its trigger fills it in.\n", f.Table)
		} else {
			fmt.Fprintf(w, "A row of %s came without its shard key, and the trigger filled it in, last on %s.\n", f.Table, f.Last.UTC().Format("2006-01-02 15:04:05 UTC"))
		}
	}
	lines, statements := d.Closing()
	fmt.Fprintf(w, "\nTo close the door, put these lines before all others that fit in pg_hba.conf. Routers log in as their clients\ndo, so roles keep their right to connect; it is the address that tells:\n")
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", line)
	}
	fmt.Fprintln(w, "Servers that become shards later need a line like the routers', for moves connect from server to server.")
	fmt.Fprintln(w, "Then run this, without those who are not to come through a router either:")
	for _, statement := range statements {
		fmt.Fprintf(w, "  %s\n", statement)
	}
	return nil
}

func printVisitors(w io.Writer, d *adopt.Door) error {
	if len(d.Visitors) == 0 {
		_, err := fmt.Fprintf(w, "Nobody is connected to database %s past the routers.\n", d.Database)
		return err
	}
	fmt.Fprintf(w, "Connected to database %s past the routers:\n", d.Database)
	rows := make([][]any, len(d.Visitors))
	for i, v := range d.Visitors {
		address := v.Address
		if address == "" {
			address = "this machine"
		}
		rows[i] = []any{v.User, v.Application, address, v.Connections, v.Since.UTC().Format(time.DateTime)}
	}
	return printTable(w, []string{"user", "application", "from", "connections", "since (UTC)"}, rows)
}
