package auth

import (
	"bytes"
	"crypto/hmac"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Client is the exchange with one shard that we log in to: Mechanism, First, Step, Verify, each once.
type Client struct {
	user    string
	secret  Secret
	binding []byte
	nonce   string

	header    string
	bare      string // our first message without its header
	signature []byte // what the server must show; nil until it may
}

// NewClient returns an exchange for the user. The binding is what [PeerBinding] gives for the connection, nil without TLS.
func NewClient(user string, secret Secret, binding []byte) *Client {
	return &Client{user: user, secret: secret, binding: binding, nonce: newNonce(), header: headerNone}
}

// Mechanism chooses among what the server offers, channel binding first.
func (c *Client) Mechanism(offered []string) (string, error) {
	switch {
	case c.binding != nil && slices.Contains(offered, mechanismPlus):
		c.header = headerBound
		return mechanismPlus, nil
	case !slices.Contains(offered, mechanismPlain):
		return "", fmt.Errorf("log in as %q: the server offers %s, and only %s is spoken here", c.user, strings.Join(offered, ", "), mechanismPlain)
	case c.binding != nil:
		c.header = headerUnoffered // a server that did offer it learns here that somebody took the offer away
	}
	return mechanismPlain, nil
}

// First returns the first message. It leaves the user's name out: the server has it from the start of the connection.
func (c *Client) First() []byte {
	c.bare = "n=,r=" + c.nonce
	return []byte(c.header + c.bare)
}

// Step takes the server's first message and returns the proof.
func (c *Client) Step(message []byte) ([]byte, error) {
	first, err := parseServerFirst(message)
	if err != nil {
		return nil, fmt.Errorf("log in as %q: read the server's first message: %w", c.user, err)
	}
	// One that adds nothing of its own could play back an old exchange.
	if len(first.nonce) <= len(c.nonce) || !strings.HasPrefix(first.nonce, c.nonce) {
		return nil, fmt.Errorf("log in as %q: the server's nonce does not go on from ours", c.user)
	}
	keys, err := c.keys(first)
	if err != nil {
		return nil, err
	}
	bound := []byte(c.header)
	if c.header == headerBound {
		bound = append(bound, c.binding...)
	}
	withoutProof := "c=" + encode(bound) + ",r=" + first.nonce
	toSign := c.bare + "," + string(message) + "," + withoutProof
	proof := xor(keys.ClientKey, mac(hash(keys.ClientKey), toSign))
	c.signature = mac(keys.ServerKey, toSign)
	return []byte(withoutProof + ",p=" + encode(proof)), nil
}

// keys returns those that fit the server's verifier.
func (c *Client) keys(first serverFirst) (*Keys, error) {
	if k := c.secret.Keys; k != nil {
		if k.Iterations != first.iterations || !bytes.Equal(k.Salt, first.salt) {
			return nil, otherVerifier(c.user)
		}
		return k, nil
	}
	if c.secret.Password == "" {
		return nil, fmt.Errorf("log in as %q: the server asks for a password, and there is none", c.user)
	}
	keys, err := deriveKeys(c.secret.Password, first.salt, first.iterations)
	if err != nil {
		return nil, fmt.Errorf("log in as %q: answer the server: %w", c.user, err)
	}
	return keys, nil
}

func otherVerifier(user string) *pgerr.Error {
	role := `"` + strings.ReplaceAll(user, `"`, `""`) + `"`
	return pgerr.Fatal(pgerr.InvalidAuthorization, "a shard has another SCRAM verifier for role %s", role).
		WithDetail("The router logs in to shards with what the client's own proof reveals, which fits one verifier: salt and iterations must be the same everywhere, even for the same password.").
		WithHint("Read rolpassword of this role from pg_authid on the shard that the router takes verifiers from, and run on the other: ALTER ROLE %s PASSWORD 'SCRAM-SHA-256$…' with that text.", role)
}

// Verify takes the server's last message: one that does not know the verifier is not the server that was meant. A
// server that says that all is well without having sent it must not be believed either.
func (c *Client) Verify(message []byte) error {
	signature, err := parseServerFinal(message)
	if err != nil {
		return fmt.Errorf("log in as %q: read the server's last message: %w", c.user, err)
	}
	if c.signature == nil || !hmac.Equal(signature, c.signature) {
		return fmt.Errorf("log in as %q: the server does not know this role's verifier, so it is not the one that was meant", c.user)
	}
	return nil
}
