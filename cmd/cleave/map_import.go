package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// importer is one run of 'map import'.
type importer struct {
	file          string // as people call it
	document      []byte
	imported      *topology.Map
	dryRun, force bool
	older         bool // whether it would undo what was changed since
}

func newMapImport(c *connection) *cobra.Command {
	var i importer
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Put a map in force, from a backup or edited",
		Long: `Put the map in a document in force; '-' is standard input. It must be of this cluster, or there must
be no map yet. Its version is raised above all before it.

An import moves no data. A map that is older than the one in force, or that looks for data elsewhere
than it is, is refused with a list of what would change; --force takes it all the same. --dry-run
lists that and changes nothing; exit code 1 means that it would be refused.`,
		Example: `  cleave map import map.json --dry-run
  cleave map import map.json
  cleave map import - < map.json`,
		Args: needs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := i.read(cmd, args[0]); err != nil {
				return err
			}
			changed, err := ask(cmd, c, "importing the map", i.run)
			if err != nil {
				return err
			}
			warn(cmd, changed.Findings)
			return i.report(cmd.OutOrStdout(), changed)
		},
	}
	cmd.Flags().BoolVar(&i.dryRun, "dry-run", false, "only tell what would change")
	cmd.Flags().BoolVar(&i.force, "force", false, "take a map that is older, or that looks for data elsewhere than it is")
	return cmd
}

// read reads the document and finds its mistakes here, where their lines are still those of the file.
func (i *importer) read(cmd *cobra.Command, path string) (err error) {
	i.file = path
	if path == "-" {
		i.file = "standard input"
		i.document, err = io.ReadAll(cmd.InOrStdin())
	} else {
		i.document, err = os.ReadFile(path)
	}
	if err != nil {
		return wrongInput(err)
	}
	i.imported, err = topology.Decode(i.document)
	var newer *topology.NewerSchemaError
	if err == nil || errors.As(err, &newer) {
		return err
	}
	return wrongInputf("%s: %s", i.file, documentMistake(i.document, err))
}

var unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)

// documentMistake says what is wrong with a document, and where if that is certain.
func documentMistake(document []byte, err error) string {
	var syntax *json.SyntaxError
	message := strings.TrimPrefix(err.Error(), "read the shard map: ")
	switch {
	case len(bytes.TrimSpace(document)) == 0:
		return "it is empty: 'cleave map export' writes what is needed"
	case errors.As(err, &syntax):
		place, _, _ := strings.Cut(message, ": ")
		return place + ": this is not JSON: 'cleave map export' writes what is needed"
	}
	if field := unknownField.FindStringSubmatch(message); field != nil && !strings.HasPrefix(message, "line ") {
		// The name may be right elsewhere, so only one that is there once has a known place.
		name := []byte(`"` + field[1] + `"`)
		if before, after, there := bytes.Cut(document, name); there && !bytes.Contains(after, name) {
			return fmt.Sprintf("line %d: %s", 1+bytes.Count(before, []byte("\n")), message)
		}
	}
	return message
}

// run compares the document with the map in force and imports it, if it is not older. Nothing is imported if the map
// changes in between.
func (i *importer) run(ctx context.Context, client *api.Client) (api.MapChanged, error) {
	request := api.ImportMap{Document: i.document, DryRun: i.dryRun, Force: i.force || i.dryRun}
	current, err := client.Map(ctx)
	var refused *api.RequestError
	if errors.As(err, &refused) && refused.Answer.Code == api.CodeNoMap {
		return client.ImportMap(ctx, request)
	}
	if err != nil {
		return api.MapChanged{}, err
	}
	request.IfVersion = current.Version()
	i.older = i.undoes(current)
	rehearse := i.older && !i.force && !i.dryRun
	if rehearse { // it is refused, with the word of the cluster on what would be lost
		request.DryRun, request.Force = true, true
	}
	changed, err := client.ImportMap(ctx, request)
	if err != nil {
		return changed, err
	}
	changed.Changes = slices.Concat(shardDifferences(current, i.imported), newcomers(current, i.imported), changed.Changes)
	if rehearse {
		err = i.refusal(current.Version(), changed.Changes)
	}
	return changed, err
}

