package auth

import (
	"fmt"
	"io"
	"log/slog"
)

// Keys are what a right proof reveals to the server that checks it. With them the router logs in to every shard whose
// verifier for the role has the same salt, iterations and password.
type Keys struct {
	Iterations                 int
	Salt, ClientKey, ServerKey []byte
}

// Secret is what a login to a shard is made with: a password, or the keys of a client that has logged in. Keys go first.
type Secret struct {
	Password string
	Keys     *Keys
}

// hidden is what is printed, logged and encoded in place of a secret.
const hidden = "(secret)"

// Format hides the keys, whatever the verb.
func (Keys) Format(to fmt.State, _ rune) { _, _ = io.WriteString(to, hidden) }

// LogValue hides the keys.
func (Keys) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the keys.
func (Keys) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Format hides the secret, whatever the verb.
func (Secret) Format(to fmt.State, _ rune) { _, _ = io.WriteString(to, hidden) }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
