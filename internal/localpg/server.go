package localpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a PostgreSQL server in a folder of its own, running or stopped.
type Server struct {
	config       Config // with defaults, and with the port that was chosen
	installation Installation
	owner        account
	password     string
	made         *creation // what Start made, to be undone if it comes to nothing

	changing sync.Mutex // held while the server is started or ended
	current  atomic.Pointer[run]
}

// Start starts a server and returns when it accepts connections. If its folder holds no data yet they are made; what a
// failed start has made it removes. A context that ends later does not end the server.
func Start(ctx context.Context, config Config) (*Server, error) {
	s, err := start(ctx, config, initialise)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// maker makes data in an empty folder that belongs to the server's user.
type maker func(ctx context.Context, s *Server, data string) error

// start returns the server also if it could not be started and what it had made is removed again; nil if it made nothing.
func start(ctx context.Context, config Config, makeData maker) (*Server, error) {
	s, err := prepare(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start a server in %s: %w", config.Dir, err)
	}
	if err := s.firstStart(ctx, makeData); err != nil {
		return s, fmt.Errorf("start a server in %s: %w", config.Dir, errors.Join(err, s.made.undo()))
	}
	return s, nil
}

// prepare finds out all that a start needs, and makes nothing.
func prepare(ctx context.Context, config Config) (*Server, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	var err error
	if config.Dir, err = realPath(config.Dir); err != nil {
		return nil, err
	}
	s := &Server{config: config, made: &creation{}}
	if s.password, err = config.password(); err != nil {
		return nil, err
	}
	if s.owner, err = accountFor(config.User, config.data()); err != nil {
		return nil, err
	}
	if err := s.owner.mustEnter(filepath.Dir(config.Dir), "the server's folder"); err != nil {
		return nil, err
	}
	major, err := dataMajor(config.data())
	if err != nil {
		return nil, err
	}
	if s.installation, err = choose(ctx, config.Bin, major); err != nil {
		return nil, err
	}
	return s, s.owner.mustEnter(s.installation.Bin, "PostgreSQL's programs")
}

// realPath resolves the links in the part of a path that exists, for the server's user has to pass what they lead to.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, os.ErrNotExist) || filepath.Dir(path) == path {
		return resolved, err
	}
	parent, err := realPath(filepath.Dir(path))
	return filepath.Join(parent, filepath.Base(path)), err
}

func (s *Server) firstStart(ctx context.Context, makeData maker) error {
	if err := s.made.folder(s.config.Dir, s.owner); err != nil {
		return err
	}
	lock, err := s.occupy(ctx)
	if err != nil {
		return err
	}
	if err := s.ensureData(ctx, makeData); err != nil {
		return errors.Join(err, lock.Close())
	}
	if s.config.Port != 0 {
		return s.launchOnPort(ctx, lock)
	}
	return s.launchAnywhere(ctx, lock)
}

// portAttempts is how many free ports may be lost to others before that is a failure.
const portAttempts = 10

// launchAnywhere starts the server on a free port, and on another one if somebody was faster.
func (s *Server) launchAnywhere(ctx context.Context, lock *os.File) error {
	for attempt := 1; ; attempt++ {
		port, err := freePort(ctx)
		if err != nil {
			return errors.Join(err, lock.Close())
		}
		s.config.Port = port
		err = s.launchOnPort(ctx, lock)
		var taken *PortInUseError
		if !errors.As(err, &taken) || attempt == portAttempts {
			return err
		}
		if lock, err = s.occupy(ctx); err != nil {
			return err
		}
	}
}

// launchOnPort starts the server, takes the lock over, and returns when the server accepts connections.
func (s *Server) launchOnPort(ctx context.Context, lock *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.StartTimeout)
	defer cancel()
	for {
		r, err := launch(s.config, s.installation, s.owner, lock)
		if err != nil {
			return err
		}
		err = r.ready(ctx)
		if err == nil {
			s.current.Store(r)
			return nil
		}
		logged := r.logged()
		err = errors.Join(err, r.stopImmediately())
		switch {
		case portTaken(logged):
			return &PortInUseError{Port: s.config.Port}
		case !memoryBusy(logged) || ctx.Err() != nil:
			return fmt.Errorf("%w: %s", err, lastFailure(logged))
		}
		// Processes of a server that was killed are still ending.
		time.Sleep(10 * pause)
		if lock, err = s.occupy(ctx); err != nil {
			return err
		}
	}
}

// How long a start waits for a server that is in its folder: one that is stopping ends soon, and one whose owner was
// killed a moment ago will be stopping in a moment.
const (
	orphanPatience   = time.Second
	stoppingPatience = 15 * time.Second
)

