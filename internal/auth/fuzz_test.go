package auth

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// checkRefused wants what clients get to be well formed: an error of theirs, and nothing besides.
func checkRefused(t *testing.T, err error) {
	t.Helper()
	var failure *pgerr.Error
	if !errors.As(err, &failure) || failure.Severity != pgerr.SeverityFatal || len(failure.Code) != 5 || failure.Message == "" {
		t.Fatalf("%#v is not an error for clients", err)
	}
}

func FuzzServer(f *testing.F) {
	f.Add(mechanismPlain, []byte(exampleClientFirst), []byte(exampleClientFinal))
	f.Add(mechanismPlus, []byte(headerBound+"n=,r=a"), []byte("c=cA==,r=a,p="))
	f.Add(mechanismPlain, []byte("y,,n=,r=,,"), []byte(",,p=,"))
	v := exampleVerifier(f)
	f.Fuzz(func(t *testing.T, mechanism string, first, final []byte) {
		for _, binding := range [][]byte{nil, []byte("hash")} {
			s := NewServer("u", v, binding)
			reply, err := s.First(mechanism, first)
			if err != nil {
				checkRefused(t, err)
			} else if !strings.HasPrefix(string(reply), "r=") {
				t.Fatalf("%q is answered with %q", first, reply)
			}
			// Our nonce is new each time, so no message that was thought of before can be right.
			_, _, err = s.Final(final)
			checkRefused(t, err)
		}
	})
}

func FuzzClient(f *testing.F) {
	f.Add([]byte(exampleServerFirst), []byte(exampleServerFinal))
	f.Add([]byte("r=,s=,i="), []byte("e=x"))
	v := exampleVerifier(f)
	keys := &Keys{Iterations: v.Iterations, Salt: v.Salt, ClientKey: make([]byte, keyBytes), ServerKey: v.ServerKey}
	f.Fuzz(func(t *testing.T, first, final []byte) {
		c := exampleClient(Secret{Keys: keys})
		reply, err := c.Step(first)
		if err == nil && !strings.HasPrefix(string(reply), "c=biws,r="+exampleClientNonce) {
			t.Fatalf("%q is answered with %q", first, reply)
		}
		if verified := c.Verify(final); err != nil && verified == nil {
			t.Fatalf("%q is believed after %v", final, err)
		}
	})
}

func FuzzParseVerifier(f *testing.F) {
	f.Add(exampleVerifier(f).String())
	f.Add("SCRAM-SHA-256$1:$:")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseVerifier(text)
		if err != nil {
			return
		}
		again, err := ParseVerifier(v.String())
		if err != nil || again.String() != v.String() {
			t.Fatalf("%q becomes %q, %v", text, v, err)
		}
	})
}

func FuzzParseUsers(f *testing.F) {
	f.Add("\"a\" \"" + exampleVerifier(f).String() + "\" ; comment\n# another\n\"b\"\"c\" \"\"\r\n")
	f.Add(`"`)
	f.Fuzz(func(t *testing.T, content string) {
		users, err := parseUsers(content)
		if err != nil {
			return
		}
		for name, user := range users {
			if name == "" || user.Name != name || !utf8.ValidString(name) {
				t.Fatalf("%q has the user %q as %q", content, user.Name, name)
			}
		}
	})
}

func FuzzParseRules(f *testing.F) {
	f.Add("tls", "10.0.0.0/8", "a", "b", "cert")
	f.Add("", "::ffff:1.2.3.4/100", "+a", "", "trust")
	f.Fuzz(func(t *testing.T, connection, address, user, database, method string) {
		rules, err := ParseRules([]RuleSpec{{connection, []string{address}, []string{user}, []string{database}, method}})
		if err != nil {
			return
		}
		rule := rules[0]
		a := Attempt{TLS: rule.Connection == ConnectionTLS, User: user, Database: database}
		if len(rule.Addresses) > 0 {
			a.Address = rule.Addresses[0].Addr()
		}
		if _, _, found := rules.Match(a); !found {
			t.Fatalf("%+v does not match the client that it names, %s", rule, a)
		}
	})
}

func FuzzPrepare(f *testing.F) {
	f.Add("ª\u00ad\u200b\ufeffשa")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, password string) {
		if prepared := prepare(password); prepared == "" && password != "" {
			t.Fatalf("%q becomes empty", password)
		}
	})
}
