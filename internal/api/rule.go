package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
)

// RuleForms says how people write a rule.
const RuleForms = "KEYSPACE=LABEL:VALUE, KEYSPACE@LO:HI=LABEL:VALUE for a range, KEYSPACE#KEY=LABEL:VALUE for a pinned key, or a JSON object"

// ParseRule reads a rule as people write it, or as the API has it.
func ParseRule(text string) (r RebalanceRule, err error) {
	if strings.HasPrefix(text, "{") {
		if err := decodeStrictly(text, &r); err != nil {
			return r, fmt.Errorf("rule %q: %w", text, err)
		}
		return r, nil
	}
	wrong := fmt.Errorf("rule %q: write %s", text, RuleForms)
	at := strings.IndexAny(text, "@#=")
	if at <= 0 {
		return r, wrong
	}
	part, label := "", text[at+1:]
	if text[at] != '=' {
		equals := strings.LastIndex(text, "=") // a key may have one, too
		if equals < at {
			return r, wrong
		}
		part, label = text[at+1:equals], text[equals+1:]
	}
	r.Keyspace = text[:at]
	var both bool
	if r.Label, r.Value, both = strings.Cut(label, ":"); !both || r.Label == "" {
		return r, wrong
	}
	switch text[at] {
	case '@':
		bound, err := ParseRange(part)
		if err != nil {
			return r, fmt.Errorf("rule %q: %w", text, err)
		}
		r.From, r.To = bound.From, bound.To
	case '#':
		if r.Key, err = ParsePoint(part); err == nil && len(r.Key) == 0 {
			err = errors.New("it names no key")
		}
		if err != nil {
			return r, fmt.Errorf("rule %q: %w", text, err)
		}
	}
	return r, nil
}

// ParseRules reads several rules with semicolons between them, or a JSON list.
func ParseRules(text string) (rules []RebalanceRule, err error) {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		return rules, decodeStrictly(text, &rules)
	}
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		rule, err := ParseRule(part)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func decodeStrictly(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("it is no JSON of a rule: %w", err)
	}
	return nil
}

// String writes a rule as [ParseRule] reads it.
func (r RebalanceRule) String() string {
	label := "=" + r.Label + ":" + r.Value
	short := r.Keyspace + label
	switch {
	case len(r.Key) > 0:
		short = r.Keyspace + "#" + PointText(r.Key) + label
	case len(r.From)+len(r.To) > 0:
		short = r.Keyspace + "@" + PointText(r.From) + ":" + PointText(r.To) + label
	}
	read, err := ParseRule(short)
	exact, _ := json.Marshal(r) // of plain texts
	again, _ := json.Marshal(read)
	if err == nil && bytes.Equal(exact, again) {
		return short
	}
	return string(exact)
}

// PointText writes a point as [ParsePoint] and [ParseRange] read it: the value, or a JSON list of several, of one that could be taken for something else, or with characters that nobody sees.
func PointText(p []string) string {
	switch {
	case len(p) == 0:
		return ""
	case len(p) == 1 && p[0] != "" && !strings.ContainsAny(p[0], ":[") && topology.Point(p).String() == p[0]:
		return p[0]
	}
	list, _ := json.Marshal(p) // of plain texts
	return string(list)
}

// ParseRange reads LO:HI; either may be left out.
func ParseRange(text string) (r MoveRange, err error) {
	lo, hi, both := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		lo, hi, both = strings.Cut(text, "]:")
		lo += "]"
	}
	if !both {
		return r, errors.New("write LO:HI; either may be left out")
	}
	if r.From, err = ParsePoint(lo); err == nil {
		r.To, err = ParsePoint(hi)
	}
	return r, err
}
