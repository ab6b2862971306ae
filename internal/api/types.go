// Package api has the requests and answers of Cleave's HTTP API as Go types, and a client for it.
//
// The types are the contract: package control makes and takes them, package admin serves them, the command line prints
// them, and the OpenAPI file describes them; a test holds that file and these types together. They are plain data,
// safe to copy. Start reading at types.go, then client.go.
package api

import (
	"fmt"
	"time"

	"github.com/cleavedb/cleave/internal/topology"
)

// Severity of a finding.
type Severity string

// The severities.
const (
	// Problem: as it is, it cannot be used or is not right.
	Problem Severity = "problem"
	// Warning: it can be used, but a person should know.
	Warning Severity = "warning"
)

// Finding is something that was found when a shard or the map was looked at.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code is short and stable, for programs: wal_level, encoding, collation_version …
	Code string `json:"code"`
	// Shard is the shard it is about, if it is about one.
	Shard   string `json:"shard,omitempty"`
	Message string `json:"message"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`
}

// Error is what the API answers when it does not do what was asked.
type Error struct {
	// Code is short and stable, for programs: not_found, exists, in_use, refused, invalid, conflict, unavailable, no_map …
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// SQLState is PostgreSQL's code, where a client of PostgreSQL would have got this error.
	SQLState string `json:"sqlstate,omitempty"`
	// Findings are the reasons of a refusal.
	Findings []Finding `json:"findings,omitempty"`
}

// Status is the state of the cluster as one process sees it.
type Status struct {
	// Cluster is its identifier, empty while there is no map.
	Cluster string `json:"cluster,omitempty"`
	// MapVersion is the version that this process has applied.
	MapVersion uint64      `json:"map_version"`
	Store      StoreStatus `json:"store"`
	// Leader is the process that runs the loops of which there may be one, empty if nobody does.
	Leader    string        `json:"leader,omitempty"`
	Routers   []Router      `json:"routers"`
	Shards    []ShardStatus `json:"shards"`
	Keyspaces int           `json:"keyspaces"`
	Tables    int           `json:"tables"`
	// Automation says in a line what the leader does by itself, empty if etcd cannot be asked.
	Automation string `json:"automation,omitempty"`
	// Findings are what is wrong or worth knowing.
	Findings []Finding `json:"findings"`
	// Version is that of the program that answered.
	Version string `json:"version"`
}

