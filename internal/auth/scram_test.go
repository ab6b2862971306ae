package auth

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// The example of RFC 7677, section 3.
const (
	exampleClientNonce = "rOprNGfwEbeRWgbNEkqO"
	exampleServerNonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
	exampleSalt        = "W22ZaJ0SNY7soEsUEjb6gQ=="
	exampleClientFirst = "n,,n=user,r=" + exampleClientNonce
	exampleServerFirst = "r=" + exampleClientNonce + exampleServerNonce + ",s=" + exampleSalt + ",i=4096"
	exampleClientFinal = "c=biws,r=" + exampleClientNonce + exampleServerNonce + ",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	exampleServerFinal = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
	examplePassword    = "pencil"
)

func exampleVerifier(t testing.TB) *Verifier {
	t.Helper()
	salt := must[[]byte](t)(decode(exampleSalt))
	keys := must[*Keys](t)(deriveKeys(examplePassword, salt, 4096))
	return &Verifier{Iterations: 4096, Salt: salt, StoredKey: hash(keys.ClientKey), ServerKey: keys.ServerKey}
}

// exampleServer has answered the example's first message.
func exampleServer(t testing.TB) *Server {
	t.Helper()
	s := NewServer("user", exampleVerifier(t), nil)
	s.nonce = exampleServerNonce
	if reply := must[[]byte](t)(s.First(mechanismPlain, []byte(exampleClientFirst))); string(reply) != exampleServerFirst {
		t.Fatalf("the server's first message is %s", reply)
	}
	return s
}

func exampleClient(secret Secret) *Client {
	c := NewClient("user", secret, nil)
	c.nonce = exampleClientNonce
	c.bare = strings.TrimPrefix(exampleClientFirst, headerNone)
	return c
}

