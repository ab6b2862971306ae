package localpg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// StartReplica starts a streaming replica of the primary and returns when it accepts read-only connections. If its folder
// holds no data yet, they are copied from the primary, which keeps a replication slot for it: the replica may be away
// for as long as the primary has room for the log. Data that are there are opened, and follow the primary at its present
// address; if they have been promoted, they follow nobody.
//
// The replica connects as the primary's superuser. It has the primary's programs, superuser and password, and the
// primary's settings where it names none.
func StartReplica(ctx context.Context, primary *Server, config Config) (*Server, error) {
	config, err := replicaConfig(primary, config)
	if err != nil {
		return nil, fmt.Errorf("start a replica in %s: %w", config.Dir, err)
	}
	slot := ""
	replica, err := start(ctx, config, func(ctx context.Context, replica *Server, data string) error {
		slot = "cleave_replica_" + strings.ToLower(rand.Text()[:12])
		return replica.copyPrimary(ctx, primary, slot, data)
	})
	if err != nil && slot != "" {
		err = errors.Join(err, primary.dropSlot(slot))
	}
	if err != nil {
		return nil, err
	}
	return replica, nil
}

func replicaConfig(primary *Server, config Config) (Config, error) {
	dir, err := realPath(config.Dir)
	if config.Dir == "" || err != nil {
		return config, errors.Join(err, config.check())
	}
	config.Dir = dir
	config.Bin = primary.installation.Bin
	config.Superuser = primary.config.Superuser
	config.PasswordFile = primary.config.PasswordFile
	settings := maps.Clone(primary.config.Settings)
	for name, value := range config.Settings {
		settings[strings.ToLower(name)] = value
	}
	settings["primary_conninfo"] = fmt.Sprintf("host=%s port=%d user=%s sslmode=disable passfile=%s",
		loopback, primary.Port(), quoteConninfo(config.Superuser), quoteConninfo(filepath.Join(dir, passwordName)))
	config.Settings = settings
	return config, nil
}

func quoteConninfo(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// copyPrimary is the maker of a replica's data.
func (s *Server) copyPrimary(ctx context.Context, primary *Server, slot, data string) error {
	program, err := s.installation.basebackup(ctx)
	if err != nil {
		return err
	}
	passwords, err := s.writePasswords(primary)
	if err != nil {
		return err
	}
	arguments := []string{
		"--pgdata=" + data, "--host=" + loopback, fmt.Sprintf("--port=%d", primary.Port()), "--username=" + s.config.Superuser,
		"--no-password", "--create-slot", "--slot=" + slot, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast",
	}
	if s.config.Fast {
		arguments = append(arguments, "--no-sync")
	}
	return s.owner.run(ctx, s.config.Dir, []string{"PGPASSFILE=" + passwords}, program, arguments...)
}

// writePasswords writes the file that libpq takes the primary's password from; without a password it is empty.
func (s *Server) writePasswords(primary *Server) (string, error) {
	path := filepath.Join(s.config.Dir, passwordName)
	content := ""
	if primary.password != "" {
		content = "*:*:*:*:" + strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(primary.password) + "\n"
	}
	if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), s.owner.give(path)); err != nil {
		return "", fmt.Errorf("write the password for the primary: %w", err)
	}
	return path, nil
}

// dropSlot removes the slot of a replica that came to nothing, which would keep the primary's log for ever. The primary
// may need a moment to see that nobody uses the slot any more.
func (s *Server) dropSlot(name string) error {
	// The context of the start may have ended, which is why the slot has to go.
	ctx, cancel := context.WithTimeout(context.Background(), s.config.StopTimeout)
	defer cancel()
	for {
		var dropped string
		err := s.queryValue(ctx, &dropped, "SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots WHERE slot_name = $1", name)
		if err == nil || errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != objectInUse {
			return fmt.Errorf("drop the replication slot %s of the primary: %w", name, err)
		}
		time.Sleep(10 * pause)
	}
}

const objectInUse = "55006"

// Promote makes a primary of a replica and returns when it accepts writes. It does not see to it that the old primary
// stops; the caller does.
func (s *Server) Promote(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	promoted := false
	err := s.queryValue(ctx, &promoted, "SELECT pg_promote(true, $1)", int(s.config.StartTimeout.Seconds())+1)
	if err == nil && !promoted {
		err = fmt.Errorf("it is still a replica after %s", s.config.StartTimeout)
	}
	if err != nil {
		return fmt.Errorf("promote the server in %s: %w", s.config.Dir, err)
	}
	return nil
}

// queryValue asks for one value as the superuser.
func (s *Server) queryValue(ctx context.Context, value any, sql string, arguments ...any) error {
	connection, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	defer connection.Close(context.WithoutCancel(ctx))
	return connection.QueryRow(ctx, sql, arguments...).Scan(value)
}
