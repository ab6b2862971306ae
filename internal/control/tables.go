package control

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// ShardTableRequest asks for an empty table on the home shard to be sharded.
type ShardTableRequest struct {
	Table topology.TableName
	// Key has the key's columns, in the keyspace's order.
	Key []string
	// Keyspace to put it in, or ColocateWith, a table whose keyspace it is to share. With neither it shares the default
	// keyspace of its key's types, which is made when it is first needed.
	Keyspace, ColocateWith string
	// Strategy is what the keyspace must have. Default: any.
	Strategy string
	// UniquePerShard takes unique constraints that do not contain the key, which then hold on each shard alone.
	UniquePerShard bool
	// Role is who asks: it must own the table, or be a superuser. Default: an operator, who may.
	Role string
}

// ReferenceTableRequest asks for an empty table on the home shard to be copied to every shard.
type ReferenceTableRequest struct {
	Table topology.TableName
	// Role is who asks: it must own the table, or be a superuser. Default: an operator, who may.
	Role string
}

// ShardTable makes an empty table on the home shard a sharded one: other shards get it too, and each takes the rows that it
// owns and no others. What stands in the way is a [pgerr.Error]; when the answer comes, all that is said of it holds, and
// nothing has happened if it is an error, except that an outcome may be unknown (see [store.ErrOutcomeUnknown]).
func (c *Cluster) ShardTable(ctx context.Context, request ShardTableRequest) (api.Table, error) {
	return c.declare(ctx, request.Table, request.Role, func(m *topology.Map, d *shard.Definition) (declared, error) {
		return c.shardedAs(m, d, request)
	})
}

// ReferenceTable makes an empty table on the home shard a reference table: every shard gets it.
func (c *Cluster) ReferenceTable(ctx context.Context, request ReferenceTableRequest) (api.Table, error) {
	return c.declare(ctx, request.Table, request.Role, func(m *topology.Map, d *shard.Definition) (declared, error) {
		spec := topology.TableSpec{Name: request.Table.String(), Kind: topology.Reference}
		return declared{table: topology.SetTable(spec)}, d.CheckForeignKeys(m, "", nil)
	})
}

// Tables returns the tables of the map that this process works with.
func (c *Cluster) Tables() []api.Table {
	if m := c.config.Follower.Map(); m != nil {
		return api.DescribeTables(m)
	}
	return nil
}

// declared is what becomes of a table: a change of the map, and one that makes its keyspace if there is none yet.
type declared struct{ keyspace, table topology.Change }

// shardedAs chooses the keyspace and sees whether the table fits.
func (c *Cluster) shardedAs(m *topology.Map, d *shard.Definition, request ShardTableRequest) (declared, error) {
	types, err := d.KeyTypes(request.Key)
	if err != nil {
		return declared{}, err
	}
	if !request.UniquePerShard {
		if err := d.CheckUnique(request.Key); err != nil {
			return declared{}, err
		}
	}
	name, create, err := c.keyspaceFor(m, request, shard.KeyFamilies(types))
	if err != nil {
		return declared{}, err
	}
	if err := d.CheckForeignKeys(m, name, request.Key); err != nil {
		return declared{}, err
	}
	spec := topology.TableSpec{Name: request.Table.String(), Kind: topology.Sharded, Keyspace: name, Key: request.Key}
	return declared{keyspace: create, table: topology.SetTable(spec)}, nil
}

// keyspaceFor returns the name of the keyspace, and how to create it if it is to be.
func (c *Cluster) keyspaceFor(m *topology.Map, request ShardTableRequest, types []key.Type) (name string, create topology.Change, err error) {
	if name, err = namedKeyspace(m, request); err != nil {
		return "", nil, err
	}
	if name == "" {
		name = defaultKeyspace(types)
	}
	k := m.Keyspace(name)
	switch {
	case k != nil:
		return name, nil, checkFit(k, request, types)
	case request.Keyspace != "":
		return "", nil, pgerr.New(pgerr.UndefinedObject, "keyspace %q does not exist", name).WithHint("Create it with: cleave keyspace create %s --key %s", name, typeList(types, ","))
	case request.Strategy != "" && request.Strategy != string(topology.ByHash):
		return "", nil, pgerr.New(pgerr.InvalidParameterValue, "a keyspace that is made by itself hashes, and strategy %q was asked for", request.Strategy).
			WithHint("Create the keyspace first, for example: cleave keyspace create NAME --strategy range --key %s --split-at VALUE; then name it.", typeList(types, ","))
	}
	create, err = createDefault(m, name, types)
	return name, create, err
}

// namedKeyspace returns the keyspace that was named, itself or by a table of it, empty if none was.
func namedKeyspace(m *topology.Map, request ShardTableRequest) (string, error) {
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
func defaultKeyspace(types []key.Type) string { return "default_" + typeList(types, "_") }

func typeList(types []key.Type, separator string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, separator)
}

// checkFit sees whether a table with a key of these types can be in the keyspace.
func checkFit(k *topology.Keyspace, request ShardTableRequest, types []key.Type) error {
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

func createDefault(m *topology.Map, name string, types []key.Type) (topology.Change, error) {
	seed, err := seedOf("")
	if err != nil {
		return nil, err
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	spec := topology.NewKeyspaceSpec(name, topology.ByHash, seed, names...)
	if spec.Ranges, spec.Assignment, err = m.Assign(topology.Assignment{Algorithm: defaultAlgorithm}); err != nil {
		return nil, err
	}
	return topology.CreateKeyspace(spec), nil
}
