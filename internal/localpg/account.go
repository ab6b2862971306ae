package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user of the operating system that a server runs as.
type account struct {
	name     string
	uid, gid int
	foreign  bool // not the user of this process, which is root then
}

// defaultUsers are whom root runs a server as, the first that there is.
var defaultUsers = []string{"postgres", "nobody"}

// accountFor finds who is to run the server of these data, which may not exist yet.
func accountFor(name, data string) (account, error) {
	self := account{name: "uid " + strconv.Itoa(os.Getuid()), uid: os.Getuid(), gid: os.Getgid()}
	if self.uid != 0 {
		return self, self.mustOwn(name, data)
	}
	chosen, err := accountForRoot(name, data)
	if err != nil {
		return account{}, err
	}
	if chosen.uid == 0 {
		return account{}, errors.New("PostgreSQL does not run as root: name another user, and give it the data if there are any")
	}
	return chosen, chosen.mustOwn("", data)
}

func accountForRoot(name, data string) (account, error) {
	if name != "" {
		return lookUp(name)
	}
	if info, err := os.Stat(data); err == nil {
		uid := ownerOf(info)
		return account{name: "uid " + strconv.Itoa(uid), uid: uid, gid: groupOf(info), foreign: true}, nil
	}
	for _, name := range defaultUsers {
		if found, err := lookUp(name); err == nil {
			return found, nil
		}
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root, and this system has none of the users %s: name another or start as another user",
		strings.Join(defaultUsers, ", "))
}

func lookUp(name string) (account, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("look for the user to run the server as: %w", err)
	}
	uid, uidErr := strconv.Atoi(found.Uid)
	gid, gidErr := strconv.Atoi(found.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return account{}, fmt.Errorf("the user %s: %w", name, err)
	}
	return account{name: name, uid: uid, gid: gid, foreign: true}, nil
}

// mustOwn refuses data of another user, which PostgreSQL would refuse less plainly, and a wanted user that cannot be had.
func (a account) mustOwn(wanted, data string) error {
	if wanted != "" {
		found, err := user.Lookup(wanted)
		if err != nil || found.Uid != strconv.Itoa(a.uid) {
			return fmt.Errorf("only root can run a server as another user, here as %q", wanted)
		}
	}
	if info, err := os.Stat(data); err == nil && ownerOf(info) != a.uid {
		return fmt.Errorf("%s belongs to the user with id %d, and the server would run as %s", data, ownerOf(info), a.name)
	}
	return nil
}

// mustEnter checks that the account can reach a folder, of which the last parts may not exist yet.
func (a account) mustEnter(folder, purpose string) error {
	if !a.foreign {
		return nil
	}
	for _, ancestor := range ancestors(folder) {
		info, err := os.Stat(ancestor)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at the way to %s: %w", folder, err)
		}
		if !a.mayEnter(info) {
			return fmt.Errorf("the server runs as the user %s, who may not enter %s (mode %04o): put %s elsewhere, or allow it with: chmod o+x %s",
				a.name, ancestor, info.Mode().Perm(), purpose, ancestor)
		}
	}
	return nil
}

func (a account) mayEnter(info os.FileInfo) bool {
	switch {
	case ownerOf(info) == a.uid:
		return info.Mode()&0o100 != 0
	case groupOf(info) == a.gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}

// ancestors lists the folder and all above it, the root first.
func ancestors(folder string) []string {
	all := []string{folder}
	for parent := filepath.Dir(folder); parent != folder; parent = filepath.Dir(folder) {
		folder = parent
		all = append(all, folder)
	}
	slices.Reverse(all)
	return all
}

// give makes the account the owner of a file or folder.
func (a account) give(path string) error {
	if !a.foreign {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// giveOpen does so with a file that is open.
func (a account) giveOpen(file *os.File) error {
	if !a.foreign {
		return nil
	}
	return file.Chown(a.uid, a.gid)
}

// attributes start a process as the account, in a process group of its own: Ctrl-C in a terminal reaches every process
// of a group, and when servers stop is for their owner to say.
func (a account) attributes() *syscall.SysProcAttr {
	attributes := groupAttributes()
	if a.foreign {
		setCredential(attributes, a.uid, a.gid)
	}
	return attributes
}

// toolPatience is how long one of PostgreSQL's programs may take to clean up when its context ends.
const toolPatience = 10 * time.Second

// run runs one of PostgreSQL's programs as the account; an error holds the last it said. It ends with this process.
func (a account) run(ctx context.Context, dir string, environment []string, program string, arguments ...string) error {
	return a.runWith(ctx, dir, environment, nil, program, arguments...)
}

// runWith is run with something to read.
func (a account) runWith(ctx context.Context, dir string, environment []string, input io.Reader, program string, arguments ...string) error {
	// The signal that ends an orphan comes when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = dir
	command.Env = append(serverEnvironment(), environment...)
	command.SysProcAttr = a.attributes()
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = toolPatience
	command.Stdin = input
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, lastLines(output.String(), 5))
}

// serverEnvironment is this process's without what would steer PostgreSQL behind its configuration's back.
func serverEnvironment() []string {
	environment := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "PG") || strings.HasPrefix(variable, "LC_") || strings.HasPrefix(variable, "LANG")
	})
	return append(environment, "LC_ALL=C")
}