// StoreStatus says whether etcd can be reached. Serving goes on without it; changes of the map wait.
type StoreStatus struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`
	Error     string    `json:"error,omitempty"`
	Endpoints []string  `json:"endpoints"`
}

// Router is a live process of the cluster.
type Router struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Listen  string    `json:"listen,omitempty"`
	HTTP    string    `json:"http,omitempty"`
	Started time.Time `json:"started"`
	Version string    `json:"version"`
	// Applied is the version of the map that it works with.
	Applied uint64 `json:"applied"`
}

// ShardStatus is a shard as the map has it, and how it is.
type ShardStatus struct {
	topology.ShardSpec
	// Ranges, Pins, Tables and Copies are what it has according to the map.
	Ranges int `json:"ranges"`
	Pins   int `json:"pins"`
	Tables int `json:"tables"`
	Copies int `json:"copies"`
	// Up says whether it answered when it was last looked at.
	Up    bool   `json:"up"`
	Error string `json:"error,omitempty"`
	// LatencySeconds is how long the answer took.
	LatencySeconds float64 `json:"latency_seconds"`
	// ServerVersion is PostgreSQL's.
	ServerVersion string `json:"server_version,omitempty"`
	// RecordedVersion is the map version at which the shard has recorded what it owns.
	RecordedVersion uint64 `json:"recorded_version"`
	// Connections are those that the primary allows; nothing while it was never looked at.
	Connections *Connections `json:"connections,omitempty"`
	// Transactions is what there is to say of transactions over several shards; nothing while it was never looked at.
	Transactions  *ShardTransactions `json:"transactions,omitempty"`
	ReplicaStatus []ReplicaStatus    `json:"replica_status,omitempty"`
}

// ShardTransactions is what a shard's primary says of transactions over several shards.
type ShardTransactions struct {
	// MaxPrepared is how many can be prepared at once, OldestPreparedSeconds how long the oldest one has been.
	MaxPrepared           int     `json:"max_prepared"`
	OldestPreparedSeconds float64 `json:"oldest_prepared_seconds"`
	// OtherPrepared is the name of the oldest prepared transaction that is none of them, if there is one, and OtherPreparedSeconds how long it has been.
	OtherPrepared        string  `json:"other_prepared,omitempty"`
	OtherPreparedSeconds float64 `json:"other_prepared_seconds,omitempty"`
	// Lost is of how many something is known to be lost.
	Lost int `json:"lost"`
	// Standbys is how many follow it now, and Synchronous says whether commits wait for one.
	Standbys    int  `json:"standbys"`
	Synchronous bool `json:"synchronous"`
}

// Connections are those that a shard's primary allows, and how the routers share them.
type Connections struct {
	// Max is the server's max_connections, and Reserved how many of them are for superusers and such.
	Max      int `json:"max"`
	Reserved int `json:"reserved"`
	// ForRouters is what is left for all routers together, when a few are kept free for people and for the control plane.
	ForRouters int `json:"for_routers"`
	// Routers is how many there are.
	Routers int `json:"routers"`
	// PerShard is how many each would use by its configuration (that of the process that answers), Limit how many it may.
	PerShard int `json:"per_shard"`
	Limit    int `json:"limit"`
}

// ReplicaStatus is how a replica is.
type ReplicaStatus struct {
	Address string `json:"address"`
	Up      bool   `json:"up"`
	Error   string `json:"error,omitempty"`
	// LagSeconds is how old the last transaction is that it has replayed, while its primary has newer ones.
	LagSeconds float64 `json:"lag_seconds"`
}

// AddShard asks for a shard. Without an address a local cluster starts a server for it.
type AddShard struct {
	topology.ShardSpec
}

// ShardChanged is the answer to a change of a shard.
type ShardChanged struct {
	MapVersion uint64             `json:"map_version"`
	Shard      topology.ShardSpec `json:"shard"`
	// Checked lists what was looked at before the change, for people.
	Checked []string `json:"checked,omitempty"`
	// Findings are warnings; problems would have refused the change.
	Findings []Finding `json:"findings,omitempty"`
}

// UpdateShard changes some of a shard's properties; what is left out stays.
type UpdateShard struct {
	Weight *float64        `json:"weight,omitempty"`
	State  *topology.State `json:"state,omitempty"`
	// Labels to set; one that is null is removed.
	Labels map[string]*string `json:"labels,omitempty"`
}

// Keyspace is a keyspace without its pins, and without its ranges unless they were asked for.
type Keyspace struct {
	topology.KeyspaceHead
	RangeCount int `json:"range_count"`
	PinCount   int `json:"pin_count"`
	// Shares are what each shard has of it, in the order of the shards' numbers.
	Shares []Share              `json:"shares,omitempty"`
	Ranges []topology.RangeSpec `json:"ranges,omitempty"`
	// Traffic is of the busiest ranges, in order, and then of the busiest pins; only with the ranges.
	Traffic []RangeTraffic `json:"traffic,omitempty"`
}

// RangeTraffic is how many statements all routers together send for keys of a range, or for one pinned key, averaged over a minute.
type RangeTraffic struct {
	From                topology.Point `json:"from,omitempty"`
	To                  topology.Point `json:"to,omitempty"`
	Key                 topology.Point `json:"key,omitempty"` // of a pin
	StatementsPerSecond float64        `json:"statements_per_second"`
}

// Share is a shard's part of a keyspace.
type Share struct {
	Shard  string `json:"shard"`
	Ranges int    `json:"ranges"`
	Pins   int    `json:"pins"`
	// Share is the part of the hash space, from 0 to 1; always 0 in a keyspace by range, whose ranges have no length.
	Share float64 `json:"share"`
}

// CreateKeyspace asks for a keyspace.
type CreateKeyspace struct {
	Name string `json:"name"`
	// Strategy is hash if empty.
	Strategy topology.Strategy `json:"strategy,omitempty"`
	// Key has the key's types; bigint if empty, and none for schemas.
	Key []string `json:"key,omitempty"`
	// Algorithm is slots if empty. Slots and VirtualNodes are its settings.
	Algorithm    string `json:"algorithm,omitempty"`
	Slots        int    `json:"slots,omitempty"`
	VirtualNodes int    `json:"virtual_nodes,omitempty"`
	// SplitAt are the points at which a keyspace by range is split from the beginning.
	SplitAt []topology.Point `json:"split_at,omitempty"`
	// Seed of the hash; random if empty.
	Seed string `json:"seed,omitempty"`
}

// KeyspaceChanged is the answer to a change of a keyspace.
type KeyspaceChanged struct {
	MapVersion uint64   `json:"map_version"`
	Keyspace   Keyspace `json:"keyspace"`
}

// Table is a table that the map knows.
type Table struct {
	topology.TableSpec
	// ColocatedWith are the other tables of its keyspace, by name: rows with equal keys live together.
	ColocatedWith []string `json:"colocated_with,omitempty"`
}

// TableKey names a table and, if it is to be sharded, the columns of its key.
type TableKey struct {
	// Name is schema.name, quoted as in SQL; public if it has no schema.
	Name string `json:"name"`
	// Key has the key's columns, in the keyspace's order.
	Key []string `json:"key,omitempty"`
}

// DeclareTables asks for tables on the home shard to become sharded or reference tables, all of them or none. What rows they have go along.
type DeclareTables struct {
	Tables []TableKey `json:"tables"`
	// Kind is sharded if empty, or reference. What follows is for sharded tables.
	Kind topology.Kind `json:"kind,omitempty"`
	// Keyspace to put them in, or ColocateWith, a table whose keyspace they are to share. With neither each shares the default
	// keyspace of its key's types, which is made when it is first needed.
	Keyspace     string `json:"keyspace,omitempty"`
	ColocateWith string `json:"colocate_with,omitempty"`
	// Strategy is what the keyspace must have, any if empty. A keyspace by range is made if none is named, and split at SplitAt.
	Strategy topology.Strategy `json:"strategy,omitempty"`
	SplitAt  []topology.Point  `json:"split_at,omitempty"`
	// UniquePerShard takes unique constraints that do not contain the key, which then hold on each shard alone.
	UniquePerShard bool `json:"unique_per_shard,omitempty"`
	// IDs says what numbers bigint columns get that are serial or have an identity: keyed if empty, or counted.
	IDs string `json:"ids,omitempty"`
}

// UndistributeTables asks for tables to be on the home shard alone again, with all of their rows.
type UndistributeTables struct {
	// Tables are names as in [TableKey].
	Tables []string `json:"tables"`
}

// TablesChanged is the answer to a change of what tables are.
type TablesChanged struct {
	MapVersion uint64 `json:"map_version"`
	// Tables as they are now; one that is undeclared is single, on the home shard.
	Tables []Table `json:"tables"`
	// KeyspacesCreated are the names of the keyspaces that were made for them.
	KeyspacesCreated []string `json:"keyspaces_created,omitempty"`
	// RowsMoved is how many rows went to another shard; a row that went to several counts for each.
	RowsMoved int64     `json:"rows_moved"`
	Findings  []Finding `json:"findings,omitempty"`
}

// MapChanged is the answer to a change of the whole map.
type MapChanged struct {
	MapVersion uint64 `json:"map_version"`
	Cluster    string `json:"cluster"`
	// Changes are what an import changes, or would change, a line each for people: above all what gets another owner.
	Changes  []string  `json:"changes,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// ImportMap asks for a map to be put in force. It has no JSON form: the document is sent as it is, and the rest beside it.
