package shard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotClaimed says that the database does not belong to any cluster: [Claim] was never called, or [Release] was.
var ErrNotClaimed = errors.New("the database does not belong to a cluster: it has no record in a schema cleave")

// errNotInstalled is an ErrNotClaimed: there is not even a place for a record.
var errNotInstalled = fmt.Errorf("nothing is installed: %w", ErrNotClaimed)

// NewerError says that the shard has recorded a newer map than the one that was to be recorded, to be added to, or to be guarded by.
type NewerError struct{ Recorded, Map uint64 }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the shard has recorded map version %d, this map has version %d: records never go back", e.Recorded, e.Map)
}

// ForkError says that the shard has recorded something else under the very version that was to be recorded: there are two
// maps of one version.
type ForkError struct {
	Version uint64
	// Difference is the first that was found, for people.
	Difference string
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("the shard has recorded another map under the same version %d: %s; one of the two maps is not in force", e.Version, e.Difference)
}

// ClaimedError says that the database belongs to another cluster, or to another shard of the cluster.
type ClaimedError struct{ Cluster, Shard string }

func (e *ClaimedError) Error() string {
	return fmt.Sprintf("the database belongs to cluster %s as shard %q", e.Cluster, e.Shard)
}

// NewerSchemaError says that a newer program has been at work on the schema cleave.
type NewerSchemaError struct{ Installed, Known int }

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("the schema cleave has version %d, this program knows %d: upgrade it", e.Installed, e.Known)
}

// SchemaTakenError says that there is a schema cleave with something in it that is not ours.
type SchemaTakenError struct{ Object string }

func (e *SchemaTakenError) Error() string {
	return "the schema cleave is used by something else: it has " + e.Object
}

// ForeignObjectsError says that the schema cleave, which is ours, has things in it that are not, or that something elsewhere
// depends on what is in it: they would be lost with it.
type ForeignObjectsError struct{ Objects []string }

func (e *ForeignObjectsError) Error() string {
	return "the schema cleave cannot be dropped because of what others have put there or made of it: " + some(e.Objects) +
		"; move it away, for example with ALTER TABLE … SET SCHEMA public, or drop it"
}

// ConnectError says why a shard could not be reached, and what to do about it.
type ConnectError struct {
	Shard, Address string
	// Reason and Hint are for people.
	Reason, Hint string
	cause        error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("connect to shard %q at %s: %s; %s", e.Shard, e.Address, e.Reason, e.Hint)
}

func (e *ConnectError) Unwrap() error { return e.cause }

// connectError explains the driver's error. It keeps what lies below the driver's outermost error, which holds the whole
// configuration with the password in it.
func connectError(name, address string, a Access, err error) error {
	var outer *pgconn.ConnectError
	if errors.As(err, &outer) {
		err = outer.Unwrap()
	}
	reason, hint := explain(a, err)
	return &ConnectError{Shard: name, Address: address, Reason: reason, Hint: hint, cause: err}
}

func explain(a Access, err error) (reason, hint string) {
	var refused *pgconn.PgError
	var unknownHost *net.DNSError
	switch {
	case errors.As(err, &refused):
		return explainRefusal(a, refused)
	case errors.Is(err, context.Canceled):
		return "cancelled", "nothing is known about the server"
	case errors.As(err, &unknownHost) && unknownHost.IsNotFound:
		return "there is no host of that name", "correct the address, or the name service"
	case pgconn.Timeout(err), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time", "see whether the server runs, whether a firewall drops the packets, and whether connect_timeout is long enough"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", "see whether the server runs there and whether its listen_addresses and port are right"
	}
	return explainProtocol(err)
}

// explainProtocol is about servers that were reached but did not come to an understanding.
func explainProtocol(err error) (reason, hint string) {
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var header tls.RecordHeaderError
	switch {
	case strings.Contains(err.Error(), "require_auth"):
		return "the server asks for the password in a form that would give it away", "set password_encryption to scram-sha-256 there, set the role's password again, and ask for scram-sha-256 in pg_hba.conf"
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return "the server does not speak TLS", "set ssl = on there, or sslmode to disable here if the network is trusted"
	case errors.As(err, &certificate), errors.As(err, &authority):
		return "its certificate is not trusted: " + lastWords(err), "name the authority that signed it in root_ca_file, or correct the certificate"
	case errors.As(err, &header), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the server hung up", "see whether it is a PostgreSQL server, and what its log says"
	default:
		return lastWords(err), "see the server's log"
	}
}

// lastWords returns the innermost error's text: those around it repeat the address.
func lastWords(err error) string {
	for {
		switch wrapped := err.(type) { //nolint:errorlint // it walks the chain itself
		case interface{ Unwrap() error }:
			inner := wrapped.Unwrap()
			if inner == nil {
				return err.Error()
			}
			err = inner
		case interface{ Unwrap() []error }:
			all := wrapped.Unwrap()
			if len(all) == 0 {
				return err.Error()
			}
			err = all[0]
		default:
			return err.Error()
		}
	}
}

// Codes of PostgreSQL's errors.
const (
	codeInvalidPassword = "28P01"
	codeInvalidLogin    = "28000"
	codeNoDatabase      = "3D000"
	codeNoPrivilege     = "42501"
	codeTooMany         = "53300"
	codeStarting        = "57P03"
	codeUndefinedTable  = "42P01"
	codeUndefinedSchema = "3F000"
	codeStillInUse      = "2BP01"
	codeLockTimeout     = "55P03"
	codeUndefinedObject = "42704"
)

// explainRefusal is about servers that refused the log-in with a word of their own.
func explainRefusal(a Access, refused *pgconn.PgError) (reason, hint string) {
	switch refused.Code {
	case codeInvalidPassword:
		if a.Password.IsZero() {
			return fmt.Sprintf("role %q needs a password", a.User), "say where it is: password = file:/path or env:NAME"
		}
		return fmt.Sprintf("the password of role %q was refused", a.User), fmt.Sprintf("correct it in %s, or on the server with ALTER ROLE … PASSWORD", a.Password)
	case codeInvalidLogin:
		if strings.Contains(refused.Message, "no encryption") {
			return refused.Message, "the server wants TLS: set sslmode to verify-full, or allow the connection in its pg_hba.conf"
		}
		return refused.Message, "create the role, or allow it in the server's pg_hba.conf"
	case codeNoDatabase:
		return fmt.Sprintf("there is no database %q", a.Database), fmt.Sprintf("create it with CREATE DATABASE %q, or name another", a.Database)
	case codeNoPrivilege:
		return refused.Message, fmt.Sprintf("run GRANT CONNECT ON DATABASE %q TO %q", a.Database, a.User)
	case codeTooMany:
		return "all of the server's connections are in use", "raise max_connections there, or let others use fewer"
	case codeStarting:
		return refused.Message, "wait until the server takes connections"
	default:
		return fmt.Sprintf("%s (SQLSTATE %s)", refused.Message, refused.Code), "see the server's log"
	}
}

// notThere says whether the server does not know the table: nothing was installed.
func notThere(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == codeUndefinedTable || refused.Code == codeUndefinedSchema)
}
