package topology

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// maxIdentifier is PostgreSQL's limit for a name, in bytes.
const maxIdentifier = 63

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`)

// checkName checks the name of a shard or keyspace. The form is narrow because these names stand in addresses of the API,
// in metrics, in folders and in replication slots.
func checkName(kind, name string) error {
	if len(name) > maxIdentifier || !nameForm.MatchString(name) {
		return fmt.Errorf("%s name %q: use up to %d lower-case letters, digits, '-', '_' and '.', with a letter or digit at both ends", kind, name, maxIdentifier)
	}
	return nil
}

// checkLabels checks labels such as region=eu.
func checkLabels(labels map[string]string) error {
	for name, value := range labels {
		if err := checkName("label", name); err != nil {
			return err
		}
		if len(value) > 255 || !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' }) {
			return fmt.Errorf("label %s: its value must be at most 255 bytes of printable text", name)
		}
	}
	return nil
}

// checkAddress checks host:port.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q: write host:port", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return fmt.Errorf("address %q: write host:port with a port from 1 to 65535", address)
	}
	return nil
}

// TableName is a table's name with its schema, as PostgreSQL stores both: not quoted, case as it is.
type TableName struct{ Schema, Name string }

var plainIdentifier = regexp.MustCompile(`^[a-z_][a-z0-9_$]*$`)

// String returns schema.name, each part quoted if SQL asks for it: behind a point no word is reserved.
func (n TableName) String() string {
	name := sqltext.QuoteIdentifier(n.Name)
	if plainIdentifier.MatchString(n.Name) {
		name = n.Name
	}
	return quoted(n.Schema) + "." + name
}

func quoted(identifier string) string {
	if plainIdentifier.MatchString(identifier) && !sqltext.IsReserved(identifier) {
		return identifier
	}
	return sqltext.QuoteIdentifier(identifier)
}

// ParseTableName reads schema.name as SQL would: parts in double quotes are taken as they are, others in lower case. A
// name without a schema is in public.
func ParseTableName(text string) (TableName, error) {
	parts, ok := sqltext.SplitNames(text, '.')
	if !ok || len(parts) == 0 || len(parts) > 2 {
		return TableName{}, fmt.Errorf("table name %q: write schema.name, and a name with quotes, blanks or dots in double quotes", text)
	}
	for _, part := range parts {
		if err := checkIdentifier(part); err != nil {
			return TableName{}, fmt.Errorf("table name %q: %w", text, err)
		}
	}
	if len(parts) == 1 {
		return TableName{Schema: "public", Name: parts[0]}, nil
	}
	return TableName{Schema: parts[0], Name: parts[1]}, nil
}

// NormalTableName writes the name of a table as [TableName.String] does now: earlier versions quoted fewer words. What is no name stays as it is.
func NormalTableName(text string) string {
	name, err := ParseTableName(text)
	if err != nil {
		return text
	}
	return name.String()
}

func checkIdentifier(identifier string) error {
	if identifier == "" || len(identifier) > maxIdentifier || !utf8.ValidString(identifier) || strings.ContainsRune(identifier, 0) {
		return fmt.Errorf("%q is not a PostgreSQL identifier of 1 to %d bytes", identifier, maxIdentifier)
	}
	return nil
}
