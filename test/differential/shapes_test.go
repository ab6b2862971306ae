package differential_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A shape is a step in testdata/shapes: a statement with places in it that each kind of key fills in its own way. For a key of one
// column k, and for one of the columns k and j:
//
//	{columns}          k bigint not null             k bigint not null, j text not null
//	{types}            bigint                        bigint, text
//	{key}  {key o}     k  o.k                        k, j  o.k, o.j
//	{a}                5                             5, 'x'
//	{cast a}           5::bigint                     5::bigint, 'x'::text
//	{$1}  {$2}         $1  $2                        $1, $2  $3, $4
//	{= a}  {o = $1}    k = 5  o.k = $1               k = 5 and j = 'x'  o.k = $1 and o.j = $2
//	{o = i}            o.k = i.k                     o.k = i.k and o.j = i.j
//	{= cast a}         k = 5::bigint                 k = 5::bigint and j = 'x'::text
//	{set a}            k = 5                         k = 5, j = 'x'
//	{in a c}  {o in…}  k in (5, 6)                   (k, j) in ((5, 'x'), (6, 'y'))
//	{> a}  {o <= a}    k > 5  o.k <= 5               k > 5  o.k <= 5: bounds are of the first column
//	{between a b}      k between 5 and 6             k between 5 and 6
//	{array a c}        '{"5","6"}'                   of the first column
//	{values 1, 'x'}    (5, 1, 'x'), (6, 1, 'x') …    a row for each sample
//
// The names of samples are those of [cast], and x in a step for each sample.
var place = regexp.MustCompile(`\{[^{}A-Z]+\}`)

// expand makes the steps for one kind of key of one shape: none if it is not meant for it, several if it is for each sample.
func (c *cast) expand(st step) ([]step, error) {
	if !c.isMeant(st) {
		return nil, nil
	}
	var samples [][]string
	switch st.each {
	case "":
		filled, err := c.fill(st)
		return []step{filled}, err
	case "sample":
		samples = append(slices.Clone(c.samples), c.named["z"])
	case "spelling":
		samples = c.spellings
	default:
		return nil, fmt.Errorf("each %q is neither a sample nor a spelling", st.each)
	}
	steps := make([]step, len(samples))
	for i, sample := range samples {
		c.named["x"] = sample
		var err error
		if steps[i], err = c.fill(st); err != nil {
			return nil, err
		}
	}
	delete(c.named, "x")
	return steps, nil
}

func (c *cast) isMeant(st step) bool {
	is := func(word string) bool { return c.is(word) }
	return (len(st.only) == 0 || slices.ContainsFunc(st.only, is)) && !slices.ContainsFunc(st.not, is)
}

// fill puts the key into text and parameters.
func (c *cast) fill(st step) (step, error) {
	var problems []error
	write := func(found string) string {
		if found == schemaPlace {
			return found
		}
		text, err := c.place(strings.Trim(found, "{}"))
		problems = append(problems, err)
		return text
	}
	st.text = place.ReplaceAllStringFunc(st.text, write)
	st.from = place.ReplaceAllStringFunc(st.from, write)
	var params []param
	for _, k := range st.keys {
		more, err := c.params(k)
		problems = append(problems, err)
		params = append(params, more...)
	}
	st.params = append(params, st.params...)
	st.isShape = true
	st.unordered = !st.ordered && !endsInOrder(st.text)
	return st, errors.Join(problems...)
}

// params are the parameters that a directive asks for: "a", "? a" without a type, or "array a c".
func (c *cast) params(words []string) ([]param, error) {
	form := ""
	if words[0] == "?" || words[0] == "array" {
		form, words = words[0], words[1:]
	}
	samples, err := c.find(words)
	switch {
	case err != nil:
		return nil, err
	case form == "array":
		text := array(samples)
		return []param{{typeName: "_" + c.columns[0].wire, value: &text}}, nil
	case len(samples) != 1:
		return nil, fmt.Errorf("a parameter has one key, not %q", words)
	}
	params := make([]param, len(c.columns))
	for i, column := range c.columns {
		params[i] = param{typeName: column.wire, value: &samples[0][i]}
		if form == "?" {
			params[i].typeName = form
		}
	}
	return params, nil
}

func (c *cast) find(names []string) ([][]string, error) {
	samples := make([][]string, len(names))
	for i, name := range names {
		if samples[i] = c.named[name]; samples[i] == nil {
			return nil, fmt.Errorf("there is no sample %q", name)
		}
	}
	return samples, nil
}

