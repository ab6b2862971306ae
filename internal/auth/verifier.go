package auth

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// DefaultIterations is how often PostgreSQL hashes a password unless scram_iterations says otherwise.
const DefaultIterations = 4096

// maxIterations bounds what a password is hashed, here or because a server asks for it: about a third of a second.
const maxIterations = 1_000_000

const (
	saltBytes = 16
	keyBytes  = sha256.Size
)

// Verifier is what a server keeps of a password: enough to check a proof, not enough to make one.
type Verifier struct {
	Iterations                 int
	Salt, StoredKey, ServerKey []byte

	// mock marks one that belongs to nobody, and that no proof satisfies.
	mock bool
}

// errNotVerifier does not repeat what was given: it may well be the password itself.
var errNotVerifier = errors.New("not a SCRAM-SHA-256 verifier: it has the form SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>")

// ParseVerifier reads the form that PostgreSQL keeps in pg_authid.rolpassword.
func ParseVerifier(text string) (*Verifier, error) {
	parts := strings.Split(text, "$")
	if len(parts) != 3 || parts[0] != mechanismPlain {
		return nil, errNotVerifier
	}
	iterationsText, saltText, found := strings.Cut(parts[1], ":")
	storedText, serverText, foundKeys := strings.Cut(parts[2], ":")
	iterations, err := strconv.ParseUint(iterationsText, 10, 31)
	if !found || !foundKeys || err != nil || iterations == 0 {
		return nil, errNotVerifier
	}
	salt, saltErr := decode(saltText)
	stored, storedErr := decode(storedText)
	server, serverErr := decode(serverText)
	if errors.Join(saltErr, storedErr, serverErr) != nil || len(salt) == 0 || len(stored) != keyBytes || len(server) != keyBytes {
		return nil, errNotVerifier
	}
	return &Verifier{Iterations: int(iterations), Salt: salt, StoredKey: stored, ServerKey: server}, nil
}

// String returns the form that ParseVerifier reads, and that ALTER ROLE … PASSWORD takes.
func (v *Verifier) String() string {
	return fmt.Sprintf("%s$%d:%s$%s:%s", mechanismPlain, v.Iterations, encode(v.Salt), encode(v.StoredKey), encode(v.ServerKey))
}

// NewVerifier makes a verifier of a password, with a salt of its own. No iterations mean DefaultIterations.
func NewVerifier(password string, iterations int) (*Verifier, error) {
	if iterations == 0 {
		iterations = DefaultIterations
	}
	if password == "" {
		return nil, errors.New("make a verifier: the password is empty")
	}
	if strings.ContainsRune(password, 0) {
		return nil, errors.New("make a verifier: no client can send a password that holds a zero byte")
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	keys, err := deriveKeys(password, salt, iterations)
	if err != nil {
		return nil, fmt.Errorf("make a verifier: %w", err)
	}
	return &Verifier{Iterations: iterations, Salt: salt, StoredKey: hash(keys.ClientKey), ServerKey: keys.ServerKey}, nil
}

// MockVerifier returns a verifier for a user that has none. It is always the same for one user and one secret, as a real
// one would be, and no password satisfies it. Routers that share the secret show the same salt.
func MockVerifier(user string, secret []byte) *Verifier {
	part := func(label string) []byte { return mac(secret, label+user) }
	return &Verifier{
		Iterations: DefaultIterations, Salt: part("salt ")[:saltBytes], StoredKey: part("stored key "), ServerKey: part("server key "), mock: true,
	}
}

// deriveKeys hashes a password, which takes as long as the iterations make it.
func deriveKeys(password string, salt []byte, iterations int) (*Keys, error) {
	if iterations < 1 || iterations > maxIterations {
		return nil, fmt.Errorf("%d iterations are not between 1 and %d", iterations, maxIterations)
	}
	salted, err := pbkdf2.Key(sha256.New, prepare(password), salt, iterations, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("hash the password: %w", err)
	}
	return &Keys{Iterations: iterations, Salt: salt, ClientKey: mac(salted, "Client Key"), ServerKey: mac(salted, "Server Key")}, nil
}

func mac(key []byte, message string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message))
	return h.Sum(nil)
}

func hash(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

func xor(a, b []byte) []byte {
	out := make([]byte, len(a))
	subtle.XORBytes(out, a, b)
	return out
}

func encode(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// decode takes strict base64 alone: Go's own decoder passes over line breaks.
func decode(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, base64.CorruptInputError(0)
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}
