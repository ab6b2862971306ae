// Package secret names secrets without holding them: a [Reference] says in which file or environment variable a password
// or token stands, so that configuration and the shard map can be stored, printed and shared while the secret cannot.
//
// It does not store, encrypt or cache: [Reference.Resolve] reads the secret anew each time, so that a rotated one is found
// by whoever resolves again. Who holds a resolved secret, and for how long, is the caller's affair.
//
// It guarantees that no error and no printed, logged or encoded form of a Reference contains a secret: text that is not a
// reference is refused without being repeated, because it may well be the password itself.
//
// A Reference is a plain value, safe for concurrent use. Start with [Reference] and [Parse].
package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Reference says where a secret stands. Exactly one field is set; the zero value refers to nothing.
type Reference struct {
	// File is the absolute path of a file whose content is the secret; one line break at its end does not count.
	File string
	// Env is the name of an environment variable of this process whose value is the secret.
	Env string
}

// Beginnings of the short form.
const (
	filePrefix = "file:"
	envPrefix  = "env:"
)

// maxBytes is far more than any password or token has; a longer file is a mistake such as a disk image.
const maxBytes = 64 << 10

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// errNotReference explains the form, and leaves out what was given.
var errNotReference = errors.New("a secret is not written here itself: refer to it as file:/path or env:NAME")

// Parse reads the short form, file:/path or env:NAME. An empty text refers to nothing.
func Parse(text string) (Reference, error) {
	if text == "" {
		return Reference{}, nil
	}
	var r Reference
	if path, ok := strings.CutPrefix(text, filePrefix); ok {
		r.File = strings.TrimSpace(path)
	} else if name, ok := strings.CutPrefix(text, envPrefix); ok {
		r.Env = strings.TrimSpace(name)
	}
	if r.IsZero() {
		return Reference{}, errNotReference
	}
	if err := r.Check(); err != nil {
		return Reference{}, err
	}
	return r, nil
}

// IsZero tells whether it refers to nothing.
func (r Reference) IsZero() bool { return r == Reference{} }

// Check looks at the form alone: it reads neither file nor environment. A reference to nothing is in order.
func (r Reference) Check() error {
	switch {
	case r.File != "" && r.Env != "":
		return errors.New("a secret stands in a file or in an environment variable, not in both: remove one")
	case r.File != "" && !filepath.IsAbs(r.File):
		return errors.New("the file of a secret must be an absolute path: processes in other folders read it too")
	case r.Env != "" && !variableName.MatchString(r.Env):
		return errors.New("the environment variable of a secret must be a name of letters, digits and underscores")
	}
	return nil
}

// Resolve reads the secret. It refuses one that is missing or empty, and a reference to nothing.
func (r Reference) Resolve() (string, error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	switch {
	case r.File != "":
		return readFile(r.File)
	case r.Env != "":
		value := os.Getenv(r.Env)
		if value == "" {
			return "", fmt.Errorf("read secret: environment variable %s is not set or empty", r.Env)
		}
		return value, nil
	}
	return "", errors.New("read secret: no file and no environment variable is named")
}

func readFile(path string) (string, error) {
	// Looked at before it is opened: opening a pipe would wait for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("read secret: %s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if len(content) > maxBytes {
		return "", fmt.Errorf("read secret: %s has more than %d bytes, which is no password or token", path, maxBytes)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if value == "" {
		return "", fmt.Errorf("read secret: %s is empty", path)
	}
	return value, nil
}

// Exposed tells whether every user of the machine may read the secret's file. It is a reason to warn and not to refuse:
// container platforms mount secrets readable by all, inside a container that has one user.
func (r Reference) Exposed() bool {
	if r.File == "" {
		return false
	}
	const othersRead = 0o004
	info, err := os.Stat(r.File)
	return err == nil && info.Mode().Perm()&othersRead != 0
}

// String returns the short form, which Parse reads.
func (r Reference) String() string {
	switch {
	case r.File != "":
		return filePrefix + r.File
	case r.Env != "":
		return envPrefix + r.Env
	}
	return ""
}

// MarshalText writes the short form.
func (r Reference) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the short form.
func (r *Reference) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// object is the form in JSON.
type object struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

// MarshalJSON writes {"file": "/path"} or {"env": "NAME"}, and {} for a reference to nothing.
func (r Reference) MarshalJSON() ([]byte, error) { return json.Marshal(object(r)) }

// UnmarshalJSON reads the object that MarshalJSON writes, the short form as a string, or null, which changes nothing.
func (r *Reference) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	if bytes.HasPrefix(data, []byte(`"`)) {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return errNotReference
		}
		return r.UnmarshalText([]byte(text))
	}
	// The decoder's own words may repeat what was given, so they are not passed on.
	var parsed object
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parsed); err != nil {
		return errNotReference
	}
	if err := Reference(parsed).Check(); err != nil {
		return err
	}
	*r = Reference(parsed)
	return nil
}