func TestTheExampleOfTheStandard(t *testing.T) {
	reply, keys, err := exampleServer(t).Final([]byte(exampleClientFinal))
	if err != nil || string(reply) != exampleServerFinal {
		t.Fatalf("the server's final message is %s, %v", reply, err)
	}
	for name, secret := range map[string]Secret{"password": {Password: examplePassword}, "keys": {Keys: keys}} {
		c := exampleClient(secret)
		if proof := must[[]byte](t)(c.Step([]byte(exampleServerFirst))); string(proof) != exampleClientFinal {
			t.Errorf("%s: the client's final message is %s", name, proof)
		}
		if err := c.Verify([]byte(exampleServerFinal)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// exchange lets a client log in to a server.
func exchange(s *Server, c *Client) (*Keys, error) {
	mechanism, err := c.Mechanism(s.Mechanisms())
	if err != nil {
		return nil, err
	}
	first, err := s.First(mechanism, c.First())
	if err != nil {
		return nil, err
	}
	proof, err := c.Step(first)
	if err != nil {
		return nil, err
	}
	final, keys, err := s.Final(proof)
	if err != nil {
		return nil, err
	}
	return keys, c.Verify(final)
}

func TestKeysPassAProofOn(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("a pässword", 0))
	binding := []byte("a hash of a certificate")
	for name, bindings := range map[string][2][]byte{"plain": {nil, nil}, "bound": {binding, binding}, "client without TLS": {binding, nil}, "server without binding": {nil, binding}} {
		keys, err := exchange(NewServer("u", v, bindings[0]), NewClient("u", Secret{Password: "a pässword"}, bindings[1]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := exchange(NewServer("u", v, bindings[0]), NewClient("u", Secret{Keys: keys}, bindings[1]))
		if err != nil || !cmp.Equal(*again, *keys) {
			t.Errorf("%s: with keys: %v", name, err)
		}
	}
}

func TestAWrongSecretIsOneError(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("right", 1))
	wrongKeys := must[*Keys](t)(deriveKeys("wrong", v.Salt, v.Iterations))
	for name, secret := range map[string]Secret{"password": {Password: "wrong"}, "keys": {Keys: wrongKeys}} {
		keys, err := exchange(NewServer("u", v, nil), NewClient("u", secret, nil))
		if diff := cmp.Diff(PasswordFailed("u"), err); diff != "" || keys != nil {
			t.Errorf("%s: %s", name, diff)
		}
	}
	expectError(t, PasswordFailed("u"), pgerr.InvalidPassword, `password authentication failed for user "u"`)
}

func TestAServerThatDoesNotKnowTheVerifierIsNotBelieved(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("right", 1))
	impostor := *v
	impostor.ServerKey = bytes.Repeat([]byte{1}, keyBytes)
	if _, err := exchange(NewServer("u", &impostor, nil), NewClient("u", Secret{Password: "right"}, nil)); err == nil || !strings.Contains(err.Error(), "not the one that was meant") {
		t.Errorf("an impostor is believed: %v", err)
	}
	if err := NewClient("u", Secret{Password: "right"}, nil).Verify([]byte(exampleServerFinal)); err == nil {
		t.Error("a server that never asked is believed")
	}
}

func TestAMockLooksLikeAUserAndNeverLetsIn(t *testing.T) {
	secret := []byte("of the cluster")
	real := must[*Verifier](t)(NewVerifier("right", 0))
	user := &User{Name: "real", Verifier: real, CanLogin: true}
	now := time.Now()
	form := regexp.MustCompile(`^r=[!-+\--~]{48},s=[A-Za-z0-9+/]{22}==,i=4096$`)
	ask := func(v *Verifier) (answer, salt string) {
		c := NewClient("x", Secret{Password: "right"}, nil)
		reply := string(must[[]byte](t)(NewServer("x", v, nil).First(mechanismPlain, c.First())))
		return reply, strings.Split(reply, ",")[1]
	}
	for name, v := range map[string]*Verifier{
		"real": VerifierFor("real", user, secret, now), "nobody": VerifierFor("nobody", nil, secret, now),
		"no password": VerifierFor("bare", &User{Name: "bare"}, secret, now),
		"expired":     VerifierFor("late", &User{Name: "late", Verifier: real, ValidUntil: now}, secret, now),
	} {
		first, salt := ask(v)
		second, saltAgain := ask(v)
		if !form.MatchString(first) || salt != saltAgain || first == second {
			t.Errorf("%s shows itself: %s and %s", name, first, second)
		}
		_, err := exchange(NewServer("x", v, nil), NewClient("x", Secret{Password: "right"}, nil))
		if name == "real" && err != nil || name != "real" && !cmp.Equal(err, error(PasswordFailed("x"))) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v := VerifierFor("real", &User{Verifier: real, ValidUntil: now.Add(time.Second)}, secret, now); v != real {
		t.Error("a password whose time is not over does not count")
	}
	_, salt := ask(MockVerifier("a", secret))
	_, ofOther := ask(MockVerifier("b", secret))
	_, withOther := ask(MockVerifier("a", []byte("of another cluster")))
	if salt == ofOther || salt == withOther {
		t.Error("mocks share a salt")
	}
}

// TestAMockFailsEvenWithItsOwnKeys: whoever learns the secret that mocks are made with does not get in with it.
func TestAMockFailsEvenWithItsOwnKeys(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("right", 1))
	v.mock = true
	_, err := exchange(NewServer("u", v, nil), NewClient("u", Secret{Password: "right"}, nil))
	expectError(t, err, pgerr.InvalidPassword)
}

func TestFirstMessagesThatAreRefused(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("right", 1))
	binding := []byte("hash")
	for _, c := range []struct {
		name, mechanism, message string
		binding                  []byte
		code                     string
	}{
		{"unknown mechanism", "SCRAM-SHA-1", "n,,n=,r=abc", nil, pgerr.ProtocolViolation},
		{"binding that was not offered", mechanismPlus, headerBound + "n=,r=abc", nil, pgerr.ProtocolViolation},
		{"offer taken away", mechanismPlain, "y,,n=,r=abc", binding, pgerr.InvalidAuthorization},
		{"bound, but not by name", mechanismPlain, headerBound + "n=,r=abc", binding, pgerr.ProtocolViolation},
		{"bound by name only", mechanismPlus, "n,,n=,r=abc", binding, pgerr.ProtocolViolation},
		{"bound by name and could", mechanismPlus, "y,,n=,r=abc", binding, pgerr.ProtocolViolation},
		{"another binding", mechanismPlus, "p=tls-unique,,n=,r=abc", binding, pgerr.ProtocolViolation},
		{"unknown flag", mechanismPlain, "x,,n=,r=abc", nil, pgerr.ProtocolViolation},
		{"no flag", mechanismPlain, ",,n=,r=abc", nil, pgerr.ProtocolViolation},
		{"identity", mechanismPlain, "n,a=other,n=,r=abc", nil, pgerr.FeatureNotSupported},
		{"junk for identity", mechanismPlain, "n,b,n=,r=abc", nil, pgerr.ProtocolViolation},
		{"mandatory extension", mechanismPlain, "n,,m=x,n=,r=abc", nil, pgerr.FeatureNotSupported},
		{"no name", mechanismPlain, "n,,r=abc", nil, pgerr.ProtocolViolation},
		{"no nonce", mechanismPlain, "n,,n=user", nil, pgerr.ProtocolViolation},
		{"empty nonce", mechanismPlain, "n,,n=,r=", nil, pgerr.ProtocolViolation},
		{"odd nonce", mechanismPlain, "n,,n=,r=a\x7f", nil, pgerr.ProtocolViolation},
		{"zero byte", mechanismPlain, "n,,n=,r=abc\x00", nil, pgerr.ProtocolViolation},
		{"junk at the end", mechanismPlain, "n,,n=,r=abc,", nil, pgerr.ProtocolViolation},
		{"empty", mechanismPlain, "", nil, pgerr.ProtocolViolation},
		{"header only", mechanismPlain, "n,", nil, pgerr.ProtocolViolation},
		{"long", mechanismPlain, "n,,n=,r=" + strings.Repeat("a", maxMessage), nil, pgerr.ProtocolViolation},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewServer("u", v, c.binding)
			reply, err := s.First(c.mechanism, []byte(c.message))
			expectError(t, err, c.code)
			if reply != nil {
				t.Errorf("it answers %s", reply)
			}
			_, err = s.First(mechanismPlain, []byte("n,,n=,r=abc"))
			expectError(t, err, pgerr.ProtocolViolation, "out of turn")
		})
	}
	for _, accepted := range []string{"n,,n=,r=abc", "y,,n=user,r=abc", "n,,n=,r=abc,x=1,Y="} {
		if _, err := NewServer("u", v, nil).First(mechanismPlain, []byte(accepted)); err != nil {
			t.Errorf("%s: %v", accepted, err)
		}
	}
}

