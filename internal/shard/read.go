package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// Read returns what the shard has recorded, all as of one moment. A database that nobody has claimed gives an empty record.
func Read(ctx context.Context, conn *pgx.Conn) (*Recorded, error) {
	var r *Recorded
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) (err error) {
		r, err = readAll(ctx, tx)
		return err
	})
	if errors.Is(err, ErrNotClaimed) {
		return &Recorded{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the shard's record: %w", err)
	}
	return r, nil
}

func readAll(ctx context.Context, tx pgx.Tx) (*Recorded, error) {
	r := &Recorded{}
	if err := readHead(ctx, tx, r); err != nil {
		return nil, err
	}
	if err := readKeyspaces(ctx, tx, r); err != nil {
		return nil, err
	}
	if err := readTables(ctx, tx, r); err != nil {
		return nil, err
	}
	return r, readMoves(ctx, tx, r)
}

func readHead(ctx context.Context, tx pgx.Tx, r *Recorded) error {
	var entry, members []byte
	err := tx.QueryRow(ctx, "SELECT cluster, shard, number, map_version, minimum_version, last_shard_number, entry, members FROM cleave.identity").
		Scan(&r.Cluster, &r.Shard, &r.Number, &r.MapVersion, &r.MinimumVersion, &r.LastShardNumber, &entry, &members)
	switch {
	case notThere(err):
		return errNotInstalled
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotClaimed
	case err != nil:
		return err
	}
	if err := json.Unmarshal(entry, &r.Entry); err != nil {
		return fmt.Errorf("read the shard's entry: %w", err)
	}
	if err := json.Unmarshal(members, &r.Members); err != nil {
		return fmt.Errorf("read the names of all shards: %w", err)
	}
	return nil
}

func readKeyspaces(ctx context.Context, tx pgx.Tx, r *Recorded) error {
	heads, digests, err := readHeads(ctx, tx)
	if err != nil {
		return fmt.Errorf("read keyspaces: %w", err)
	}
	r.Keyspaces = make([]Keyspace, len(heads))
	byName := make(map[string]*Keyspace, len(heads))
	for i, head := range heads {
		r.Keyspaces[i].Head = head
		byName[head.Name] = &r.Keyspaces[i]
	}
	if err := readRanges(ctx, tx, byName); err != nil {
		return fmt.Errorf("read ranges: %w", err)
	}
	if err := readPins(ctx, tx, byName); err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for i := range r.Keyspaces {
		k := &r.Keyspaces[i]
		k.damaged = !bytes.Equal(k.digest(), digests[i])
	}
	return nil
}

func readHeads(ctx context.Context, tx pgx.Tx) (heads []topology.KeyspaceHead, digests [][]byte, err error) {
	rows, err := tx.Query(ctx, `SELECT definition, digest FROM cleave.keyspaces ORDER BY name COLLATE "C"`)
	if err != nil {
		return nil, nil, err
	}
	var definition, digest []byte
	_, err = pgx.ForEachRow(rows, []any{&definition, &digest}, func() error {
		var head topology.KeyspaceHead
		if err := json.Unmarshal(definition, &head); err != nil {
			return err
		}
		heads, digests = append(heads, head), append(digests, bytes.Clone(digest))
		return nil
	})
	return heads, digests, err
}

func readRanges(ctx context.Context, tx pgx.Tx, keyspaces map[string]*Keyspace) error {
	rows, err := tx.Query(ctx, selectRows("ranges")+" ORDER BY keyspace, id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		keyspace, _, one, err := scanKeyspaceRange(rows)
		if err != nil {
			return err
		}
		k, err := keyspaceOf(keyspaces, keyspace)
		if err != nil {
			return err
		}
		k.Ranges = append(k.Ranges, one)
	}
	return rows.Err()
}

func readPins(ctx context.Context, tx pgx.Tx, keyspaces map[string]*Keyspace) error {
	rows, err := tx.Query(ctx, selectRows("pins")+" ORDER BY keyspace, id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		keyspace, _, one, err := scanKeyspacePin(rows)
		if err != nil {
			return err
		}
		k, err := keyspaceOf(keyspaces, keyspace)
		if err != nil {
			return err
		}
		k.Pins = append(k.Pins, one)
	}
	return rows.Err()
}

func keyspaceOf(keyspaces map[string]*Keyspace, name string) (*Keyspace, error) {
	if k := keyspaces[name]; k != nil {
		return k, nil
	}
	return nil, fmt.Errorf("there is something of keyspace %q, which is not recorded: somebody has changed the tables of schema cleave", name)
}

func readTables(ctx context.Context, tx pgx.Tx, r *Recorded) error {
	rows, err := tx.Query(ctx, "SELECT definition FROM cleave.tables")
	if err != nil {
		return err
	}
	if r.Tables, err = recordedTables(rows); err != nil {
		return fmt.Errorf("read tables: %w", err)
	}
	return nil
}

// recordedTables are the definitions of tables, sorted by their names.
func recordedTables(rows pgx.Rows) ([]topology.TableSpec, error) {
	tables, err := pgx.CollectRows(rows, jsonColumn[topology.TableSpec])
	for i := range tables {
		tables[i].Name = topology.NormalTableName(tables[i].Name)
	}
	sortTables(tables)
	return tables, err
}

// jsonColumn reads a row of one JSON column.
func jsonColumn[T any](row pgx.CollectableRow) (value T, err error) {
	var content []byte
	if err = row.Scan(&content); err == nil {
		err = json.Unmarshal(content, &value)
	}
	return value, err
}
