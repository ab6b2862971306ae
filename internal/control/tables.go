package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// TableKey names a table and the columns of its key, in the keyspace's order.
type TableKey struct {
	Table topology.TableName
	Key   []string
}

// ShardTablesRequest asks for tables on the home shard to be sharded, all of them or none.
type ShardTablesRequest struct {
	Tables []TableKey
	// Keyspace to put them in, or ColocateWith, a table whose keyspace they are to share. With neither each shares the default
	// keyspace of its key's types, which is made when it is first needed.
	Keyspace, ColocateWith string
	// Strategy is what the keyspace must have. Default: any. A range keyspace is made if none is named, and split at SplitAt.
	Strategy string
	SplitAt  []topology.Point
	// UniquePerShard takes unique constraints that do not contain the key, which then hold on each shard alone.
	UniquePerShard bool
	// IDs says what numbers bigint columns get that are serial or have an identity: keyed, which is the default, or counted.
	IDs string
	// Role is who asks: it must own the tables, or be a superuser. Default: an operator, who may.
	Role string
	// Progress hears how far it is, if it takes long. Default: nobody does, only the log.
	Progress func(string)
}

// What numbers bigint columns get.
const (
	// KeyedIDs carry the slot of the row's key, so that a row is found by its id.
	KeyedIDs = "keyed"
	// CountedIDs only count, on each shard in numbers of its own, so that a row may change its key.
	CountedIDs = "counted"
)

// TablesRequest asks for tables to become reference tables, or to be on the home shard alone, all of them or none.
type TablesRequest struct {
	Tables []topology.TableName
	// Role is who asks: it must own the tables, or be a superuser. Default: an operator, who may.
	Role string
	// Progress hears how far it is, if it takes long. Default: nobody does, only the log.
	Progress func(string)
}

// ShardTables makes tables on the home shard sharded ones: other shards get them too, each row goes to the shard that owns its key, and
// each shard takes the rows that it owns and no others. What stands in the way is a [pgerr.Error]; when the answer comes, all that is said
// of it holds, and nothing has happened if it is an error, except that an outcome may be unknown (see [store.ErrOutcomeUnknown]).
func (c *Cluster) ShardTables(ctx context.Context, request ShardTablesRequest) (api.TablesChanged, error) {
	d := declaration{kind: topology.Sharded, role: request.Role, progress: request.Progress}
	for _, t := range request.Tables {
		d.tables = append(d.tables, t.Table)
	}
	d.decide = func(d *declaration) ([]topology.Change, error) { return d.shardedAs(request) }
	return c.declare(ctx, d)
}

// ReferenceTables makes tables on the home shard reference tables: every shard gets a copy.
func (c *Cluster) ReferenceTables(ctx context.Context, request TablesRequest) (api.TablesChanged, error) {
	return c.declare(ctx, declaration{
		kind: topology.Reference, tables: slices.Clone(request.Tables), role: request.Role, progress: request.Progress, decide: referencesAs,
	})
}

func referencesAs(d *declaration) ([]topology.Change, error) {
	changes := make([]topology.Change, len(d.definitions))
	for i, t := range d.definitions {
		changes[i] = topology.SetTable(topology.TableSpec{Name: t.Table.String(), Kind: topology.Reference})
	}
	return changes, nil
}

// UndistributeTables lets tables be on the home shard alone again, with all of their rows.
func (c *Cluster) UndistributeTables(ctx context.Context, request TablesRequest) (api.TablesChanged, error) {
	return c.declare(ctx, declaration{back: true, tables: slices.Clone(request.Tables), role: request.Role, progress: request.Progress, decide: undeclaredAs})
}

func undeclaredAs(d *declaration) ([]topology.Change, error) {
	changes := make([]topology.Change, len(d.definitions))
	for i, t := range d.definitions {
		changes[i] = topology.DropTable(t.Table.String())
	}
	return changes, nil
}

// Tables returns the tables of the map that this process works with.
func (c *Cluster) Tables() []api.Table {
	if m := c.config.Follower.Map(); m != nil {
		return api.DescribeTables(m)
	}
	return nil
}

