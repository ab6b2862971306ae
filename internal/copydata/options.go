package copydata

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// ErrRefusedByServer is wrapped by errors about options that PostgreSQL itself refuses. Send the statement to any one server: its
// error is the one that the client should see.
var ErrRefusedByServer = errors.New("PostgreSQL refuses these options of COPY")

// Option of COPY, as the grammar gives it: it turns the old form (WITH CSV HEADER) into the same options as the one in
// parentheses. Exactly one of Value, List, Star and Bare says what was given.
type Option struct {
	// Name in lower case, such as format.
	Name string
	// Value is a string's content, a number's or a Boolean's text.
	Value string
	// List is what stood in parentheses: names of columns.
	List []string
	// Star: it was *. Bare: there was nothing but the name.
	Star, Bare bool
}

// text is the option where PostgreSQL wants a string.
func (o Option) text() (string, error) {
	switch {
	case o.Bare:
		return "", refusedByServer("%s requires a parameter", o.Name)
	case o.Star:
		return "*", nil
	case o.List != nil:
		return strings.Join(o.List, "."), nil
	default:
		return o.Value, nil
	}
}

func refusedByServer(format string, arguments ...any) error {
	return fmt.Errorf("%w: %s", ErrRefusedByServer, fmt.Sprintf(format, arguments...))
}

// given are the options as they were written, before defaults.
type given struct {
	format                      Kind
	header                      Header
	delimiter, quote, escape    *string
	null, defaultMark, encoding *string
	forceNull, forceNotNull     *Option
}

// readers of options, by name. Those that say nothing about where a row goes are left to the server.
var readers = map[string]func(*given, Option) error{
	"format":         (*given).readFormat,
	"header":         (*given).readHeader,
	"delimiter":      func(g *given, o Option) error { return keep(&g.delimiter, o) },
	"quote":          func(g *given, o Option) error { return keep(&g.quote, o) },
	"escape":         func(g *given, o Option) error { return keep(&g.escape, o) },
	"null":           func(g *given, o Option) error { return keep(&g.null, o) },
	"default":        func(g *given, o Option) error { return keep(&g.defaultMark, o) },
	"encoding":       func(g *given, o Option) error { return keep(&g.encoding, o) },
	"force_null":     func(g *given, o Option) error { g.forceNull = &o; return nil },
	"force_not_null": func(g *given, o Option) error { g.forceNotNull = &o; return nil },
	"on_error":       (*given).readOnError,
	"force_quote":    func(*given, Option) error { return refusedByServer("FORCE_QUOTE is for COPY TO") },
	"reject_limit":   func(*given, Option) error { return refusedByServer("REJECT_LIMIT needs ON_ERROR ignore") },
	"freeze":         func(*given, Option) error { return nil },
	"log_verbosity":  func(*given, Option) error { return nil },
}

func readOptions(options []Option) (*given, error) {
	g := &given{}
	for i, o := range options {
		read, known := readers[o.Name]
		if !known {
			return nil, pgerr.New(pgerr.SyntaxError, "option %q not recognized", o.Name) //nolint:misspell // PostgreSQL's own words
		}
		if slices.ContainsFunc(options[:i], func(earlier Option) bool { return earlier.Name == o.Name }) {
			return nil, refusedByServer("%s is given twice", o.Name)
		}
		if err := read(g, o); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func keep(into **string, o Option) error {
	text, err := o.text()
	*into = &text
	return err
}

func (g *given) readFormat(o Option) error {
	text, err := o.text()
	if err != nil {
		return err
	}
	kinds := map[string]Kind{"text": Text, "csv": CSV, "binary": Binary}
	kind, known := kinds[text]
	if !known {
		return refusedByServer("format %q", text)
	}
	g.format = kind
	return nil
}

func (g *given) readHeader(o Option) error {
	if o.Bare {
		g.header = HeaderSkipped
		return nil
	}
	text, err := o.text()
	if err != nil {
		return err
	}
	switch strings.ToLower(text) {
	case "true", "on", "1":
		g.header = HeaderSkipped
	case "false", "off", "0":
		g.header = HeaderNone
	case "match":
		g.header = HeaderMatched
	default:
		return refusedByServer("header %q", text)
	}
	return nil
}

func (g *given) readOnError(o Option) error {
	text, err := o.text()
	if err != nil || strings.EqualFold(text, "stop") {
		return err
	}
	return pgerr.New(pgerr.FeatureNotSupported, "ON_ERROR %s is not supported for COPY into a sharded table", text).
		WithDetail("A row that is skipped because of its key belongs to no shard, and its count and its limit would be counted by each shard alone.").
		WithHint("Leave ON_ERROR out, or load the data into a table on one shard first and insert it from there.")
}
