package auth

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cleavedb/cleave/internal/pgerr"
)

const ruleText = `
- {users: [mallory], method: reject}
- {connection: tls, users: [robot], method: cert}
- {addresses: [loopback], databases: [app, "odd name"], method: trust}
- {connection: tls, addresses: [10.0.0.0/8, "2001:db8::/32", "::ffff:192.0.2.0/120"], method: scram-sha-256}
- {connection: plain, addresses: [10.1.2.3], users: [Alice, "all users"], method: scram-sha-256}
- {addresses: [all, 192.0.2.1], users: [all, x], databases: [all], method: trust, connection: any}
`

func TestTheFirstRuleThatMatchesCounts(t *testing.T) {
	var specs []RuleSpec
	if err := yaml.UnmarshalWithOptions([]byte(ruleText), &specs, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	all := must[Rules](t)(ParseRules(specs))
	rules := all[:len(all)-1] // the last one is for everybody
	const nobody = -1
	for _, c := range []struct {
		address  string
		tls      bool
		user     string
		database string
		want     int
	}{
		{"127.0.0.1", false, "mallory", "app", 0},
		{"10.0.0.1", true, "robot", "x", 1},
		{"10.0.0.1", false, "robot", "x", nobody},
		{"127.9.9.9", false, "alice", "app", 2},
		{"::1", true, "alice", "odd name", 2},
		{"::ffff:127.0.0.1", false, "alice", "app", 2},
		{"::2", false, "alice", "app", nobody},
		{"127.0.0.1", false, "alice", "App", nobody},
		{"10.255.255.255", true, "alice", "app", 3},
		{"11.0.0.0", true, "alice", "app", nobody},
		{"2001:db8::1%eth0", true, "alice", "app", 3},
		{"2001:db9::1", true, "alice", "app", nobody},
		{"192.0.2.255", true, "alice", "app", 3},
		{"::ffff:192.0.2.7", true, "alice", "app", 3},
		{"192.0.3.0", true, "alice", "app", nobody},
		{"10.1.2.3", false, "Alice", "app", 4},
		{"10.1.2.3", false, "all users", "app", 4},
		{"10.1.2.3", false, "alice", "app", nobody},
		{"10.1.2.4", false, "Alice", "app", nobody},
		{"", false, "mallory", "app", 0},
		{"", false, "alice", "app", nobody},
	} {
		a := Attempt{TLS: c.tls, User: c.user, Database: c.database}
		if c.address != "" {
			a.Address = netip.MustParseAddr(c.address)
		}
		rule, place, found := rules.Match(a)
		if found != (c.want != nobody) || found && (place != c.want || rule.Method != rules[c.want].Method) {
			t.Errorf("%s: rule %d, %v; want %d", a, place, found, c.want)
		}
		if _, place, found := all.Match(a); !found || c.want == nobody && place != len(rules) {
			t.Errorf("%s: the last rule does not match", a)
		}
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	for want, spec := range map[string]RuleSpec{
		"method: it is missing":             {},
		`"md5" is not one of`:               {Method: "md5"},
		`"ssl" is not one of`:               {Method: "trust", Connection: "ssl"},
		"write connection: tls":             {Method: "cert"},
		"only TLS has":                      {Method: "cert", Connection: "plain"},
		"list the users by name":            {Method: "trust", Users: []string{"+admins"}},
		"patterns and files":                {Method: "trust", Users: []string{"/^a"}},
		`"@users"`:                          {Method: "trust", Users: []string{"@users"}},
		"databases: a name is empty":        {Method: "trust", Databases: []string{"a", ""}},
		`databases: "sameuser"`:             {Method: "trust", Databases: []string{"sameuser"}},
		"names of hosts are not looked up":  {Method: "trust", Addresses: []string{"db.example"}},
		"write 10.0.0.0/8":                  {Method: "trust", Addresses: []string{"10.1.2.3/8"}},
		"not an address":                    {Method: "trust", Addresses: []string{"all", "10.0.0.0/33"}},
		"write 10.0.0.0/8, or the address ": {Method: "trust", Addresses: []string{"::ffff:10.1.0.0/104"}},
	} {
		_, err := ParseRules([]RuleSpec{{Method: "trust"}, spec})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "rule 2: ") {
			t.Errorf("%+v: %v, want %q", spec, err, want)
		}
	}
	if _, err := ParseRules([]RuleSpec{{}, {Method: "trust"}, {Method: "md5"}}); err == nil || !strings.Contains(err.Error(), "rule 1") || !strings.Contains(err.Error(), "rule 3") {
		t.Errorf("not all mistakes are told: %v", err)
	}
	if _, _, found := (Rules{}).Match(Attempt{}); found {
		t.Error("no rules let somebody in")
	}
}

func TestRefusalsNameTheClient(t *testing.T) {
	a := Attempt{Address: netip.MustParseAddr("::ffff:192.0.2.1"), User: "u", Database: "d"}
	expectError(t, NoRule(a), pgerr.InvalidAuthorization, `no rule of auth.rules lets host "192.0.2.1", user "u", database "d", no encryption in`)
	a.TLS = true
	expectError(t, Rejected(a), pgerr.InvalidAuthorization, `rejects host "192.0.2.1", user "u", database "d", TLS encryption`)
	expectError(t, NoRule(Attempt{}), pgerr.InvalidAuthorization, `host "[local]"`)
	expectError(t, CertificateFailed("u"), pgerr.InvalidAuthorization, `certificate authentication failed for user "u"`)
	expectError(t, LoginDenied("u"), pgerr.InvalidAuthorization, `role "u" is not permitted to log in`)
}
