package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// File is users and their verifiers in a file of lines such as
//
//	"alice" "SCRAM-SHA-256$4096:…"
//
// A quote in a name is doubled; an empty second field is a user without a password; comments begin with ; or #. It is read
// anew when it has changed.
type File struct{ users *reloaded[map[string]*User] }

// NewFile reads the file. Later a broken one is told to warn, which may be nil, and what was read before it stays.
func NewFile(path string, warn func(error)) (*File, error) {
	read := func() (map[string]*User, error) { return readUsers(path) }
	users, err := newReloaded([]string{path}, read, warn)
	if err != nil {
		return nil, err
	}
	return &File{users}, nil
}

// Lookup finds a user.
func (f *File) Lookup(_ context.Context, user string) (*User, error) {
	if found := f.users.current()[user]; found != nil {
		return found, nil
	}
	return nil, ErrNoUser
}

// maxFileBytes is room for a hundred thousand users.
const maxFileBytes = 32 << 20

func readUsers(path string) (map[string]*User, error) {
	// Looked at before it is opened: opening a pipe would wait for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the users: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("read the users: %s is not a regular file of at most %d bytes", path, maxFileBytes)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the users: %w", err)
	}
	users, err := parseUsers(string(content))
	if err != nil {
		return nil, fmt.Errorf("read the users of %s: %w", path, err)
	}
	return users, nil
}

// parseUsers never repeats a line in an error, as it may hold a password.
func parseUsers(content string) (map[string]*User, error) {
	users := map[string]*User{}
	number := 0
	for line := range strings.Lines(content) {
		number++
		user, err := parseUser(line)
		if err == nil && user != nil && users[user.Name] != nil {
			err = fmt.Errorf("user %q was there before", user.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if user != nil {
			users[user.Name] = user
		}
	}
	return users, nil
}

// parseUser returns nil for a line without a user.
func parseUser(line string) (*User, error) {
	line = skipToField(line)
	if line == "" {
		return nil, nil
	}
	name, rest, ok := cutField(line)
	if !ok {
		return nil, errNotUser
	}
	verifier, rest, ok := cutField(skipToField(rest))
	if !ok || skipToField(rest) != "" {
		return nil, errNotUser
	}
	if name == "" || !utf8.ValidString(name) {
		return nil, errors.New("a user's name is UTF-8, and not empty")
	}
	user := &User{Name: name, CanLogin: true}
	if verifier == "" {
		return user, nil
	}
	var err error
	if user.Verifier, err = ParseVerifier(verifier); err != nil {
		return nil, fmt.Errorf("user %q: %w", name, errNotStored)
	}
	return user, nil
}

var (
	errNotUser   = errors.New(`a line has the form "name" "verifier", both in double quotes`)
	errNotStored = errors.New("the second field is not a SCRAM-SHA-256 verifier; passwords and md5 hashes are not kept here: run cleave auth verifier to make one")
)

// skipToField passes over blanks, and over a comment to the end.
func skipToField(line string) string {
	line = strings.TrimSpace(line)
	if line != "" && (line[0] == ';' || line[0] == '#') {
		return ""
	}
	return line
}

// cutField takes a field in double quotes off the line; a quote within is doubled.
func cutField(line string) (field, rest string, ok bool) {
	if line == "" || line[0] != '"' {
		return "", line, false
	}
	var b strings.Builder
	for i := 1; i < len(line); i++ {
		switch {
		case line[i] != '"':
			b.WriteByte(line[i])
		case i+1 < len(line) && line[i+1] == '"':
			b.WriteByte('"')
			i++
		default:
			return b.String(), line[i+1:], true
		}
	}
	return "", line, false
}
