package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// run is one life of a server's process.
type run struct {
	process   *os.Process
	exited    chan struct{} // closed when the process has ended and the folder's lock is free again
	data, log string
	logStart  int64 // where in the log this life begins
}

// pause is how long to wait before looking again: short against what a start takes, long against what a look costs.
const pause = 5 * time.Millisecond

// launch starts the server's process and does not wait for it to answer. The run takes the lock over, also if it fails.
func launch(config Config, installation Installation, owner account, lock *os.File) (*run, error) {
	log, logStart, err := openLog(config.log())
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	command := exec.Command(filepath.Join(installation.Bin, "postgres"), arguments(config)...)
	command.Dir = config.Dir
	command.Env = serverEnvironment()
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = owner.attributes()

	r := &run{exited: make(chan struct{}), data: config.data(), log: config.log(), logStart: logStart}
	started := make(chan error)
	go func() {
		// The signal that ends an orphan comes when the thread that started it ends, so that thread is kept. It is not
		// unlocked: a thread that is locked when its goroutine ends is not used again.
		runtime.LockOSThread()
		defer close(r.exited)
		defer lock.Close()
		defer log.Close()
		release, err := startGuarded(command)
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended stands in its log
			release()
		}
	}()
	if err := <-started; err != nil {
		<-r.exited
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	r.process = command.Process
	return r, nil
}

func startGuarded(command *exec.Cmd) (release func(), err error) {
	if err := command.Start(); err != nil {
		return nil, err
	}
	release, err = guardOrphan(command.Process.Pid)
	if err != nil {
		_ = command.Process.Signal(syscall.SIGQUIT)
		_ = command.Wait()
		return nil, err
	}
	return release, nil
}

// arguments are the server's command line. Settings stand there, and not in a file of the data, so that what the
// configuration says holds whatever was changed in the data.
func arguments(config Config) []string {
	arguments := []string{
		"-D", config.data(),
		"-c", "listen_addresses=" + loopback,
		"-c", "port=" + strconv.Itoa(config.Port),
		"-c", "lc_messages=C", // the log is read here
	}
	for _, name := range slices.Sorted(maps.Keys(config.Settings)) {
		arguments = append(arguments, "-c", name+"="+config.Settings[name])
	}
	return arguments
}

// ready waits until the server accepts connections. It believes the server's own file and asks no port: another server
// may have been faster to take that one.
func (r *run) ready(ctx context.Context) error {
	for {
		found, err := readPostmaster(r.data)
		if err != nil {
			return err
		}
		if found != nil && found.pid == r.process.Pid && found.status == "ready" {
			return nil
		}
		select {
		case <-r.exited:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// errEnded says that a server ended instead of becoming ready; the log says why.
var errEnded = errors.New("the server ended")

func (r *run) logged() string { return readLog(r.log, r.logStart) }

// hasExited says whether the process has ended.
func (r *run) hasExited() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// exitsWithin waits for the end of the process, no longer than the context or the duration allows.
func (r *run) exitsWithin(ctx context.Context, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.exited:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return r.hasExited()
}

// immediatePatience is how long an immediate shutdown may take. The server kills its processes after 5 seconds itself.
const immediatePatience = 10 * time.Second

// stop ends the server in order; if that takes too long, at once; and if that takes too long, by force.
func (r *run) stop(ctx context.Context, patience time.Duration) error {
	if r.hasExited() {
		return nil
	}
	_ = r.process.Signal(syscall.SIGINT)
	if r.exitsWithin(ctx, patience) {
		return nil
	}
	return errors.Join(errors.New("the server did not stop in time and was ended at once: its next start will recover"), r.stopImmediately())
}

func (r *run) stopImmediately() error {
	_ = r.process.Signal(syscall.SIGQUIT)
	if r.exitsWithin(context.Background(), immediatePatience) {
		return nil
	}
	return r.crash()
}

// crash kills the server and every process it has started, and returns when all are gone. The server is stopped first: so
// it starts no further process, and the numbers of those that end are not given to others before they are killed.
func (r *run) crash() error {
	if r.hasExited() {
		return nil
	}
	pid := r.process.Pid
	_ = stopProcess(pid)
	backends, err := children(pid)
	_ = r.process.Kill()
	for _, backend := range backends {
		_ = killProcess(backend)
	}
	<-r.exited
	if err != nil {
		return fmt.Errorf("kill the server's processes: %w", err)
	}
	return waitGone(backends)
}

// killPatience is how long the kernel may take to end killed processes.
const killPatience = 30 * time.Second

func waitGone(pids []int) error {
	for deadline := time.Now().Add(killPatience); ; time.Sleep(pause) {
		left, err := alive(pids)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the killed processes %v do not end", left)
		}
	}
}

const loopback = "127.0.0.1"

// freePort returns a port that nobody has now. Somebody may have it a moment later: see Server.launchAnywhere.
func freePort(ctx context.Context) (int, error) {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp4", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("look for a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