func beforeProof(message string) string {
	before, _, _ := strings.Cut(message, ",p=")
	return before
}

func TestFinalMessagesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(string) string
		code   string
	}{
		"empty":           {func(string) string { return "" }, pgerr.ProtocolViolation},
		"no comma":        {func(string) string { return "c=biws" }, pgerr.ProtocolViolation},
		"no proof":        {beforeProof, pgerr.ProtocolViolation},
		"short proof":     {func(m string) string { return beforeProof(m) + ",p=YWJj" }, pgerr.ProtocolViolation},
		"proof in lines":  {func(m string) string { return strings.Replace(m, "p=d", "p=\nd", 1) }, pgerr.ProtocolViolation},
		"loose proof":     {func(m string) string { return strings.Replace(m, "VQ=", "VR=", 1) }, pgerr.ProtocolViolation},
		"not last":        {func(m string) string { return m + ",x=1" }, pgerr.ProtocolViolation},
		"only proof":      {func(m string) string { return strings.TrimPrefix(m, beforeProof(m)+",") }, pgerr.ProtocolViolation},
		"no nonce":        {func(m string) string { return "c=biws" + strings.TrimPrefix(m, beforeProof(m)) }, pgerr.ProtocolViolation},
		"another nonce":   {func(m string) string { return strings.Replace(m, "k0,", "k1,", 1) }, pgerr.ProtocolViolation},
		"nonce cut":       {func(m string) string { return strings.Replace(m, exampleServerNonce, "", 1) }, pgerr.ProtocolViolation},
		"another header":  {func(m string) string { return strings.Replace(m, "biws", "eSws", 1) }, pgerr.ProtocolViolation},
		"junk":            {func(m string) string { return strings.Replace(m, ",p=", ",junk,p=", 1) }, pgerr.ProtocolViolation},
		"mandatory":       {func(m string) string { return strings.Replace(m, ",p=", ",m=x,p=", 1) }, pgerr.FeatureNotSupported},
		"another proof":   {func(m string) string { return strings.Replace(m, "p=d", "p=e", 1) }, pgerr.InvalidPassword},
		"unsigned change": {func(m string) string { return strings.Replace(m, ",p=", ",x=1,p=", 1) }, pgerr.InvalidPassword},
	} {
		t.Run(name, func(t *testing.T) {
			s := exampleServer(t)
			reply, keys, err := s.Final([]byte(c.change(exampleClientFinal)))
			expectError(t, err, c.code)
			if reply != nil || keys != nil {
				t.Errorf("it answers %s", reply)
			}
			_, _, err = s.Final([]byte(exampleClientFinal)) // one try for each exchange
			expectError(t, err, pgerr.ProtocolViolation, "out of turn")
		})
	}
	_, _, err := NewServer("u", exampleVerifier(t), nil).Final([]byte(exampleClientFinal))
	expectError(t, err, pgerr.ProtocolViolation, "out of turn")
}

