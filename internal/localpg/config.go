package localpg

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Config says how a server is made and run. What concerns the making (User, Superuser, PasswordFile, Locale, Template, Model)
// has no effect on a folder that already holds data, except that the password is needed to connect.
type Config struct {
	// Dir is the server's folder. It is made if it is missing. No default.
	Dir string
	// Bin is the folder of PostgreSQL's programs. Default: those of the major version that made the data; for new data
	// the newest that [Find] finds, of major version 15 or newer.
	Bin string
	// Port is the port to listen on; if it is taken the start fails with a [PortInUseError]. Default: a free one.
	Port int
	// User is the user of the operating system that the server runs as when this process is root, whom PostgreSQL
	// refuses. Default: the owner of the data; for new data "postgres", or "nobody" if there is no such user.
	User string
	// Superuser is the name of the database's superuser. Default: "postgres".
	Superuser string
	// PasswordFile is a file whose first line is the superuser's password, asked for with SCRAM. Default: no password,
	// and everyone on this machine is trusted.
	PasswordFile string
	// Locale is the locale of the databases; their encoding is UTF-8 in any case. Default: "C.UTF-8" if the system
	// knows it, else "C".
	Locale string
	// Settings are further settings of the server. They win over the defaults, which make a server ready to be a shard,
	// and over ALTER SYSTEM. Default: none.
	Settings map[string]string
	// Fast does without fsync: for data that may be lost when the machine goes down. Commits are still written before
	// they are acknowledged, and pages written in full after a checkpoint: a killed server must not lose a commit nor
	// keep half of a page, and doing without these two gained nothing that could be measured. Default: false.
	Fast bool
	// Template makes new data by copying those of an earlier initdb from a cache, for servers that live for a test. Data
	// that are meant to last get an initdb of their own, as does every server with a password. Default: false.
	Template bool
	// Whole has such a copy have the template databases too, without which there is no CREATE DATABASE. They are two thirds of
	// all files. Default: false.
	Whole bool
	// Model is the folder of a server of the same superuser that was stopped in order: new data are a copy of what it has,
	// as those of another server. It is for servers that live for a test, as the template is. Default: none.
	Model string
	// StartTimeout is how long a server may take until it accepts connections, recovery after a crash included.
	// Default: 2 minutes.
	StartTimeout time.Duration
	// StopTimeout is how long [Server.Stop] waits for open transactions to be rolled back and for a checkpoint.
	// Default: 30 seconds.
	StopTimeout time.Duration
}

const defaultConnections = "100"

func (c Config) withDefaults() Config {
	if c.Superuser == "" {
		c.Superuser = "postgres"
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 2 * time.Minute
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 30 * time.Second
	}
	c.Settings = c.settings()
	return c
}

// settings adds to the caller's settings those that a shard needs: logical decoding for moves, a prepared transaction for
// every connection, and enough slots and workers for several moves at a time.
func (c Config) settings() map[string]string {
	settings := map[string]string{
		"max_connections":                 defaultConnections,
		"wal_level":                       "logical",
		"max_replication_slots":           "32",
		"max_wal_senders":                 "32",
		"max_logical_replication_workers": "16",
		"max_worker_processes":            "32",
		"timezone":                        "UTC",
		"log_timezone":                    "UTC",
		"unix_socket_directories":         "",
	}
	if c.Fast {
		settings["fsync"] = "off"
	}
	for name, value := range c.Settings {
		settings[strings.ToLower(name)] = value
	}
	if _, given := settings["max_prepared_transactions"]; !given {
		settings["max_prepared_transactions"] = settings["max_connections"]
	}
	return settings
}

// ownSettings are those that a server gets from other fields, or that this package relies on.
var ownSettings = []string{"port", "listen_addresses", "data_directory", "lc_messages"}

var settingName = regexp.MustCompile(`^[a-z_][a-z0-9_.]*$`)

func (c Config) check() error {
	if c.Dir == "" {
		return errors.New("a server needs a folder")
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("%d is not a port", c.Port)
	}
	if c.StartTimeout < 0 || c.StopTimeout < 0 {
		return errors.New("a server's timeouts cannot be negative")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		if !settingName.MatchString(name) {
			return fmt.Errorf("%q is not the name of a setting", name)
		}
		if slices.Contains(ownSettings, name) {
			return fmt.Errorf("the setting %s is not for the caller to give", name)
		}
	}
	return nil
}

// password reads the superuser's password; none is "".
func (c Config) password() (string, error) {
	if c.PasswordFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read the superuser's password: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	password := strings.TrimSuffix(first, "\r")
	if password == "" {
		return "", fmt.Errorf("the password file %s begins with an empty line", c.PasswordFile)
	}
	return password, nil
}

// The files of a server's folder.
const (
	dataName = "data"
	logName  = "server.log"
	lockName = "lock"
	// passwordName holds the password of a replica's primary, as libpq reads it. On the command line, where the rest of
	// the connection stands, everyone could see it.
	passwordName = "primary.pgpass"
)

func (c Config) data() string { return filepath.Join(c.Dir, dataName) }

func (c Config) log() string { return filepath.Join(c.Dir, logName) }
