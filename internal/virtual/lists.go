package virtual

import "strings"

// keyedTable is a table and its key's columns as they were written.
type keyedTable struct{ table, columns string }

// splitKeys takes a list such as 'users(id), messages(channel_id, bucket)' apart.
func splitKeys(list string) ([]keyedTable, bool) {
	parts, ok := splitOutside(list)
	if !ok || len(parts) == 0 {
		return nil, false
	}
	tables := make([]keyedTable, len(parts))
	for i, part := range parts {
		at := indexOutside(part, '(')
		if at <= 0 || !strings.HasSuffix(part, ")") {
			return nil, false
		}
		tables[i] = keyedTable{strings.TrimSpace(part[:at]), part[at+1 : len(part)-1]}
	}
	return tables, true
}

// splitOutside cuts at the commas that are neither in double quotes nor in parentheses. It says false if a part is empty, or quotes or
// parentheses do not fit together.
func splitOutside(list string) ([]string, bool) {
	if strings.TrimSpace(list) == "" {
		return nil, true
	}
	var parts []string
	quoted, depth, from := false, 0, 0
	for i := range len(list) {
		switch c := list[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts, from = append(parts, strings.TrimSpace(list[from:i])), i+1
		}
		if depth < 0 || depth > 1 {
			return nil, false
		}
	}
	parts = append(parts, strings.TrimSpace(list[from:]))
	for _, part := range parts {
		if part == "" {
			return nil, false
		}
	}
	return parts, !quoted && depth == 0
}

// indexOutside finds a character that is not in double quotes, -1 if there is none.
func indexOutside(text string, wanted byte) int {
	quoted := false
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == wanted && !quoted:
			return i
		}
	}
	return -1
}
