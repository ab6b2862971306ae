package copydata

import (
	"strings"

	"pgregory.net/rapid"
)

// drawCase draws options and data that are mostly right.
func drawCase(t *rapid.T, version int) *copyCase {
	c := &copyCase{columns: rapid.IntRange(1, 3).Draw(t, "columns")}
	switch rapid.SampledFrom([]Kind{Text, CSV, CSV, Binary}).Draw(t, "kind") {
	case Text:
		c.drawText(t, version)
	case CSV:
		c.drawCSV(t, version)
	case Binary:
		c.options = []Option{option("format", "binary")}
		c.data = drawBinary(t, c.columns)
	}
	return c
}

func (c *copyCase) add(o Option) { c.options = append(c.options, o) }

// sometimes draws one of the values, or says that there is none.
func sometimes(t *rapid.T, name string, values ...string) (string, bool) {
	value := rapid.SampledFrom(append([]string{"", ""}, values...)).Draw(t, name)
	return value, value != ""
}

func (c *copyCase) drawText(t *rapid.T, version int) {
	delimiter, given := sometimes(t, "delimiter", "|", ",", "X", "\x01")
	if given {
		c.add(option("delimiter", delimiter))
	} else {
		delimiter = "\t"
	}
	if null, given := sometimes(t, "null", "-", "NULL", `\b`, "é", `\`); given {
		c.add(option("null", null))
	}
	header := c.drawHeader(t)
	c.drawDefault(t, version, `\D`)
	tokens := []string{"a", "b", "n", "x", "7", "0", "1", "4", "f", "N", "D", "no", "-", "NULL", `\N`, `\D`, `\`, `\\`, `\.`, `\n`, `\x`, `\1`, `\` + delimiter, "\\\n", "\\\r", "é", "\xe9", "\x00", "\"", ""}
	c.data = header(delimiter) + drawLines(t, c.columns, delimiter, tokens)
}

func (c *copyCase) drawCSV(t *rapid.T, version int) {
	c.add(option("format", "csv"))
	delimiter, given := sometimes(t, "delimiter", "|", ";", `\`, ".")
	if given {
		c.add(option("delimiter", delimiter))
	} else {
		delimiter = ","
	}
	quote, given := sometimes(t, "quote", "'", "q", " ")
	if given {
		c.add(option("quote", quote))
	} else {
		quote = `"`
	}
	escape, given := sometimes(t, "escape", `\`, "!", "|", quote)
	if given {
		c.add(option("escape", escape))
	} else {
		escape = quote
	}
	if null, given := sometimes(t, "null", "NULL", "-", `\N`); given && !strings.Contains(null, delimiter) {
		c.add(option("null", null))
	}
	c.drawForced(t, version, "force_null")
	c.drawForced(t, version, "force_not_null")
	header := c.drawHeader(t)
	c.drawDefault(t, version, "D")
	in := func(content string) string { return quote + content + quote }
	tokens := []string{
		"a", "b", "no", "NULL", "-", `\N`, "D", `\.`, `\`, "", in(""), in("NULL"), in("D"), in("a" + delimiter + "b"), in("1\n2"), in("1\r\n2\r"), in("\\.\n"),
		in(escape + quote), in(escape + escape), in(escape + "x"), in("x" + escape), quote, escape, "é", "\xe9", "\x00",
	}
	c.data = header(delimiter) + drawLines(t, c.columns, delimiter, tokens)
}

func (c *copyCase) drawForced(t *rapid.T, version int, name string) {
	const starVersion = 170000
	switch rapid.IntRange(0, 3).Draw(t, name) {
	case 0:
		c.add(Option{Name: name, List: columnNames[:rapid.IntRange(1, c.columns).Draw(t, "forced")]})
	case 1:
		if version >= starVersion {
			c.add(Option{Name: name, Star: true})
		}
	}
}

func (c *copyCase) drawDefault(t *rapid.T, version int, mark string) {
	const defaultVersion = 160000
	if version >= defaultVersion && rapid.Bool().Draw(t, "default") {
		c.add(option("default", mark))
	}
}

// drawHeader draws the option, and returns what makes the line.
func (c *copyCase) drawHeader(t *rapid.T) func(delimiter string) string {
	none := func(string) string { return "" }
	right := func(delimiter string) string { return strings.Join(columnNames[:c.columns], delimiter) + "\n" }
	switch rapid.IntRange(0, 5).Draw(t, "header") {
	case 0:
		c.add(Option{Name: "header", Bare: true})
		line := rapid.SampledFrom([]string{"", "any\n", "x\ty\r\n", "\n"}).Draw(t, "header line")
		return func(string) string { return line }
	case 1:
		c.add(option("header", "match"))
		return right
	case 2:
		c.add(option("header", "match"))
		return none
	case 3:
		c.add(option("header", "false"))
		return none
	default:
		return none
	}
}

// drawLines draws rows that mostly have as many columns as they should, and mostly end alike.
func drawLines(t *rapid.T, columns int, delimiter string, tokens []string) string {
	field := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(tokens), 0, 3).Draw(t, "tokens"), "")
	})
	style := rapid.SampledFrom([]string{"\n", "\n", "\r", "\r\n"}).Draw(t, "style")
	oddity := rapid.IntRange(0, 60)
	var b strings.Builder
	for range rapid.IntRange(0, 6).Draw(t, "rows") {
		fields := columns
		if oddity.Draw(t, "odd count") == 1 {
			fields = rapid.IntRange(0, 4).Draw(t, "fields")
		}
		b.WriteString(strings.Join(rapid.SliceOfN(field, fields, fields).Draw(t, "row"), delimiter))
		if oddity.Draw(t, "odd newline") == 1 {
			style = rapid.SampledFrom([]string{"\n", "\r", "\r\n", ""}).Draw(t, "newline")
		}
		b.WriteString(style)
	}
	data := b.String()
	switch rapid.IntRange(0, 9).Draw(t, "end") {
	case 0:
		return strings.TrimRight(data, "\r\n")
	case 1:
		return data + `\.` + style + rapid.SampledFrom([]string{"", "more", "\n"}).Draw(t, "more")
	case 2:
		return data + rapid.SampledFrom(tokens).Draw(t, "token")
	default:
		return data
	}
}

// drawBinary draws binary data that is mostly right.
func drawBinary(t *rapid.T, columns int) string {
	oddity := rapid.IntRange(0, 40)
	odd := func(name string) bool { return oddity.Draw(t, name) == 1 }
	parts := []any{signature, int32(0), int32(0)}
	switch {
	case odd("extension"):
		parts = []any{signature, int32(7), int32(3), "xyz"}
	case odd("flags"):
		parts = []any{signature, int32(1 << 17), int32(0)}
	case odd("signature"):
		parts = []any{"PGCOPY\r\n\xff\r\n\x00", int32(0), int32(0)}
	}
	for range rapid.IntRange(0, 4).Draw(t, "rows") {
		count := columns
		if odd("count") {
			count = rapid.IntRange(-3, 4).Draw(t, "fields")
		}
		parts = append(parts, int16(count))
		for range count {
			value := rapid.SampledFrom([]string{"", "x", "abc", "no", "é", "\xe9"}).Draw(t, "value")
			switch {
			case odd("length"):
				parts = append(parts, int32(rapid.IntRange(-3, 5).Draw(t, "length")), value)
			case value == "x":
				parts = append(parts, int32(-1))
			default:
				parts = append(parts, int32(len(value)), value)
			}
		}
	}
	if rapid.Bool().Draw(t, "trailer") {
		parts = append(parts, int16(-1))
	}
	data := binaryData(parts...)
	if odd("more") {
		data += "\x00"
	}
	if odd("less") {
		data = data[:rapid.IntRange(0, len(data)).Draw(t, "rest")]
	}
	return data
}
