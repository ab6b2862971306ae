package compose

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// Text is SQL with open places: for literals of the client's text, and for what was pulled.
type Text struct{ pieces []piece }

type piece struct {
	sql      string
	kind     pieceKind
	number   int
	column   int
	negative bool
}

// Places say what stands in a text's open places.
type Places struct {
	// Literal is one of the client's text, Pull what was pulled.
	Literal, Pull func(number int) string
	// Moment is the current time.
	Moment string
	// Visible are the columns of a pull that are not hidden, Type is the type of one of its columns.
	Visible func(pull int) string
	Type    func(pull, column int) string
	// Inserted are the columns that are inserted, Target is the type of a column of the table that is written.
	Inserted string
	Target   func(column int) string
}

type pieceKind uint8

const (
	isSQL pieceKind = iota
	isLiteral
	isPull
	isMoment
	isVisible
	isType
	isInserted
	isTarget
)

// Fill returns the text with its places filled in.
func (t Text) Fill(in Places) string {
	var b strings.Builder
	for _, p := range t.pieces {
		switch p.kind {
		case isLiteral:
			if p.negative { // a cast may follow, which would take the number without its sign
				b.WriteString("(-" + in.Literal(p.number) + ")")
			} else {
				b.WriteString(in.Literal(p.number))
			}
		case isPull:
			b.WriteString(in.Pull(p.number))
		case isMoment:
			b.WriteString(in.Moment)
		case isVisible:
			b.WriteString(in.Visible(p.number))
		case isType:
			b.WriteString(in.Type(p.number, p.column))
		case isInserted:
			b.WriteString(in.Inserted)
		case isTarget:
			b.WriteString(in.Target(p.number))
		case isSQL:
			b.WriteString(p.sql)
		}
	}
	return b.String()
}

// HasMoment says whether the current time is among its places.
func (t Text) HasMoment() bool {
	for _, p := range t.pieces {
		if p.kind == isMoment {
			return true
		}
	}
	return false
}

// String shows the text for tests: places are numbers in brackets.
func (t Text) String() string {
	show := func(what string) func(int) string {
		return func(n int) string { return fmt.Sprintf("[%s %d]", what, n) }
	}
	return t.Fill(Places{Literal: show("literal"), Pull: show("pull"), Moment: "[moment]", Visible: show("columns of pull"), Type: func(pull, column int) string {
		return fmt.Sprintf("[type of pull %d c%d]", pull, column)
	}, Inserted: "[columns]", Target: show("type of column")})
}

// A place is marked in the tree by a byte that no text has: a control character, which the client's text is checked for.
const mark = "\x01"

// marked finds marks in a text, with the quotes that stand around them.
var marked = regexp.MustCompile(`E?'\x01([LN])([0-9]+)\x01'|"\x01([P])([0-9]+)\x01"|\x01([LN])([0-9]+)\x01|"\x01([VTIC])([0-9.]+)\x01"|'\x01M\x01'`)

func literalMark(number int, negative bool) string {
	kind := "L"
	if negative {
		kind = "N"
	}
	return mark + kind + strconv.Itoa(number) + mark
}

func visibleMark(pull int) string { return mark + "V" + strconv.Itoa(pull) + mark }

func typeMark(pull, column int) string {
	return mark + "T" + strconv.Itoa(pull) + "." + strconv.Itoa(column) + mark
}

func pullMark(number int) string { return mark + "P" + strconv.Itoa(number) + mark }

// errMarks says that a mark was lost or changed on the way, so that the text cannot be trusted.
var errMarks = errors.New("places in the text are lost")

// templateOf cuts a text with marks into pieces.
func templateOf(sql string) (Text, error) {
	var t Text
	at := 0
	for _, m := range marked.FindAllStringSubmatchIndex(sql, -1) {
		t.add(sql[at:m[0]])
		p := piece{kind: isMoment}
		for group := 1; group < len(m)/2; group += 2 {
			if m[2*group] < 0 {
				continue
			}
			var err error
			if p, err = placeOf(sql[m[2*group]:m[2*group+1]], sql[m[2*group+2]:m[2*group+3]]); err != nil {
				return Text{}, err
			}
		}
		t.pieces = append(t.pieces, p)
		at = m[1]
	}
	t.add(sql[at:])
	for _, p := range t.pieces {
		if strings.Contains(p.sql, mark) {
			return Text{}, errMarks
		}
	}
	return t, nil
}

// placeOf reads a mark.
func placeOf(kind, numbers string) (piece, error) {
	first, second, _ := strings.Cut(numbers, ".")
	number, err := strconv.Atoi(first)
	if err != nil {
		return piece{}, errMarks
	}
	p := piece{number: number}
	switch kind {
	case "L", "N":
		p.kind, p.negative = isLiteral, kind == "N"
	case "P":
		p.kind = isPull
	case "V":
		p.kind = isVisible
	case "I":
		p.kind = isInserted
	case "C":
		p.kind = isTarget
	case "T":
		p.kind = isType
		if p.column, err = strconv.Atoi(second); err != nil {
			return piece{}, errMarks
		}
	default:
		return piece{}, errMarks
	}
	return p, nil
}

