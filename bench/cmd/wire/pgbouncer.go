package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/cleavedb/cleave/bench/rig"
)

// sessionDatabase is pgbouncer's name for the benchmark's database with a server connection for every client. Older
// versions lose prepared statements when transactions share connections.
const sessionDatabase = database + "_session"

// pgbouncerConfig pools transactions, keeps its connections, and checks nothing that costs time.
const pgbouncerConfig = `[databases]
%[1]s = host=%[3]s port=%[4]s dbname=%[1]s pool_size=%[5]d
%[2]s = host=%[3]s port=%[4]s dbname=%[1]s pool_mode=session pool_size=%[6]d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[7]d
unix_socket_dir =
auth_type = trust
auth_file = %[8]s
pool_mode = transaction
max_client_conn = 20000
server_idle_timeout = 5
ignore_startup_parameters = extra_float_digits
logfile = %[9]s
verbose = 0
log_connections = 0
log_disconnections = 0
`

func (l *lab) startPgbouncer(name, server string) (*target, error) {
	program, err := findPgbouncer(l.options.pgbouncer)
	if err != nil {
		return nil, err
	}
	port, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	config, err := l.configurePgbouncer(strings.ReplaceAll(name, "@", "-"), server, port)
	if err != nil {
		return nil, err
	}
	command := exec.Command(program, "-q", config)
	if command.SysProcAttr, err = runAsSomebody(filepath.Dir(config)); err != nil {
		return nil, err
	}
	bouncer, err := rig.Start(command)
	if err != nil {
		return nil, err
	}
	l.closers = append(l.closers, bouncer.Stop)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return &target{name: name, address: address, database: database, session: sessionDatabase, pid: bouncer.PID()}, nil
}

func findPgbouncer(given string) (string, error) {
	for _, name := range []string{given, "pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path, nil
		}
	}
	return "", errors.New("pgbouncer is missing: run scripts/install-bench.sh")
}

// configurePgbouncer writes the files into a folder of their own.
func (l *lab) configurePgbouncer(name, server string, port int) (string, error) {
	host, serverPort, err := net.SplitHostPort(server)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(l.folder, name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", fmt.Errorf("make pgbouncer's folder: %w", err)
	}
	users, config := filepath.Join(folder, "users.txt"), filepath.Join(folder, "pgbouncer.ini")
	text := fmt.Sprintf(pgbouncerConfig, database, sessionDatabase, host, serverPort, l.options.pool, maxClients, port, users, filepath.Join(folder, "pgbouncer.log"))
	if err := os.WriteFile(users, []byte(`"postgres" ""`+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("write pgbouncer's users: %w", err)
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write pgbouncer's configuration: %w", err)
	}
	return config, nil
}

// runAsSomebody gives the folder to a user who is not root, if we are, and returns how to run as that user.
func runAsSomebody(folder string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("find a user to run as: %w", err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(folder, int(uid), int(gid)); err != nil {
		return nil, fmt.Errorf("give the folder away: %w", err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