func TestAnotherCertificateIsNoticed(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("right", 1))
	_, err := exchange(NewServer("u", v, []byte("ours")), NewClient("u", Secret{Password: "right"}, []byte("of somebody in between")))
	expectError(t, err, pgerr.InvalidAuthorization, "channel binding check failed")
	// Somebody in between who leaves binding out of the offer is noticed too.
	c := NewClient("u", Secret{Password: "right"}, []byte("ours"))
	mechanism := must[string](t)(c.Mechanism([]string{mechanismPlain}))
	_, err = NewServer("u", v, []byte("ours")).First(mechanism, c.First())
	expectError(t, err, pgerr.InvalidAuthorization, "negotiation")
}

func TestTheClientChoosesBindingWhereItCan(t *testing.T) {
	both, plain := []string{mechanismPlus, mechanismPlain}, []string{mechanismPlain}
	binding := []byte("hash")
	for _, c := range []struct {
		offered   []string
		binding   []byte
		mechanism string
		header    string
	}{
		{both, binding, mechanismPlus, headerBound}, {both, nil, mechanismPlain, headerNone},
		{plain, binding, mechanismPlain, headerUnoffered}, {plain, nil, mechanismPlain, headerNone},
		{[]string{mechanismPlus}, nil, "", ""}, {[]string{"SCRAM-SHA-1", "OAUTHBEARER"}, binding, "", ""}, {nil, nil, "", ""},
	} {
		client := NewClient("u", Secret{}, c.binding)
		mechanism, err := client.Mechanism(c.offered)
		if mechanism != c.mechanism || (err == nil) != (c.mechanism != "") || !strings.HasPrefix(string(client.First()), c.header) {
			t.Errorf("%+v: %q, %v, %s", c, mechanism, err, client.First())
		}
	}
	if offer := NewServer("u", nil, binding).Mechanisms(); !slices.Equal(offer, both) {
		t.Errorf("with TLS the server offers %q", offer)
	}
}

func TestServersAnswersThatAreRefused(t *testing.T) {
	good := exampleServerFirst
	for name, message := range map[string]string{
		"empty": "", "nothing of its own": strings.Replace(good, exampleServerNonce, "", 1), "another nonce": strings.Replace(good, "rO", "xO", 1),
		"no salt": "r=" + exampleClientNonce + "x,i=1", "empty salt": strings.Replace(good, exampleSalt, "", 1), "odd salt": strings.Replace(good, exampleSalt, "!", 1),
		"no iterations": strings.Replace(good, "i=4096", "i=", 1), "zero iterations": strings.Replace(good, "i=4096", "i=0", 1),
		"negative": strings.Replace(good, "4096", "-1", 1), "one too many": strings.Replace(good, "4096", strconv.Itoa(maxIterations+1), 1),
		"far too many": strings.Replace(good, "4096", "99999999999999999999", 1), "extension": good + ",m=1", "junk": good + ",",
	} {
		if reply, err := exampleClient(Secret{Password: examplePassword}).Step([]byte(message)); err == nil {
			t.Errorf("%s: it answers %s", name, reply)
		}
	}
	for name, message := range map[string]string{"empty": "", "error": "e=invalid-proof", "short": "v=YWJj", "another": strings.Replace(exampleServerFinal, "6r", "7r", 1), "no attribute": "6rri"} {
		c := exampleClient(Secret{Password: examplePassword})
		must[[]byte](t)(c.Step([]byte(good)))
		if err := c.Verify([]byte(message)); err == nil {
			t.Errorf("%s is believed", name)
		}
	}
	if _, err := exampleClient(Secret{}).Step([]byte(good)); err == nil {
		t.Error("it answers without a secret")
	}
}

