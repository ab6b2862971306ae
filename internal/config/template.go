package config

import (
	"bytes"
	"fmt"
	"strings"
)

const templateHead = `# Configuration of one Cleave process: 'cleave serve'.
#
# Every field is here, commented out: remove the # before its name to set it. What is shown is the
# default, or an example where it says that there is none. An environment variable, named with each,
# overrides the file. Unknown fields are refused: 'cleave config check' tells, and
# 'cleave config show' prints what is in effect and where it came from.
#
# No secret stands in this file: a password or token is referred to as {file: /path} or {env: NAME}.
`

// Template returns a first file: every field with its sentence, commented out, so that it means the same as no file.
func Template() []byte {
	var out bytes.Buffer
	out.WriteString(templateHead)
	for _, e := range schema {
		indent := strings.Repeat("  ", e.depth)
		out.WriteByte('\n')
		comment(&out, indent, e.Doc)
		if e.section {
			fmt.Fprintf(&out, "%s%s:\n", indent, e.name())
			continue
		}
		comment(&out, indent, fmt.Sprintf("Default: %s. Variable: %s.", defaultOrNone(e.Field), e.Env))
		fmt.Fprintf(&out, "%s#%s: %s\n", indent, e.name(), e.sample())
	}
	return out.Bytes()
}

func defaultOrNone(f Field) string {
	if f.Default == "" {
		return "none"
	}
	return f.Default
}

// sample is the value that the template shows.
func (e entry) sample() string {
	if e.Example != "" {
		return e.Example
	}
	if _, list := e.in(new(Config)).(*[]string); list {
		return "[" + strings.ReplaceAll(e.Default, ",", ", ") + "]"
	}
	return e.Default
}

// comment writes text as comment lines of a readable width.
func comment(out *bytes.Buffer, indent, text string) {
	const width = 100
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			fmt.Fprintln(out, line)
			line = indent + "#"
		}
		line += " " + word
	}
	fmt.Fprintln(out, line)
}
