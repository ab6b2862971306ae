package localpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is what the system tells of one of its processes.
type process struct {
	pid, parent int
	uid         int
	zombie      bool // ended, and not yet waited for by its parent
	command     []string
}

// postmaster is what the file postmaster.pid tells: PostgreSQL writes it when it starts and removes it when it ends in order.
type postmaster struct {
	pid    int
	status string // starting, standby, ready, stopping; "" if there is none yet
	lines  []string
}

func postmasterFile(data string) string { return filepath.Join(data, "postmaster.pid") }

// readPostmaster returns nil if there is no such file, or if it is being written right now.
func readPostmaster(data string) (*postmaster, error) {
	text, err := os.ReadFile(postmasterFile(data))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a running server: %w", err)
	}
	const pidLine, statusLine = 0, 7
	lines := strings.Split(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(lines[pidLine])) // 0 while the file is being written
	if pid <= 0 {
		return nil, nil
	}
	found := &postmaster{pid: pid, lines: lines}
	if len(lines) > statusLine {
		found.status = strings.TrimSpace(lines[statusLine])
	}
	return found, nil
}

// occupation says who has the process number in postmaster.pid.
type occupation int

const (
	nobody   occupation = iota // or a user whose processes PostgreSQL does not take for servers of this folder
	stranger                   // a process that cannot be the server of this folder: the number was given again
	server                     // the server of this folder
)

// occupant looks at the process that the file names. PostgreSQL itself only asks whether there is one of the same user;
// after the restart of a container, where numbers start anew, that is often the server of the next folder.
func (p *postmaster) occupant(data string, uid int) (occupation, error) {
	all, err := processes()
	if err != nil {
		return nobody, err
	}
	i := slices.IndexFunc(all, func(other process) bool { return other.pid == p.pid })
	switch {
	case i < 0 || all[i].uid != uid:
		return nobody, nil
	case all[i].zombie || !mayServe(all[i].command, data):
		return stranger, nil
	default:
		return server, nil
	}
}

// mayServe says whether a command may be that of the data's server. In doubt it may: only another program, a session's
// process, which calls itself "postgres: …", and a server that names other data are surely none.
func mayServe(command []string, data string) bool {
	if len(command) == 0 {
		return false
	}
	program := filepath.Base(command[0])
	if strings.Contains(program, ":") || !strings.Contains(program, "postgres") && !strings.Contains(program, "postmaster") {
		return false
	}
	i := slices.Index(command, "-D")
	if i < 0 || i+1 == len(command) || !filepath.IsAbs(command[i+1]) {
		return true
	}
	theirs, theirErr := os.Stat(command[i+1])
	ours, ourErr := os.Stat(data)
	return theirErr != nil || ourErr != nil || os.SameFile(theirs, ours)
}

// disown replaces the process number of a stranger, which would make PostgreSQL refuse to start, by that of this process,
// which PostgreSQL knows to be its parent. The rest of the file stays: through it PostgreSQL makes sure that no process of
// an earlier server still uses the shared memory.
func (p *postmaster) disown(dir, data string, owner account) error {
	lines := slices.Clone(p.lines)
	lines[0] = strconv.Itoa(os.Getpid())
	// Written beside the data and moved there: a name inside them may be a link that somebody else made.
	path := filepath.Join(dir, "postmaster.pid.new")
	if err := errors.Join(
		os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600),
		owner.give(path),
		os.Rename(path, postmasterFile(data)),
	); err != nil {
		return fmt.Errorf("take over a stale postmaster.pid: %w", err)
	}
	return nil
}

// children lists the living processes that the given one started.
func children(pid int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var found []int
	for _, p := range all {
		if p.parent == pid && !p.zombie {
			found = append(found, p.pid)
		}
	}
	return found, nil
}

// alive returns those of the processes that have not ended.
func alive(pids []int) ([]int, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var found []int
	for _, p := range all {
		if slices.Contains(pids, p.pid) && !p.zombie {
			found = append(found, p.pid)
		}
	}
	return found, nil
}