// occupy takes the folder's lock and makes sure that no server runs in the folder.
func (s *Server) occupy(ctx context.Context) (*os.File, error) {
	lock, err := takeLock(s.config.Dir)
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, s.inUse()
	}
	if err := s.waitVacant(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// takeLock takes the lock of a server's folder; nil if somebody has it. A lock whose file was removed by the one who had
// it before, a start that came to nothing, locks nobody out, so another file is tried.
func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	for {
		lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock the server's folder: %w", err)
		}
		locked, err := tryLock(lock)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock the server's folder: %w", err), lock.Close())
		}
		if locked && isStill(lock, path) {
			return lock, nil
		}
		if err := lock.Close(); err != nil || !locked {
			return nil, err
		}
	}
}

// isStill says whether the file has the path.
func isStill(file *os.File, path string) bool {
	opened, openedErr := file.Stat()
	named, namedErr := os.Stat(path)
	return openedErr == nil && namedErr == nil && os.SameFile(opened, named)
}

func (s *Server) inUse() error {
	failure := &InUseError{Dir: s.config.Dir}
	if found, err := readPostmaster(s.config.data()); err == nil && found != nil {
		failure.PID = found.pid
	}
	return failure
}

func (s *Server) waitVacant(ctx context.Context) error {
	for began := time.Now(); ; {
		found, err := readPostmaster(s.config.data())
		if err != nil || found == nil {
			return err
		}
		who, err := found.occupant(s.config.data(), s.owner.uid)
		switch {
		case err != nil:
			return err
		case who == nobody:
			return nil
		case who == stranger:
			return found.disown(s.config.Dir, s.config.data(), s.owner)
		}
		patience := orphanPatience
		if found.status == "stopping" {
			patience = stoppingPatience
		}
		if time.Since(began) > patience {
			return s.inUse()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Stop ends the server in order: sessions are ended, a checkpoint is written. If that takes longer than the context or
// [Config.StopTimeout] allows, the server is ended at once and Stop returns an error; it has ended in any case. A server
// that does not run is left alone.
func (s *Server) Stop(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.stop(ctx); err != nil {
		return fmt.Errorf("stop the server in %s: %w", s.config.Dir, err)
	}
	return nil
}

func (s *Server) stop(ctx context.Context) error {
	return s.current.Load().stop(ctx, s.config.StopTimeout)
}

// StopImmediately ends the server without a checkpoint: its next start recovers, and no commit is lost. It leaves nothing
// behind in the machine's memory, as [Server.Crash] does.
func (s *Server) StopImmediately() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if r := s.current.Load(); !r.hasExited() {
		if err := r.stopImmediately(); err != nil {
			return fmt.Errorf("stop the server in %s: %w", s.config.Dir, err)
		}
	}
	return nil
}

// Crash kills all of the server's processes, as kill -9 does, and returns when they are gone. The shared memory that a
// killed server leaves behind goes with its next start.
func (s *Server) Crash() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.current.Load().crash(); err != nil {
		return fmt.Errorf("crash the server in %s: %w", s.config.Dir, err)
	}
	return nil
}

// Restart stops the server if it runs, as [Server.Stop] does, and starts it on the same port.
func (s *Server) Restart(ctx context.Context) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if err := s.restart(ctx); err != nil {
		return fmt.Errorf("restart the server in %s: %w", s.config.Dir, err)
	}
	return nil
}

func (s *Server) restart(ctx context.Context) error {
	if err := s.stop(ctx); err != nil && !s.current.Load().hasExited() {
		return err
	}
	lock, err := s.occupy(ctx)
	if err != nil {
		return err
	}
	return s.launchOnPort(ctx, lock)
}

// Exited returns a channel that is closed when the server's process has ended, whoever ended it. After a restart there is
// a new process, and a new channel.
func (s *Server) Exited() <-chan struct{} { return s.current.Load().exited }

// Dir is the server's folder, with symbolic links resolved.
func (s *Server) Dir() string { return s.config.Dir }

// LogFile is the file that the server writes its log to.
func (s *Server) LogFile() string { return s.config.log() }

// LogTail returns the last lines of the server's log.
func (s *Server) LogTail(lines int) string { return lastLines(readLog(s.config.log(), 0), lines) }

// Installation tells which programs run the server.
func (s *Server) Installation() Installation { return s.installation }

// PID is the number of the server's process, the postmaster; of its last one if it does not run.
func (s *Server) PID() int { return s.current.Load().process.Pid }

// Port is the port that the server listens on; it stays the same over restarts.
func (s *Server) Port() int { return s.config.Port }

// Addr is the server's address, host:port.
func (s *Server) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(s.config.Port)) }

// Superuser is the name of the database's superuser.
func (s *Server) Superuser() string { return s.config.Superuser }

// DSN is the connection string of a database for the superuser, with the password if there is one.
func (s *Server) DSN(database string) string {
	dsn := url.URL{Scheme: "postgres", User: url.User(s.config.Superuser), Host: s.Addr(), Path: "/" + database, RawQuery: "sslmode=disable"}
	if s.password != "" {
		dsn.User = url.UserPassword(s.config.Superuser, s.password)
	}
	return dsn.String()
}