// undoes tells whether the document is older than the map in force and not the same but for its version.
func (i *importer) undoes(current *topology.Map) bool {
	was, is := current.Document(), i.imported.Document()
	older := is.Cluster == was.Cluster && is.Version < was.Version
	is.Version = was.Version
	return older && !reflect.DeepEqual(was, is)
}

// refusal says what would be lost with the map in force.
func (i *importer) refusal(current uint64, lost []string) error {
	if len(lost) == 0 {
		lost = []string{"ranges or pins are marked differently, or were assigned by another algorithm"}
	}
	return &detailedError{
		error: fmt.Errorf("%s is map version %d, and version %d is in force: what was changed since would be lost; --force imports it all the same", i.file, i.imported.Version(), current),
		lines: shortened(lost),
	}
}

// shortened leaves the end of a long list out.
func shortened(lines []string) []string {
	const enough = 20
	if len(lines) <= enough {
		return lines
	}
	return append(slices.Clip(lines[:enough]), fmt.Sprintf("… and %d more: --dry-run lists them all", len(lines)-enough))
}

// report prints what has changed, or would.
func (i *importer) report(w io.Writer, changed api.MapChanged) error {
	lines := changed.Changes
	if !i.dryRun {
		lines = shortened(lines)
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	if !i.dryRun {
		_, err := fmt.Fprintf(w, "The map of cluster %s is in force, version %d.\n", changed.Cluster, changed.MapVersion)
		return err
	}
	refused := i.older || countProblems(changed.Findings) > 0
	if refused && !i.force {
		return errors.New("nothing was changed, and without --force the import would be refused")
	}
	_, err := fmt.Fprintln(w, "Nothing was changed: without --dry-run this map comes in force.")
	return err
}

// newcomers lists, for people, what one map has and the one before it has not.
func newcomers(before, next *topology.Map) []string {
	var found []string
	for s := range next.Shards() {
		if before.Shard(s.Name()) == nil {
			found = append(found, fmt.Sprintf("shard %s is new", s.Name()))
		}
	}
	for _, k := range next.Keyspaces() {
		if before.Keyspace(k.Name()) == nil {
			found = append(found, fmt.Sprintf("keyspace %s is new", k.Name()))
		}
	}
	for _, t := range next.Tables() {
		if before.Table(t.Name().Schema, t.Name().Name) == nil {
			found = append(found, fmt.Sprintf("table %s is new", t.Name()))
		}
	}
	return found
}

// shardDifferences says, for people, which shards one map has otherwise than the one before it, or not at all.
func shardDifferences(before, next *topology.Map) []string {
	var found []string
	for s := range before.Shards() {
		now := next.Shard(s.Name())
		if now == nil {
			found = append(found, fmt.Sprintf("shard %s is not in it", s.Name()))
			continue
		}
		if fields := otherFields(s.Spec(), now.Spec()); len(fields) > 0 {
			found = append(found, fmt.Sprintf("shard %s has another %s", s.Name(), strings.Join(fields, ", ")))
		}
	}
	return found
}

// otherFields lists the fields of a shard's JSON form that differ.
func otherFields(a, b topology.ShardSpec) []string {
	was, is := fieldsOf(a), fieldsOf(b)
	var differ []string
	for name := range was {
		if !bytes.Equal(was[name], is[name]) {
			differ = append(differ, name)
		}
	}
	for name := range is {
		if was[name] == nil {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	return differ
}

func fieldsOf(spec topology.ShardSpec) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	content, err := json.Marshal(spec)
	if err == nil {
		_ = json.Unmarshal(content, &fields) // it was just written
	}
	return fields
}
