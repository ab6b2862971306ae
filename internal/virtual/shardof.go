package virtual

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/session"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

// shardOf tells on which shard a key's rows live.
func shardOf(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, rest []*string) (string, error) {
	name, err := s.tableName(ctx, text(arguments, "table_name"), call.SearchPath)
	if err != nil {
		return "", err
	}
	m := s.config.Map()
	table := m.Table(name.Schema, name.Name)
	if table == nil || table.Kind() != topology.Sharded {
		return "", pgerr.New(pgerr.WrongObjectType, "table %s is not sharded", name).WithHint("cleave.tables lists those that are.")
	}
	columns := table.KeyColumns()
	if len(rest) != len(columns) {
		return "", pgerr.New(pgerr.UndefinedFunction, "table %s has a key of %d columns, %d values were given", name, len(columns), len(rest)).
			WithHint("The key is (%s).", strings.Join(columns, ", "))
	}
	parts, err := s.keyParts(ctx, table)
	if err != nil {
		return "", err
	}
	values := make([]key.Value, len(columns))
	for i, value := range rest {
		if value == nil {
			return "", pgerr.New(pgerr.NullNotAllowed, "a key must not be null")
		}
		if values[i], err = s.stored(ctx, m.Home(), &parts[i], *value); err != nil {
			return "", err
		}
	}
	place, err := table.Keyspace().Locate(values...)
	if err != nil {
		return "", err
	}
	return place.Shard.Name(), nil
}

// keyParts says of each key column what a value becomes when it is stored there.
func (s *Schema) keyParts(ctx context.Context, table *topology.Table) ([]plan.KeyPart, error) {
	name := plan.RelationName{Schema: table.Name().Schema, Name: table.Name().Name}
	known, err := s.config.Look(ctx, []plan.RelationName{name}, nil, nil)
	if err != nil {
		return nil, err
	}
	parts := make([]plan.KeyPart, len(table.KeyColumns()))
	for i, column := range table.KeyColumns() {
		part, found := known.Relations[name].KeyPart(column)
		if !found {
			return nil, pgerr.New(pgerr.FeatureNotSupported, "key column \"%s\" of sharded table %s is not as it was declared", column, table.Name()).
				WithDetail("Its type on the home shard is another than the keyspace's.").WithHint("See what differs with cleave schema diff.")
		}
		part.Store, part.Operand = true, plan.Operand{Kind: plan.FromParam, Param: 1, CastMod: -1}
		parts[i] = part
	}
	return parts, nil
}

// stored returns the value that an INSERT of this text would store.
func (s *Schema) stored(ctx context.Context, home *topology.Shard, part *plan.KeyPart, text string) (key.Value, error) {
	if !utf8.ValidString(text) {
		return key.Value{}, pgerr.New(pgerr.FeatureNotSupported, "the value for key column \"%s\" is not in UTF-8", part.Column).
			WithDetail("Keys are hashed in that encoding.").WithHint("SET client_encoding TO 'UTF8'.")
	}
	if part.IsInteger() {
		text = withoutZeros(text)
	}
	param := binding.Param{Value: []byte(text)}
	value, outcome, refused := binding.Value(part, nil, nil, []binding.Param{param}, binding.Session{ClientEncodingUTF8: true})
	switch {
	case refused != nil:
		return key.Value{}, refused
	case outcome == binding.Bound:
		return value, nil
	case outcome == binding.Ask && home != nil:
		return s.askStored(ctx, home, part, param)
	default:
		return key.Value{}, noSuchValue(part)
	}
}

func noSuchValue(part *plan.KeyPart) *pgerr.Error {
	return pgerr.New(pgerr.InvalidTextRepresentation, "invalid input for the key column \"%s\"", part.Column).
		WithDetail("The column, of type %s, cannot have this value.", part.Type)
}

// wholeNumber is a number that has nothing but zeros behind its point.
var wholeNumber = regexp.MustCompile(`^([+-]?[0-9]+)\.0*$`)

// withoutZeros turns 4.0 into 4, which is what an integer column makes of it. How others are rounded depends on their type.
func withoutZeros(number string) string {
	if whole := wholeNumber.FindStringSubmatch(number); whole != nil {
		return whole[1]
	}
	return number
}

// askTimeout is how long the home shard may take to read a value.
const askTimeout = 10 * time.Second

// readings are settings that read dates and times differently. The caller's are not known here, so a value counts only if it
// is the same under all of them.
var readings = []string{
	"SET TimeZone TO 'UTC'; SET DateStyle TO 'ISO, MDY'", "SET TimeZone TO 'Etc/GMT+12'; SET DateStyle TO 'ISO, DMY'",
	"SET TimeZone TO 'Etc/GMT-14'; SET DateStyle TO 'ISO, YMD'",
}

// askStored asks the home shard for a value that only PostgreSQL can read.
func (s *Schema) askStored(ctx context.Context, home *topology.Shard, part *plan.KeyPart, param binding.Param) (key.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := s.config.Access.Connect(ctx, home.Spec())
	if err != nil {
		return key.Value{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	sql, _ := binding.AskSQL(part, nil, nil, []binding.Param{param})
	answer, err := readAlike(ctx, conn.PgConn(), part, sql, param.Value)
	if err != nil {
		return key.Value{}, err
	}
	value, outcome, err := binding.Answer(part, answer)
	if err == nil && outcome != binding.Bound {
		err = noSuchValue(part)
	}
	return value, err
}

// readAlike returns what the question gives under all readings alike.
func readAlike(ctx context.Context, conn *pgconn.PgConn, part *plan.KeyPart, sql string, value []byte) (answer []byte, err error) {
	for i, settings := range readings {
		if _, err := conn.Exec(ctx, settings).ReadAll(); err != nil {
			return nil, fmt.Errorf("read the value for key column %q: %w", part.Column, err)
		}
		result := conn.ExecParams(ctx, sql, [][]byte{value}, nil, nil, nil).Read()
		switch {
		case i == 0 && result.Err != nil:
			return nil, unreadable(part, result.Err)
		case i == 0:
			answer = result.Rows[0][0]
		case result.Err != nil || !bytes.Equal(result.Rows[0][0], answer):
			return nil, pgerr.New(pgerr.FeatureNotSupported, "the value for key column \"%s\" depends on settings of the session", part.Column).
				WithDetail("It means another %s, or none, with another TimeZone or DateStyle.", part.Type).
				WithHint("Write it as 2020-12-31, times with their offset: 2020-12-31 12:00:00+00.")
		}
	}
	return answer, nil
}

// unreadable says what the server said of a value.
func unreadable(part *plan.KeyPart, err error) error {
	var answered *pgconn.PgError
	if !errors.As(err, &answered) {
		return fmt.Errorf("read the value for key column %q: %w", part.Column, err)
	}
	return pgerr.New(answered.Code, "%s", answered.Message).WithDetail("It is the value for key column \"%s\".", part.Column)
}