func (t *Text) add(sql string) {
	if sql != "" {
		t.pieces = append(t.pieces, piece{sql: sql})
	}
}

// grammarVersion is what the grammar's library wants to be told of the tree that it gets.
const grammarVersion = 170007

// write turns a query into a template.
func write(query *pgquery.Node) (Text, error) {
	sql, err := writeSQL(query)
	if err != nil {
		return Text{}, err
	}
	return templateOf(sql)
}

// writeSQL turns a tree into SQL.
func writeSQL(query *pgquery.Node) (string, error) {
	sql, err := pgquery.Deparse(&pgquery.ParseResult{Version: grammarVersion, Stmts: []*pgquery.RawStmt{{Stmt: query}}})
	if err != nil {
		return "", fmt.Errorf("write the statement: %w", err)
	}
	return strings.ReplaceAll(sql, `"`+parentheses+`"`, ""), nil
}

// parentheses stands for a function of which nothing but its parentheses is left: around what is subscripted, or a part of which is taken, the writer leaves them out.
const parentheses = mark + "(" + mark

// keepParentheses sees to it that these are written.
func keepParentheses(root proto.Message) {
	each(root, func(m proto.Message) bool {
		if i, is := m.(*pgquery.A_Indirection); is && i.Arg.GetColumnRef() == nil && i.Arg.GetParamRef() == nil && i.Arg.GetFuncCall() == nil {
			i.Arg = &pgquery.Node{Node: &pgquery.Node_FuncCall{FuncCall: &pgquery.FuncCall{
				Funcname: []*pgquery.Node{text(parentheses)}, Args: []*pgquery.Node{i.Arg}, Funcformat: pgquery.CoercionForm_COERCE_EXPLICIT_CALL, Location: -1,
			}}}
		}
		return true
	})
}

// isWrittenWell says whether a tree, written as SQL, is read as the same tree again: rewriting must not change what it leaves alone.
func isWrittenWell(root *pgquery.Node) bool {
	written := clone(root)
	keepParentheses(written)
	sql, err := writeSQL(written)
	if err != nil {
		return false
	}
	tree, err := pgquery.Parse(sql)
	if err != nil || len(tree.Stmts) != 1 {
		return false
	}
	before, after := clone(root), tree.Stmts[0].Stmt
	forgetPlaces(before)
	forgetPlaces(after)
	return proto.Equal(before, after)
}

// forgetPlaces takes the places in the text out of a tree.
func forgetPlaces(root proto.Message) {
	each(root, func(m proto.Message) bool {
		reflected := m.ProtoReflect()
		for _, name := range []protoreflect.Name{"location", "stmt_location", "stmt_len", "name_location"} {
			if field := reflected.Descriptor().Fields().ByName(name); field != nil {
				reflected.Clear(field)
			}
		}
		return true
	})
}

// literals marks the constants of a tree that are literals of the text.
type literals struct {
	text    string
	byStart map[int]int
	all     []sqltext.Literal
	first   int // the number of the first of them
	given   []Span
}

func literalsOf(text string, all []sqltext.Literal) *literals {
	l := &literals{text: text, byStart: map[int]int{}, all: all}
	for i, one := range all {
		l.byStart[one.Start] = i
	}
	return l
}

// mark puts marks in the place of a constant's value. What has several minuses before it keeps its value, and the text depends on that.
func (l *literals) mark(c *pgquery.A_Const) {
	at := int(c.Location)
	if isGiven(l.given, at) {
		return
	}
	number, found := l.byStart[at]
	negative := false
	if !found && at >= 0 && at < len(l.text) && l.text[at] == '-' {
		number, found = l.after(at)
		found = found && sqltext.IsMinus(l.text[at:l.all[number].Start])
		negative = found
	}
	if !found || c.Isnull {
		return
	}
	switch c.Val.(type) {
	case *pgquery.A_Const_Ival, *pgquery.A_Const_Fval:
		c.Val = &pgquery.A_Const_Fval{Fval: &pgquery.Float{Fval: literalMark(l.first+number, negative)}}
	case *pgquery.A_Const_Sval:
		c.Val = &pgquery.A_Const_Sval{Sval: &pgquery.String{Sval: literalMark(l.first+number, false)}}
	case *pgquery.A_Const_Bsval: // written as a number is: without quotes of the writer's own
		c.Val = &pgquery.A_Const_Fval{Fval: &pgquery.Float{Fval: literalMark(l.first+number, false)}}
	default:
	}
}

// isGiven says whether a place of the text is none of the client's.
func isGiven(given []Span, at int) bool {
	return slices.ContainsFunc(given, func(s Span) bool { return s.Start <= at && at < s.End })
}

// after finds the first literal behind a place.
func (l *literals) after(at int) (number int, found bool) {
	for i, one := range l.all {
		if one.Start > at {
			return i, true
		}
	}
	return 0, false
}
