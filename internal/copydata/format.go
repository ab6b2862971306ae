package copydata

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Kind of data.
type Kind uint8

// The kinds.
const (
	Text Kind = iota
	CSV
	Binary
)

// Header says what the first line of text or CSV is.
type Header uint8

// Headers: none, one that PostgreSQL skips, one that it compares with the names of the columns.
const (
	HeaderNone Header = iota
	HeaderSkipped
	HeaderMatched
)

// Format is how the data of one COPY is written: its options with PostgreSQL's defaults, checked.
type Format struct {
	kind                     Kind
	header                   Header
	delimiter, quote, escape byte
	null                     string
	defaultMark              string
	hasDefault               bool // there is a defaultMark, and it may be empty
	encoding                 string
	columns                  int
	forceNull, forceNotNull  []bool // by column; nil if there are none
}

// NewFormat reads COPY's options. Columns are those of its list, or those of the table that COPY means without a list;
// clientEncoding is the session's.
//
// An error that wraps [ErrRefusedByServer] is for a server to tell; all others are for the client as they are.
func NewFormat(options []Option, columns []string, clientEncoding string) (*Format, error) {
	g, err := readOptions(options)
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 {
		return nil, pgerr.New(pgerr.FeatureNotSupported, "COPY into a sharded table without columns is not supported").
			WithDetail("A row without columns has no key.")
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	f := g.withDefaults(len(columns))
	if f.forceNull, err = chosenColumns(g.forceNull, columns); err != nil {
		return nil, err
	}
	if f.forceNotNull, err = chosenColumns(g.forceNotNull, columns); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	return f, f.setEncoding(g, clientEncoding)
}

// Kind says whether the data is text, CSV or binary.
func (f *Format) Kind() Kind { return f.kind }

// Header says what the first line is.
func (f *Format) Header() Header { return f.header }

// Columns is how many a row has.
func (f *Format) Columns() int { return f.columns }

// Encoding is PostgreSQL's name of the one that the data, and so every value, is in.
func (f *Format) Encoding() string { return f.encoding }

// rule is a condition under which PostgreSQL refuses options.
type rule struct {
	broken bool
	reason string
}

func firstBroken(rules []rule) error {
	for _, r := range rules {
		if r.broken {
			return refusedByServer("%s", r.reason)
		}
	}
	return nil
}

// check refuses what does not go together.
func (g *given) check() error {
	binary, csv := g.format == Binary, g.format == CSV
	return firstBroken([]rule{
		{binary && g.delimiter != nil, "DELIMITER in BINARY mode"},
		{binary && g.null != nil, "NULL in BINARY mode"},
		{binary && g.defaultMark != nil, "DEFAULT in BINARY mode"},
		{binary && g.header != HeaderNone, "HEADER in BINARY mode"},
		{!csv && g.quote != nil, "QUOTE outside CSV mode"},
		{!csv && g.escape != nil, "ESCAPE outside CSV mode"},
		{!csv && g.forceNull != nil, "FORCE_NULL outside CSV mode"},
		{!csv && g.forceNotNull != nil, "FORCE_NOT_NULL outside CSV mode"},
		{!isOneByte(g.delimiter), "DELIMITER is not a single one-byte character"},
		{!isOneByte(g.quote), "QUOTE is not a single one-byte character"},
		{!isOneByte(g.escape), "ESCAPE is not a single one-byte character"},
	})
}

// isOneByte says whether an option that is given is one character that is one byte in UTF8, as shards have it.
func isOneByte(text *string) bool { return text == nil || len(*text) == 1 && (*text)[0] < 0x80 }

// withDefaults fills in what was not given; there are others for CSV than for text.
func (g *given) withDefaults(columns int) *Format {
	f := &Format{kind: g.format, header: g.header, columns: columns, delimiter: '\t', null: `\N`}
	if f.kind == CSV {
		f.delimiter, f.null = ',', ""
		f.quote = byteOr(g.quote, '"')
		f.escape = byteOr(g.escape, f.quote)
	}
	f.delimiter = byteOr(g.delimiter, f.delimiter)
	if g.null != nil {
		f.null = *g.null
	}
	if g.defaultMark != nil {
		f.defaultMark, f.hasDefault = *g.defaultMark, true
	}
	return f
}

// specials are the characters that a look for columns must not pass over.
func (f *Format) specials() (special [256]bool) {
	special[f.delimiter] = true
	switch f.kind {
	case Text:
		special['\\'] = true
	case CSV:
		special[f.quote], special[f.escape] = true, true
	case Binary:
	}
	return special
}

func byteOr(text *string, otherwise byte) byte {
	if text == nil {
		return otherwise
	}
	return (*text)[0]
}

// check refuses values that would make the data ambiguous.
func (f *Format) check() error {
	if f.kind == Binary {
		return nil
	}
	const newlines = "\r\n"
	text, csv, delimiter := f.kind == Text, f.kind == CSV, string(f.delimiter)
	if err := firstBroken([]rule{
		{strings.ContainsAny(delimiter, newlines), "DELIMITER is a newline"},
		{strings.ContainsAny(f.null, newlines), "a newline in NULL"},
		{strings.ContainsAny(f.defaultMark, newlines), "a newline in DEFAULT"},
		{text && strings.ContainsAny(delimiter, `\.abcdefghijklmnopqrstuvwxyz0123456789`), "DELIMITER is a backslash, a dot, a letter or a digit"},
		{csv && f.delimiter == f.quote, "DELIMITER and QUOTE are the same"},
		{strings.Contains(f.null, delimiter), "DELIMITER is in NULL"},
		{strings.Contains(f.defaultMark, delimiter), "DELIMITER is in DEFAULT"},
		{csv && strings.IndexByte(f.null, f.quote) >= 0, "QUOTE is in NULL"},
		{csv && strings.IndexByte(f.defaultMark, f.quote) >= 0, "QUOTE is in DEFAULT"},
		{f.hasDefault && f.defaultMark == f.null, "NULL and DEFAULT are the same"},
	}); err != nil {
		return err
	}
	if csv && (strings.IndexByte(newlines, f.quote) >= 0 || strings.IndexByte(newlines, f.escape) >= 0) {
		return pgerr.New(pgerr.FeatureNotSupported, "COPY into a sharded table with a newline or carriage return as QUOTE or ESCAPE is not supported").
			WithDetail("Where a row ends could not be told.").WithHint("Choose another character.")
	}
	return nil
}

// setEncoding takes the option's or the session's.
func (f *Format) setEncoding(g *given, clientEncoding string) (err error) {
	name := clientEncoding
	if g.encoding != nil {
		name = *g.encoding
	}
	if f.encoding, err = canonicalEncoding(name); err != nil {
		return err
	}
	session, _ := canonicalEncoding(clientEncoding)
	if (f.encoding != utf8Encoding || session != utf8Encoding) && !isASCII(f.null+f.defaultMark) {
		return pgerr.New(pgerr.FeatureNotSupported, "COPY into a sharded table with NULL or DEFAULT other than ASCII is supported in UTF8 only").
			WithDetail("The statement is in encoding %q, the data in %q.", clientEncoding, f.encoding).
			WithHint("Choose a mark of ASCII characters, or set client_encoding to UTF8 and send the data in UTF8.")
	}
	return nil
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 })
}

// foreignEscapes: an escape like \351 stands for a byte in the shard's encoding, between characters of another.
func (f *Format) foreignEscapes() bool {
	return f.encoding != utf8Encoding && f.encoding != asciiEncoding
}

// chosenColumns marks the columns that an option names.
func chosenColumns(o *Option, columns []string) ([]bool, error) {
	if o == nil {
		return nil, nil
	}
	chosen := make([]bool, len(columns))
	switch {
	case o.Star:
		for i := range chosen {
			chosen[i] = true
		}
	case o.List == nil:
		return nil, refusedByServer("%s is not a list", o.Name)
	}
	for _, name := range o.List {
		i := slices.Index(columns, name)
		if i < 0 {
			return nil, refusedByServer("%s names %q, which is not copied", o.Name, name)
		}
		chosen[i] = true
	}
	return chosen, nil
}