// place writes what stands in one place.
func (c *cast) place(whole string) (string, error) {
	words := strings.Fields(whole)
	switch words[0] {
	case "columns":
		return c.join(", ", func(_ int, k keyColumn) string { return k.name + " " + k.sql + " not null" }), nil
	case "types":
		return c.join(", ", func(_ int, k keyColumn) string { return k.sql }), nil
	case "key":
		return strings.Join(c.names(strings.Join(words[1:], "")), ", "), nil
	case "values":
		rows := make([]string, len(c.samples))
		for i, sample := range c.samples {
			rows[i] = "(" + strings.Join(c.literals(sample), ", ") + ", " + strings.TrimPrefix(whole, "values ") + ")"
		}
		return strings.Join(rows, ", "), nil
	case "array":
		samples, err := c.find(words[1:])
		return "'" + strings.ReplaceAll(array(samples), "'", "''") + "'", err
	case "set":
		return c.compare("", "=", words[1:], ", ")
	case "in", "between", "=", "<", ">", "<=", ">=", "<>":
		return c.condition("", words)
	}
	if len(words) > 2 && (words[1] == "in" || words[1] == "between" || strings.ContainsAny(words[1], "=<>")) {
		return c.condition(words[0], words[1:])
	}
	values, err := c.operands(words)
	return strings.Join(values, ", "), err
}

// condition writes a comparison of a table's key.
func (c *cast) condition(table string, words []string) (string, error) {
	operator, operands := words[0], words[1:]
	switch operator {
	case "=":
		return c.compare(table, operator, operands, " and ")
	case "in":
		return c.list(table, operands)
	}
	column := c.names(table)[0]
	first, err := c.operands(operands[:1])
	if err != nil || operator != "between" {
		return column + " " + operator + " " + first[0], err
	}
	last, err := c.operands(operands[1:])
	return column + " between " + first[0] + " and " + last[0], err
}

func (c *cast) compare(table, operator string, operands []string, between string) (string, error) {
	names := c.names(table)
	values, err := c.operands(operands)
	if err != nil {
		return "", err
	}
	for i := range names {
		names[i] += " " + operator + " " + values[i]
	}
	return strings.Join(names, between), nil
}

func (c *cast) list(table string, operands []string) (string, error) {
	rows := make([]string, len(operands))
	for i, operand := range operands {
		values, err := c.operands([]string{operand})
		if err != nil {
			return "", err
		}
		rows[i] = c.row(values)
	}
	return c.row(c.names(table)) + " in (" + strings.Join(rows, ", ") + ")", nil
}

// row puts several values in parentheses.
func (c *cast) row(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return "(" + strings.Join(values, ", ") + ")"
}

// operands are the values of a sample, of parameters, or the columns of a table, one for each column of the key.
func (c *cast) operands(words []string) ([]string, error) {
	word := words[len(words)-1]
	if number, isParam := strings.CutPrefix(word, "$"); isParam {
		n, err := strconv.Atoi(number)
		return c.each(func(i int, _ keyColumn) string { return "$" + strconv.Itoa((n-1)*len(c.columns)+i+1) }), err
	}
	sample, found := c.named[word]
	switch {
	case !found && len(words) == 1 && len(word) == 1:
		return c.names(word), nil
	case !found || len(words) > 2 || len(words) == 2 && words[0] != "cast":
		return nil, fmt.Errorf("there is no sample %q", words)
	case len(words) == 1:
		return c.literals(sample), nil
	}
	return c.each(func(i int, k keyColumn) string {
		literal := k.literal(sample[i])
		if strings.HasPrefix(literal, "-") { // a cast binds closer than a minus
			literal = "(" + literal + ")"
		}
		return literal + "::" + k.sql
	}), nil
}

func (c *cast) names(table string) []string {
	if table != "" {
		table += "."
	}
	return c.each(func(_ int, k keyColumn) string { return table + k.name })
}

func (c *cast) each(write func(int, keyColumn) string) []string {
	texts := make([]string, len(c.columns))
	for i, column := range c.columns {
		texts[i] = write(i, column)
	}
	return texts
}

func (c *cast) join(between string, write func(int, keyColumn) string) string {
	return strings.Join(c.each(write), between)
}

// endsInOrder says whether a statement has an ORDER BY of its own, outside of all parentheses.
func endsInOrder(text string) bool {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case 'o':
			if depth == 0 && strings.HasPrefix(text[i:], "order by") {
				return true
			}
		}
	}
	return false
}
