package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Method is what a client must do to be let in.
type Method string

// Methods.
const (
	Trust       Method = "trust"         // nothing
	Scram       Method = "scram-sha-256" // prove that it knows the password
	Certificate Method = "cert"          // show a certificate with the user's name
	Reject      Method = "reject"        // it is not let in
)

var methods = []Method{Trust, Scram, Certificate, Reject}

// Kinds of connection that a rule is for.
const (
	ConnectionAny   = "any"
	ConnectionTLS   = "tls"
	ConnectionPlain = "plain"
)

// RuleSpec is a rule as it is written down.
type RuleSpec struct {
	// Connection is any, tls or plain. Default: any.
	Connection string `yaml:"connection"`
	// Addresses are addresses and prefixes such as 10.0.0.0/8, loopback, or all. Default: all.
	Addresses []string `yaml:"addresses"`
	// Users are names of users, exactly as they are, or all. Default: all.
	Users []string `yaml:"users"`
	// Databases are names of databases, exactly as they are, or all. Default: all.
	Databases []string `yaml:"databases"`
	// Method is trust, scram-sha-256, cert or reject. No default.
	Method string `yaml:"method"`
}

// Rule says what is asked of the clients that it is for. Where a list is empty, it is for all.
type Rule struct {
	Connection string
	Addresses  []netip.Prefix
	Users      []string
	Databases  []string
	Method     Method
}

// Rules are looked at in their order.
type Rules []Rule

// Attempt is a client that wants to log in.
type Attempt struct {
	// Address is where it comes from; the zero value, for a client on a Unix socket, is matched by rules for all
	// addresses only.
	Address netip.Addr
	// TLS tells whether the connection is encrypted.
	TLS bool
	// User and Database are what it asks for.
	User, Database string
}

// ParseRules reads rules; its error names each rule that is wrong by its number, from 1.
func ParseRules(specs []RuleSpec) (Rules, error) {
	rules := make(Rules, len(specs))
	var problems []error
	for i, spec := range specs {
		var err error
		if rules[i], err = spec.parse(); err != nil {
			problems = append(problems, fmt.Errorf("rule %d: %w", i+1, err))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return rules, nil
}

// all is how a rule says that it is for everybody.
const all = "all"

func (s RuleSpec) parse() (Rule, error) {
	rule := Rule{Connection: s.Connection, Method: Method(s.Method)}
	if rule.Connection == "" {
		rule.Connection = ConnectionAny
	}
	var err error
	if rule.Addresses, err = parseAddresses(s.Addresses); err != nil {
		return Rule{}, err
	}
	if rule.Users, err = parseNames("users", s.Users); err != nil {
		return Rule{}, err
	}
	if rule.Databases, err = parseNames("databases", s.Databases); err != nil {
		return Rule{}, err
	}
	return rule, rule.check()
}

func (r Rule) check() error {
	kinds := []string{ConnectionAny, ConnectionTLS, ConnectionPlain}
	switch {
	case !slices.Contains(kinds, r.Connection):
		return fmt.Errorf("connection: %q is not one of %s", r.Connection, strings.Join(kinds, ", "))
	case r.Method == "":
		return errors.New("method: it is missing")
	case !slices.Contains(methods, r.Method):
		return fmt.Errorf("method: %q is not one of trust, scram-sha-256, cert, reject", r.Method)
	case r.Method == Certificate && r.Connection != ConnectionTLS:
		return errors.New("method: cert asks for a certificate, which only TLS has: write connection: tls")
	}
	return nil
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// parseAddresses returns nil for all.
func parseAddresses(texts []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	everywhere := false
	for _, text := range texts {
		switch text {
		case all:
			everywhere = true
			continue
		case "loopback":
			prefixes = append(prefixes, loopback...)
			continue
		}
		prefix, err := parsePrefix(text)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, prefix)
	}
	if everywhere {
		return nil, nil
	}
	return prefixes, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		address = address.WithZone("").Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("addresses: %q is not an address, a prefix such as 10.0.0.0/8, loopback or all; names of hosts are not looked up", text)
	}
	const mappedBits = 96
	if prefix.Addr().Is4In6() && prefix.Bits() >= mappedBits {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mappedBits)
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("addresses: %q has bits beyond its prefix: write %s, or the address alone", text, prefix.Masked())
	}
	return prefix, nil
}

// parseNames returns nil for all. What pg_hba.conf means by a name's first character is refused rather than taken for a
// name, as a rule that matches nobody may be the one that was meant to reject.
func parseNames(field string, names []string) ([]string, error) {
	for _, name := range names {
		switch {
		case name == "":
			return nil, fmt.Errorf("%s: a name is empty", field)
		case name[0] == '+':
			return nil, fmt.Errorf("%s: %q: members of a role are not supported, as the router does not know them: list the users by name", field, name)
		case name[0] == '/' || name[0] == '@':
			return nil, fmt.Errorf("%s: %q: patterns and files are not supported: list the names", field, name)
		case field == "databases" && slices.Contains([]string{"sameuser", "samerole", "samegroup"}, name):
			return nil, fmt.Errorf("%s: %q is not supported: list the names", field, name)
		}
	}
	if slices.Contains(names, all) {
		return nil, nil
	}
	return slices.Clone(names), nil
}

// Match returns the first rule that is for the client, and its place from 0.
func (r Rules) Match(a Attempt) (rule Rule, place int, found bool) {
	a.Address = a.Address.Unmap().WithZone("") // a prefix holds no address that has a zone
	for i, rule := range r {
		if rule.matches(a) {
			return rule, i, true
		}
	}
	return Rule{}, 0, false
}

func (r Rule) matches(a Attempt) bool {
	if r.Connection == ConnectionTLS && !a.TLS || r.Connection == ConnectionPlain && a.TLS {
		return false
	}
	within := func(p netip.Prefix) bool { return p.Contains(a.Address) }
	return (len(r.Addresses) == 0 || slices.ContainsFunc(r.Addresses, within)) &&
		(len(r.Users) == 0 || slices.Contains(r.Users, a.User)) &&
		(len(r.Databases) == 0 || slices.Contains(r.Databases, a.Database))
}
