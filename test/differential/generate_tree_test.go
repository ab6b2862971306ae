package differential_test

import (
	"strconv"
	"strings"
)

// node is a part of a statement that was made up. Statements are trees so that they can be made smaller: a part is left out, or
// a part of itself or something simple takes its place. Whether what is left makes sense is the plain server's to judge.
type node struct {
	// label: nodes with the same one may take each other's place. None may take the place of one without.
	label string
	// format is the text, in which every % stands for a part; without parts it is the text as it is.
	format string
	parts  []*node
	// Of a list: its format has one %, where all parts come that are left. Without any it is not written at all. At least so many
	// must be left.
	isList  bool
	between string
	least   int
	// optional: the statement may do without it, as any part of a list.
	optional bool
	gone     bool
	// twin: parts with the same number are left out together, such as the first columns on both sides of a UNION.
	twin int
	// simple is the least that can take its place, nothing if there is no such thing.
	simple string
	// param is a parameter.
	param *param
	// position: it is the place that this part has in that list, or is written as shown, which means the same.
	position, within, shown *node
}

func leaf(text string) *node { return &node{format: text} }

func phrase(format string, parts ...*node) *node { return &node{format: format, parts: parts} }

// optional is a phrase that can be left out.
func optional(format string, parts ...*node) *node {
	return &node{format: format, parts: parts, optional: true}
}

// list writes parts with something between them.
func list(format, between string, parts ...*node) *node {
	return &node{format: format, parts: parts, isList: true, between: between}
}

// filled is a list of which something must be left.
func filled(format, between string, parts ...*node) *node {
	n := list(format, between, parts...)
	n.least = 1
	return n
}

// nothing is what is left out from the beginning.
func nothing() *node { return leaf("") }

// writer writes a tree as SQL and counts its parameters.
type writer struct {
	strings.Builder
	params  []param
	numbers map[*node]int
}

// render returns the statement and its parameters.
func (n *node) render() (string, []param) {
	w := &writer{numbers: map[*node]int{}}
	w.write(n)
	return w.String(), w.params
}

func (w *writer) write(n *node) {
	switch {
	case n.gone:
	case n.param != nil:
		w.writeParam(n)
	case n.shown != nil:
		w.write(n.shown)
	case n.position != nil:
		w.WriteString(strconv.Itoa(n.within.place(n.position) + 1))
	case n.isList:
		w.writeList(n)
	case len(n.parts) == 0:
		w.WriteString(n.format)
	default:
		w.writePhrase(n)
	}
}

func (w *writer) writePhrase(n *node) {
	pieces := strings.Split(n.format, "%")
	if len(pieces) != len(n.parts)+1 {
		panic("a format has other parts than " + n.format)
	}
	for i, part := range n.parts {
		w.WriteString(pieces[i])
		w.write(part)
	}
	w.WriteString(pieces[len(n.parts)])
}

func (w *writer) writeList(n *node) {
	before, after, _ := strings.Cut(n.format, "%")
	written := 0
	for _, part := range n.parts {
		if part.gone {
			continue
		}
		w.WriteString(before)
		w.write(part)
		before = n.between
		written++
	}
	if written > 0 {
		w.WriteString(after)
	}
}

// writeParam gives a parameter a number when it is first met.
func (w *writer) writeParam(n *node) {
	if w.numbers[n] == 0 {
		w.params = append(w.params, *n.param)
		w.numbers[n] = len(w.params)
	}
	w.WriteString("$" + strconv.Itoa(w.numbers[n]))
}

// place says which of the list's parts that are left this is, -1 if it is none of them.
func (n *node) place(part *node) int {
	at := 0
	for _, p := range n.parts {
		switch {
		case p == part && !p.gone:
			return at
		case !p.gone:
			at++
		}
	}
	return -1
}
