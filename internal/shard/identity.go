package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// Identity is to which cluster and shard a database belongs, and how far its record has come.
type Identity struct {
	Cluster string
	Shard   string
	Number  int
	// MapVersion is the version of the map whose ownership is recorded; 0 if none is.
	MapVersion uint64
	// MinimumVersion is the oldest map version that a router may have to speak to this shard.
	MinimumVersion uint64
}

// Claim notes in the database that it is the shard of the cluster, whose map is m. What another cluster has claimed, or
// another shard that the map still has, is a [ClaimedError]; what a shard left behind that the map has no more is cleared.
// Claiming again changes nothing that was recorded. A record of a newer map than m is a [NewerError]: to an old map it may
// seem left behind by a shard that was only added since.
func Claim(ctx context.Context, conn *pgx.Conn, cluster string, spec topology.ShardSpec, m *topology.Map) error {
	if cluster != m.Cluster() {
		return fmt.Errorf("claim the database: the map is of cluster %s, not of %s", m.Cluster(), cluster)
	}
	err := locked(ctx, conn, func(tx pgx.Tx) error {
		id, err := lockIdentity(ctx, tx)
		switch {
		case errors.Is(err, errNotInstalled):
			return err
		case errors.Is(err, ErrNotClaimed):
			return writeClaim(ctx, tx, cluster, spec)
		case err != nil:
			return err
		case id.Cluster == cluster && id.MapVersion > m.Version():
			return &NewerError{Recorded: id.MapVersion, Map: m.Version()}
		case id.Cluster != cluster, id.Shard != spec.Name && m.Shard(id.Shard) != nil:
			return &ClaimedError{Cluster: id.Cluster, Shard: id.Shard}
		case id.Shard == spec.Name && id.MapVersion > 0:
			return nil
		}
		if err := clearRecord(ctx, tx); err != nil {
			return err
		}
		return writeClaim(ctx, tx, cluster, spec)
	})
	if err != nil {
		return fmt.Errorf("claim the database for shard %q: %w", spec.Name, err)
	}
	return nil
}

func writeClaim(ctx context.Context, tx pgx.Tx, cluster string, spec topology.ShardSpec) error {
	entry, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	// The minimum version stays even if another shard comes: routers of this cluster were told.
	_, err = tx.Exec(ctx, `
		INSERT INTO cleave.identity AS own (cluster, shard, number, entry, map_version, minimum_version)
		VALUES ($1, $2, $3, $4, 0, $5)
		ON CONFLICT (only_row) DO UPDATE
		SET shard = excluded.shard, number = excluded.number, entry = excluded.entry, map_version = 0, members = '[]', tables_digest = '',
		    minimum_version = greatest(own.minimum_version, excluded.minimum_version), claimed_at = now(), recorded_at = NULL`,
		cluster, spec.Name, spec.Number, entry, spec.MinimumVersion)
	return err
}

// clearRecord removes what another shard of the cluster had recorded here.
func clearRecord(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "DELETE FROM cleave.ranges; DELETE FROM cleave.pins; DELETE FROM cleave.guard_pins; DELETE FROM cleave.keyspaces; DELETE FROM cleave.tables")
	return err
}

// Release drops the schema cleave of a database that belongs to the cluster, or that nobody has claimed, with what [Install]
// put there and nothing else. If there is anything else, or something depends on it, nothing is dropped and that is a
// [ForeignObjectsError]. A database that belongs to another cluster is a [ClaimedError], a schema that is not ours a
// [SchemaTakenError], one that a newer program has upgraded a [NewerSchemaError]; one that has no such schema is released
// already.
func Release(ctx context.Context, conn *pgx.Conn, cluster string) error {
	err := locked(ctx, conn, func(tx pgx.Tx) error {
		schema, err := schemaState(ctx, tx)
		if err != nil || !schema.Exists {
			return err
		}
		if err := mayRelease(ctx, tx, schema, cluster); err != nil {
			return err
		}
		if err := dropAllGuards(ctx, tx); err != nil {
			return err
		}
		return dropSchema(ctx, tx, schema.ours(true))
	})
	if err != nil {
		return fmt.Errorf("release the database: %w", err)
	}
	return nil
}

func mayRelease(ctx context.Context, tx pgx.Tx, schema Schema, cluster string) error {
	switch {
	case !schema.Installed && len(schema.Foreign) > 0:
		return &SchemaTakenError{Object: schema.Foreign[0].String()}
	case !schema.Installed:
		return nil
	case schema.Version > len(steps):
		return &NewerSchemaError{Installed: schema.Version, Known: len(steps)}
	}
	if err := ownedBy(ctx, tx, cluster); err != nil {
		return err
	}
	if len(schema.Foreign) > 0 {
		return &ForeignObjectsError{Objects: texts(schema.Foreign)}
	}
	return nil
}

// ownedBy sees whether the database belongs to the cluster or to nobody. The table's lock comes before the row's, because
// who drops the table needs it, and a recorder that waits for the row has a weaker one already.
func ownedBy(ctx context.Context, tx pgx.Tx, cluster string) error {
	if _, err := tx.Exec(ctx, "LOCK TABLE cleave.identity IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	id, err := lockIdentity(ctx, tx)
	switch {
	case errors.Is(err, ErrNotClaimed):
		return nil
	case err != nil:
		return err
	case id.Cluster != cluster:
		return &ClaimedError{Cluster: id.Cluster, Shard: id.Shard}
	}
	return nil
}

const selectIdentity = "SELECT cluster, shard, number, map_version, minimum_version FROM cleave.identity"

// lockIdentity reads the identity and keeps all others from changing the record until the transaction ends.
func lockIdentity(ctx context.Context, tx pgx.Tx) (*Identity, error) {
	// Everybody who records waits behind this lock: one who falls asleep with it must not keep it for long.
	id, err := scanIdentity(tx.QueryRow(ctx, selectIdentity+" WHERE set_config('idle_in_transaction_session_timeout', '10s', true) <> '' FOR UPDATE"))
	switch {
	case notThere(err):
		return nil, errNotInstalled
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrNotClaimed
	}
	return id, err
}

// readIdentity returns nil if the database has none.
func readIdentity(ctx context.Context, on querier) (*Identity, error) {
	id, err := scanIdentity(on.QueryRow(ctx, selectIdentity))
	if errors.Is(err, pgx.ErrNoRows) || notThere(err) {
		return nil, nil //nolint:nilnil // no identity is an answer, not a failure
	}
	return id, err
}

func scanIdentity(row pgx.Row) (*Identity, error) {
	id := &Identity{}
	err := row.Scan(&id.Cluster, &id.Shard, &id.Number, &id.MapVersion, &id.MinimumVersion)
	return id, err
}
