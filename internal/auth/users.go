package auth

import (
	"context"
	"errors"
	"time"
)

// ErrNoUser says that there is no such user.
var ErrNoUser = errors.New("no such user")

// User is what is known of a user. It is not changed once made.
type User struct {
	Name string
	// Verifier is nil for a user without a password.
	Verifier *Verifier
	// ValidUntil is when the password ceases to count; zero: never.
	ValidUntil time.Time
	// CanLogin is false for a role that is a group.
	CanLogin bool
}

// Users finds users. Lookup returns ErrNoUser for one that does not exist; any other error means that nobody knows.
type Users interface {
	Lookup(ctx context.Context, user string) (*User, error)
}

// VerifierFor returns the verifier to hold a client's proof against: the user's, or a mock if there is no such user (nil),
// or it has no password, or its password's time is over. So all take the same steps, and only one can end well.
func VerifierFor(name string, user *User, secret []byte, now time.Time) *Verifier {
	mock := MockVerifier(name, secret) // made in any case: it must not show in the time whether it was needed
	if user == nil || user.Verifier == nil || !user.ValidUntil.IsZero() && !now.Before(user.ValidUntil) {
		return mock
	}
	return user.Verifier
}
