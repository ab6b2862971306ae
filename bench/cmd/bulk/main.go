// Command bulk measures how fast rows get into a sharded table: COPY and INSERT of many rows through the router, into several shards,
// beside the same into one plain PostgreSQL, by turns in one run on one machine.
//
// It starts all of it itself, on free ports and in a temporary folder, and ends it: a cluster as 'cleave dev' makes it, and a server
// with the settings of a shard. The medians of the rounds count; only the ratios are meant to be compared with another machine's.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/bench/rig"
	"github.com/cleavedb/cleave/internal/localpg"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "bulk:", err)
		os.Exit(1)
	}
}

func command() error {
	rows := flag.Int("rows", 1_000_000, "rows of a COPY")
	shards := flag.Int("shards", 4, "shards behind the router")
	rounds := flag.Int("rounds", 5, "rounds of a COPY; INSERTs have ten times as many")
	quick := flag.Bool("quick", false, "fewer rows and rounds")
	flag.Parse()
	if *quick {
		*rows, *rounds = 100_000, 3
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return run(ctx, *rows, *shards, *rounds)
}

// target is somewhere that rows can go.
type target struct {
	name string
	conn *pgx.Conn
}

func run(ctx context.Context, rows, shards, rounds int) (err error) {
	folder, err := os.MkdirTemp("", "cleave-bulk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	plain, err := localpg.Start(ctx, localpg.Config{Dir: filepath.Join(folder, "plain")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Stop(context.WithoutCancel(ctx))) }()
	router, stop, err := startCluster(ctx, folder, shards)
	if err != nil {
		return err
	}
	defer stop()
	targets := []target{{name: "plain PostgreSQL"}, {name: fmt.Sprintf("router, %d shards", shards)}}
	for i, address := range []string{plain.Addr(), router} {
		user := []string{"postgres", "cleave"}[i]
		database := []string{"postgres", "cleave"}[i]
		if targets[i].conn, err = pgx.Connect(ctx, fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", user, address, database)); err != nil {
			return err
		}
		defer targets[i].conn.Close(context.WithoutCancel(ctx))
		if _, err := targets[i].conn.Exec(ctx, "CREATE TABLE bulk (id bigint PRIMARY KEY, note text, amount int)"); err != nil {
			return err
		}
	}
	if _, err := targets[1].conn.Exec(ctx, "SELECT cleave.shard_table('bulk', 'id')"); err != nil {
		return err
	}
	return measure(ctx, targets, rows, rounds)
}

// startCluster runs 'cleave dev' of this tree, and returns the router's address.
func startCluster(ctx context.Context, folder string, shards int) (address string, stop func(), err error) {
	binary, err := rig.BuildRouter(ctx, folder, false)
	if err != nil {
		return "", nil, err
	}
	var ports [2]int
	for i := range ports {
		if ports[i], err = rig.FreePort(); err != nil {
			return "", nil, err
		}
	}
	address = fmt.Sprintf("127.0.0.1:%d", ports[0])
	command := exec.Command(binary, "dev", "--shards", strconv.Itoa(shards), "--data", filepath.Join(folder, "cluster"), "--listen", address, "--http", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	log, err := os.Create(filepath.Join(folder, "cluster.log"))
	if err != nil {
		return "", nil, err
	}
	command.Stdout, command.Stderr = log, log
	cluster, err := rig.Start(command)
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cluster.Stop()
		_ = log.Close()
	}
	for ctx.Err() == nil {
		said, _ := os.ReadFile(log.Name())
		if bytes.Contains(said, []byte("ready")) {
			return address, stop, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	return "", nil, ctx.Err()
}

// measure runs all cases and prints the ratios.
func measure(ctx context.Context, targets []target, rows, rounds int) error {
	var data bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&data, "%d\tnote number %d\t%d\n", i, i, i%1000)
	}
	next := rows
	for _, c := range []struct {
		name   string
		rounds int
		run    func(*pgx.Conn) error
	}{
		{fmt.Sprintf("COPY of %d rows", rows), rounds, func(conn *pgx.Conn) error {
			_, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(data.Bytes()), "COPY bulk FROM STDIN")
			return err
		}},
		{"INSERT of 1000 rows, literals", 10 * rounds, func(conn *pgx.Conn) error {
			var sql strings.Builder
			sql.WriteString("INSERT INTO bulk VALUES ")
			for i := range 1000 {
				if i > 0 {
					sql.WriteString(", ")
				}
				next++
				fmt.Fprintf(&sql, "(%d, 'note number %d', %d)", next, next, next%1000)
			}
			_, err := conn.PgConn().Exec(ctx, sql.String()).ReadAll()
			return err
		}},
		{"INSERT of 1000 rows, parameters", 10 * rounds, func(conn *pgx.Conn) error {
			var sql strings.Builder
			sql.WriteString("INSERT INTO bulk VALUES ")
			arguments := make([]any, 0, 3000)
			for i := range 1000 {
				if i > 0 {
					sql.WriteString(", ")
				}
				next++
				fmt.Fprintf(&sql, "($%d, $%d, $%d)", 3*i+1, 3*i+2, 3*i+3)
				arguments = append(arguments, int64(next), "a note", int32(next%1000))
			}
			_, err := conn.Exec(ctx, sql.String(), arguments...)
			return err
		}},
	} {
		times := make([][]time.Duration, len(targets))
		for range c.rounds {
			for i, t := range targets {
				if strings.HasPrefix(c.name, "COPY") {
					if _, err := t.conn.Exec(ctx, "TRUNCATE bulk"); err != nil {
						return err
					}
				}
				started := time.Now()
				if err := c.run(t.conn); err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, t.name, err)
				}
				times[i] = append(times[i], time.Since(started))
			}
		}
		base := rig.Median(times[0])
		for i, t := range targets {
			fmt.Printf("%-34s %-20s %10s  %.2f\n", c.name, t.name, rig.Median(times[i]).Round(10*time.Microsecond), float64(rig.Median(times[i]))/float64(base))
		}
	}
	return nil
}