// shardedAs chooses each table's keyspace and sees whether it fits.
func (d *declaration) shardedAs(request ShardTablesRequest) ([]topology.Change, error) {
	if request.IDs != "" && request.IDs != KeyedIDs && request.IDs != CountedIDs {
		return nil, pgerr.New(pgerr.InvalidParameterValue, "ids => '%s' is not known", request.IDs).WithHint("It is '%s' or '%s'.", KeyedIDs, CountedIDs)
	}
	var changes []topology.Change
	for _, t := range request.Tables {
		at := slices.IndexFunc(d.definitions, func(d *shard.Definition) bool { return d.Table == t.Table })
		definition := d.definitions[at]
		types, err := definition.KeyTypes(t.Key)
		if err != nil {
			return nil, err
		}
		if !request.UniquePerShard {
			if err := definition.CheckUnique(t.Key); err != nil {
				return nil, err
			}
		}
		sofar, err := d.m.Next(changes...)
		if err != nil {
			return nil, invalidUnlessTyped(err)
		}
		name, create, err := keyspaceFor(sofar, request, shard.KeyFamilies(types))
		if err != nil {
			return nil, err
		}
		if create != nil {
			changes = append(changes, create)
			if sofar, err = d.m.Next(changes...); err != nil {
				return nil, invalidUnlessTyped(err)
			}
		}
		spec := topology.TableSpec{Name: t.Table.String(), Kind: topology.Sharded, Keyspace: name, Key: t.Key}
		if sofar.Keyspace(name).Strategy() == topology.ByHash {
			if err := d.makeNumbers(&spec, definition, request); err != nil {
				return nil, err
			}
		}
		changes = append(changes, topology.SetTable(spec))
	}
	return changes, nil
}

// makeNumbers says which of the table's numbers shards make to fit the key.
func (d *declaration) makeNumbers(spec *topology.TableSpec, definition *shard.Definition, request ShardTablesRequest) error {
	ids, keys, obstacles, err := definition.Made(spec.Key, d.numbers[definition.Table])
	if err != nil {
		return err
	}
	spec.MadeKeys = keys
	if request.IDs != CountedIDs {
		spec.IDs = ids
	}
	for _, o := range obstacles {
		if o.InKey || request.IDs != CountedIDs {
			d.findings = append(d.findings, notMade(definition.Table, o))
		}
	}
	return nil
}

// notMade says why the numbers of a column are only counted.
func notMade(table topology.TableName, o shard.Obstacle) api.Finding {
	f := api.Finding{Severity: api.Warning, Code: "ids_counted", Hint: "Say ids => 'counted' if that is what you want."}
	why := "it has greater numbers than ids that are made now would be"
	if o.Reader != "" {
		why = o.Reader + " reads its sequence, and would be given numbers that are not made yet"
	}
	f.Message = fmt.Sprintf("the numbers of column %q of table %s are only counted, and rows are not found by them alone: %s", o.Column, table, why)
	if o.InKey {
		f.Message = fmt.Sprintf("column %q of table %s is not filled in by shards, so every INSERT has to give it: %s", o.Column, table, why)
		f.Hint = "Let it use RETURNING instead, bring the table home, and declare it again."
	}
	return f
}

// keyspaceFor returns the name of the keyspace, and how to create it if it is to be.
func keyspaceFor(m *topology.Map, request ShardTablesRequest, types []key.Type) (name string, create topology.Change, err error) {
	if name, err = namedKeyspace(m, request); err != nil {
		return "", nil, err
	}
	byRange := request.Strategy == string(topology.ByRange)
	switch request.Strategy {
	case "", string(topology.ByHash), string(topology.ByRange):
	default:
		return "", nil, pgerr.New(pgerr.InvalidParameterValue, "strategy %q is not known", request.Strategy).WithHint("It is hash or range.")
	}
	if name == "" {
		name = defaultKeyspace(types, byRange)
	}
	k := m.Keyspace(name)
	switch {
	case k != nil && len(request.SplitAt) > 0 && !sameSplit(k, request.SplitAt):
		return "", nil, pgerr.New(pgerr.InvalidParameterValue, "keyspace %q is there already, and is not split at these points", name).
			WithHint("Leave the points out, or make another keyspace with: cleave keyspace create NAME --strategy range --key %s --split-at VALUE; then name it.", typeList(types, ","))
	case k != nil:
		return name, nil, checkFit(k, request, types)
	case request.Keyspace != "":
		return "", nil, pgerr.New(pgerr.UndefinedObject, "keyspace %q does not exist", name).WithHint("Create it with: cleave keyspace create %s --key %s", name, typeList(types, ","))
	}
	create, err = createDefault(m, name, types, byRange, request.SplitAt)
	return name, create, err
}

// sameSplit says whether a keyspace by range begins a range at each of these points and nowhere else.
func sameSplit(k *topology.Keyspace, points []topology.Point) bool {
	if k.Strategy() != topology.ByRange || k.RangeCount() != len(points)+1 {
		return false
	}
	var have []string
	for r := range k.Ranges() {
		if point, err := k.Texts(r.Key.Lo); err == nil && len(point) > 0 {
			have = append(have, point.String())
		}
	}
	want := make([]string, len(points))
	for i, p := range points {
		want[i] = p.String()
	}
	slices.Sort(have)
	slices.Sort(want)
	return slices.Equal(have, want)
}

