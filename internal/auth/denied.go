package auth

import (
	"fmt"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// PasswordFailed is the one answer to every login with a password that fails.
func PasswordFailed(user string) *pgerr.Error {
	return pgerr.Fatal(pgerr.InvalidPassword, `password authentication failed for user "%s"`, user)
}

// CertificateFailed is the answer to a client whose certificate is missing or another user's.
func CertificateFailed(user string) *pgerr.Error {
	return pgerr.Fatal(pgerr.InvalidAuthorization, `certificate authentication failed for user "%s"`, user).
		WithHint("The rule asks for a certificate whose common name is the user's name, signed by an authority of the router's client CA file.")
}

// LoginDenied is the answer to a user that has proved who it is and may not log in.
func LoginDenied(user string) *pgerr.Error {
	return pgerr.Fatal(pgerr.InvalidAuthorization, `role "%s" is not permitted to log in`, user)
}

// NoRule is the answer to a client that no rule is for.
func NoRule(a Attempt) *pgerr.Error {
	return pgerr.Fatal(pgerr.InvalidAuthorization, "no rule of auth.rules lets %s in", a)
}

// Rejected is the answer to a client that a rule rejects.
func Rejected(a Attempt) *pgerr.Error {
	return pgerr.Fatal(pgerr.InvalidAuthorization, "a rule of auth.rules rejects %s", a)
}

// String names it as PostgreSQL names clients in errors.
func (a Attempt) String() string {
	host, encryption := "[local]", "no encryption"
	if a.Address.IsValid() {
		host = a.Address.Unmap().String()
	}
	if a.TLS {
		encryption = "TLS encryption"
	}
	return fmt.Sprintf(`host "%s", user "%s", database "%s", %s`, host, a.User, a.Database, encryption)
}