func TestKeysForAnotherVerifierSayWhatToDo(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("same", 1))
	keys, err := exchange(NewServer(`o"dd`, v, nil), NewClient(`o"dd`, Secret{Password: "same"}, nil))
	if err != nil {
		t.Fatal(err)
	}
	otherSalt := must[*Verifier](t)(NewVerifier("same", 1))
	otherIterations := *v
	otherIterations.Iterations = 2
	for _, other := range []*Verifier{otherSalt, &otherIterations} {
		_, err = exchange(NewServer(`o"dd`, other, nil), NewClient(`o"dd`, Secret{Keys: keys}, nil))
		expectError(t, err, pgerr.InvalidAuthorization, "another SCRAM verifier", `ALTER ROLE "o""dd" PASSWORD 'SCRAM-SHA-256$…'`, "pg_authid")
	}
}

func TestVerifiersInText(t *testing.T) {
	v := must[*Verifier](t)(NewVerifier("secret", 7))
	if again := must[*Verifier](t)(ParseVerifier(v.String())); !cmp.Equal(again, v, cmp.AllowUnexported(Verifier{})) {
		t.Errorf("%s becomes %s", v, again)
	}
	salt, stored, server := encode(v.Salt), encode(v.StoredKey), encode(v.ServerKey)
	for _, text := range []string{
		"", "secret", "md5" + strings.Repeat("a", 32), "SCRAM-SHA-256$", "SCRAM-SHA-256$1:$:", "SCRAM-SHA-256$" + salt + "$" + stored + ":" + server,
		"SCRAM-SHA-1$1:" + salt + "$" + stored + ":" + server, "SCRAM-SHA-256$0:" + salt + "$" + stored + ":" + server,
		"SCRAM-SHA-256$-1:" + salt + "$" + stored + ":" + server, "SCRAM-SHA-256$2147483648:" + salt + "$" + stored + ":" + server,
		"SCRAM-SHA-256$1:" + salt + "$" + salt + ":" + server, "SCRAM-SHA-256$1:" + salt + "$" + stored + ":" + salt, "SCRAM-SHA-256$1:!$" + stored + ":" + server,
		v.String() + "$", v.String() + "\n", " " + v.String(),
	} {
		if _, err := ParseVerifier(text); err == nil {
			t.Errorf("%q is taken for a verifier", text)
		} else if text != "" && strings.Contains(err.Error(), text) && text != "SCRAM-SHA-256$" {
			t.Errorf("the error repeats %q", text)
		}
	}
	for name, make := range map[string]func() (*Verifier, error){
		"empty": func() (*Verifier, error) { return NewVerifier("", 0) }, "zero byte": func() (*Verifier, error) { return NewVerifier("a\x00b", 0) },
		"negative": func() (*Verifier, error) { return NewVerifier("a", -1) }, "too many": func() (*Verifier, error) { return NewVerifier("a", maxIterations+1) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: a verifier is made", name)
		}
	}
	if a, b := must[*Verifier](t)(NewVerifier("a", 1)), must[*Verifier](t)(NewVerifier("a", 1)); bytes.Equal(a.Salt, b.Salt) {
		t.Error("two verifiers have one salt")
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	keys := &Keys{Iterations: 1, Salt: []byte("salt"), ClientKey: []byte("client-key"), ServerKey: []byte("server-key")}
	secret := Secret{Password: "pass-word", Keys: keys}
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "keys", keys, "secret", secret, "pointer", &secret)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "keys", keys, "secret", secret, "in", []any{secret, keys})
	for _, value := range []any{keys, *keys, secret, &secret} {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d", value, value, value, value, value, value, value)
		out.Write(must[[]byte](t)(json.Marshal(value)))
	}
	for _, leak := range []string{"client-key", "server-key", "pass-word", encode(keys.ClientKey), encode(keys.ServerKey), hex.EncodeToString(keys.ClientKey), hex.EncodeToString([]byte("pass-word")), fmt.Sprintf("%d", keys.ClientKey)} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q is in %s", leak, out.String())
		}
	}
}