// namedKeyspace returns the keyspace that was named, itself or by a table of it, empty if none was.
func namedKeyspace(m *topology.Map, request ShardTablesRequest) (string, error) {
	if request.ColocateWith == "" {
		return request.Keyspace, nil
	}
	other, err := topology.ParseTableName(request.ColocateWith)
	if err != nil {
		return "", pgerr.New(pgerr.InvalidParameterValue, "%v", err)
	}
	t := m.Table(other.Schema, other.Name)
	switch {
	case t == nil || t.Keyspace() == nil:
		return "", pgerr.New(pgerr.InvalidParameterValue, "table %s is not sharded, so nothing can be co-located with it", other).WithHint("Shard that table first.")
	case request.Keyspace != "" && request.Keyspace != t.Keyspace().Name():
		return "", pgerr.New(pgerr.InvalidParameterValue, "table %s is in keyspace %q, and keyspace %q was asked for", other, t.Keyspace().Name(), request.Keyspace).WithHint("Name one of the two.")
	}
	return t.Keyspace().Name(), nil
}

// defaultKeyspace is named after the types, so that tables with keys of the same types live together unless told otherwise.
func defaultKeyspace(types []key.Type, byRange bool) string {
	if byRange {
		return "default_range_" + typeList(types, "_")
	}
	return "default_" + typeList(types, "_")
}

func typeList(types []key.Type, separator string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, separator)
}

// checkFit sees whether a table with a key of these types can be in the keyspace.
func checkFit(k *topology.Keyspace, request ShardTablesRequest, types []key.Type) error {
	switch {
	case k.Strategy() == topology.BySchema:
		return pgerr.New(pgerr.InvalidParameterValue, "keyspace %q places whole schemas, not rows of single tables", k.Name())
	case request.Strategy != "" && request.Strategy != string(k.Strategy()):
		return pgerr.New(pgerr.InvalidParameterValue, "keyspace %q is by %s, and strategy %q was asked for", k.Name(), k.Strategy(), request.Strategy)
	case !slices.Equal(shard.KeyFamilies(k.KeyTypes()), types):
		return pgerr.New(pgerr.InvalidParameterValue, "a key of type (%s) does not fit keyspace %q", typeList(types, ", "), k.Name()).
			WithDetail("Its tables have keys of type (%s).", typeList(k.KeyTypes(), ", ")).
			WithHint("Name other key columns, or another keyspace.")
	}
	return nil
}

// createDefault makes a keyspace whose slots are dealt to all shards; one by range is split where it was said, or not at all yet.
func createDefault(m *topology.Map, name string, types []key.Type, byRange bool, points []topology.Point) (topology.Change, error) {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	if byRange {
		spec := topology.NewKeyspaceSpec(name, topology.ByRange, 0, names...)
		var err error
		if spec.Ranges, err = m.Split(names, points); err != nil {
			return nil, pgerr.New(pgerr.InvalidParameterValue, "%v", err)
		}
		return topology.CreateKeyspace(spec), nil
	}
	if len(points) > 0 {
		return nil, pgerr.New(pgerr.InvalidParameterValue, "only a keyspace by range is split at keys").WithHint("Say strategy => 'range', or leave the points out.")
	}
	seed, err := seedOf("")
	if err != nil {
		return nil, err
	}
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, seed, names...)
	if spec.Ranges, spec.Assignment, err = m.Assign(topology.Assignment{Algorithm: defaultAlgorithm}); err != nil {
		return nil, err
	}
	return topology.CreateKeyspace(spec), nil
}

var errNothingToForget = errors.New("the map does not have the tables")

// ForgetTables takes tables out of the map that no shard has any more. It returns when this process knows the map without them.
func (c *Cluster) ForgetTables(ctx context.Context, tables []topology.TableName) error {
	m, err := c.config.Store.Update(ctx, func(m *topology.Map) (*topology.Map, error) {
		var changes []topology.Change
		for _, table := range tables {
			if m.Table(table.Schema, table.Name) != nil {
				changes = append(changes, topology.DropTable(table.String()))
			}
		}
		if len(changes) == 0 {
			return nil, errNothingToForget
		}
		return m.Next(changes...)
	})
	if errors.Is(err, errNothingToForget) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take tables out of the map: %w", err)
	}
	if _, err := c.config.Follower.Wait(ctx, m.Version()); err != nil {
		return fmt.Errorf("wait for the map without the tables: %w", err)
	}
	return nil
}