type ImportMap struct {
	// Document is the map.
	Document []byte
	// IfVersion is the version that must be in force, or nothing is imported. 0: whatever is.
	IfVersion uint64
	// DryRun only tells what would change.
	DryRun bool
	// Force takes a map that looks for data elsewhere than it is; otherwise such a map is refused.
	Force bool
}

// RebuildMap asks for the map to be made anew from what the shards have recorded.
type RebuildMap struct {
	// Shards to ask, as host:port with database and user where they differ from the configuration. Empty: those of the
	// map in force.
	Shards []topology.ShardSpec `json:"shards,omitempty"`
	// Apply puts the rebuilt map in force; otherwise it is only shown.
	Apply bool `json:"apply,omitempty"`
	// AllowOlder takes shards at their word that have recorded an older version of the map than others; otherwise such a
	// record is refused where it alone would decide who owns something.
	AllowOlder bool `json:"allow_older,omitempty"`
}

// RebuiltMap is what the shards' records give.
type RebuiltMap struct {
	// MapVersion is the new version if it was applied, else 0.
	MapVersion uint64            `json:"map_version"`
	Map        topology.Document `json:"map"`
	Findings   []Finding         `json:"findings"`
}

// CheckCopies asks for the copies of reference tables to be compared with the home shard's.
type CheckCopies struct {
	// Tables are names as in [TableKey]; none: all reference tables.
	Tables []string `json:"tables,omitempty"`
	// Repair makes copies that differ equal to the home shard's, unless that may have lost something itself.
	Repair bool `json:"repair,omitempty"`
	// Force repairs all the same.
	Force bool `json:"force,omitempty"`
}

// CopiesChecked is what a comparison of copies has found.
type CopiesChecked struct {
	// Tables that were compared.
	Tables []string `json:"tables"`
	// Differences that there are, or were before they were repaired.
	Differences []CopyDifference `json:"differences"`
	// Findings are about copies that could not be compared.
	Findings []Finding `json:"findings,omitempty"`
}

// CopyDifference is by how many rows a shard's copy of a reference table differs from the home shard's.
type CopyDifference struct {
	Table string `json:"table"`
	Shard string `json:"shard"`
	// Missing rows the copy lacks, Extra ones it alone has, and Changed ones have the same primary key and are not the same.
	Missing int64 `json:"missing"`
	Extra   int64 `json:"extra"`
	Changed int64 `json:"changed"`
	// Repaired: the copy is equal now.
	Repaired bool `json:"repaired"`
	// Reason says why it was not repaired, if it was to be.
	Reason string `json:"reason,omitempty"`
}

// String says it to people.
func (d CopyDifference) String() string {
	text := fmt.Sprintf("%s on shard %s: rows missing %d, too many %d, different %d", d.Table, d.Shard, d.Missing, d.Extra, d.Changed)
	switch {
	case d.Repaired:
		text += ", repaired"
	case d.Reason != "":
		text += ", not repaired: " + d.Reason
	}
	return text
}
