//go:build unix && !aix

package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// newcomerEnv makes the test binary a newcomer that takes the sockets at the path, accepts, and never confirms.
const newcomerEnv = "CLEAVE_TEST_NEWCOMER"

// incumbentEnv makes it an old process that listens, offers at the path, and answers every client until it is killed.
const incumbentEnv = "CLEAVE_TEST_INCUMBENT"

func TestMain(m *testing.M) {
	if path := os.Getenv(newcomerEnv); path != "" {
		beNewcomer(path)
		return
	}
	if path := os.Getenv(incumbentEnv); path != "" {
		beIncumbent(path)
		return
	}
	goleak.VerifyTestMain(m)
}

func beNewcomer(path string) {
	listeners, _, err := Take(context.Background(), path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("took", listeners[0].Addr())
	waitForParent()
}

// waitForParent waits until the test has ended, in whatever way.
func waitForParent() { _, _ = io.Copy(io.Discard, os.Stdin) }

func beIncumbent(path string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("listens", l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() { waitForParent(); cancel() }()
	answer(l, "incumbent", func() {
		_ = Serve(ctx, path, []*net.TCPListener{l.(*net.TCPListener)}, func() { _ = l.Close() })
	})
}

// answer says the name to everyone who connects, while the function runs.
func answer(l net.Listener, name string, during func()) {
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, name)
			_ = conn.Close()
		}
	})
	during()
	_ = l.Close()
	accepting.Wait()
}

// child starts this binary in another role, and returns what it says first. It dies with the test.
func child(t *testing.T, role, path string) (process *exec.Cmd, says string) {
	t.Helper()
	process = exec.Command(os.Args[0])
	process.Env = append(os.Environ(), role+"="+path)
	if _, err := process.StdinPipe(); err != nil { // the end of which tells it that the test has ended
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(process) })
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return process, strings.TrimSpace(string(line[:n]))
}

func kill(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

// incumbent is a process that listens and answers with its name until its sockets are taken.
type incumbent struct {
	listener *net.TCPListener
	taken    chan struct{}
	end      func() error // ends it if it is still there, and returns what Serve did
}

func start(t *testing.T, name, path string, l *net.TCPListener, patience time.Duration) *incumbent {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in := &incumbent{listener: l, taken: make(chan struct{})}
	var running sync.WaitGroup
	var err error
	running.Go(func() {
		answer(l, name, func() {
			err = serve(ctx, path, []*net.TCPListener{l}, func() { close(in.taken) }, patience)
		})
	})
	in.end = sync.OnceValue(func() error { cancel(); running.Wait(); return err })
	t.Cleanup(func() { _ = in.end() })
	return in
}

func newListener(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// newPath returns one that is short enough for a socket, which those below t.TempDir need not be.
func newPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "cleave-h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "s")
}

// take retries while nobody is there yet.
func take(t *testing.T, path string) (*net.TCPListener, func() error) {
	t.Helper()
	for t.Context().Err() == nil {
		listeners, confirm, err := Take(t.Context(), path)
		if errors.Is(err, ErrNobody) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return listeners[0].(*net.TCPListener), confirm
	}
	t.Fatal(t.Context().Err())
	return nil, nil
}

// whoAnswers connects once.
func whoAnswers(address string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	name, err := io.ReadAll(conn)
	if err == nil && len(name) == 0 {
		err = errors.New("nobody answered")
	}
	return string(name), err
}

// storm connects in loops until it is stopped, which returns how many were answered.
func storm(t *testing.T, address string) (stop func() int64) {
	t.Helper()
	var connecting sync.WaitGroup
	var answered atomic.Int64
	var stopped atomic.Bool
	for range 4 {
		connecting.Go(func() {
			for !stopped.Load() {
				if _, err := whoAnswers(address); err != nil {
					t.Errorf("after %d that were answered: %v", answered.Load(), err)
					return
				}
				answered.Add(1)
			}
		})
	}
	stop = sync.OnceValue(func() int64 { stopped.Store(true); connecting.Wait(); return answered.Load() })
	t.Cleanup(func() { stop() })
	return stop
}

// TestNobodyIsRefused hands the socket down a row of incumbents while clients connect.
func TestNobodyIsRefused(t *testing.T) {
	path := newPath(t)
	in := start(t, "0", path, newListener(t), patience)
	address := in.listener.Addr().String()
	stop := storm(t, address)
	for i := 1; i <= 20; i++ {
		l, confirm := take(t, path)
		acceptOne(t, l) // before it confirms, as it must
		if err := confirm(); err != nil {
			t.Fatal(err)
		}
		next := start(t, strconv.Itoa(i), path, l, patience)
		<-in.taken
		if err := in.end(); err != nil {
			t.Fatal(err)
		}
		in = next
	}
	if name, err := whoAnswers(address); name != "20" {
		t.Errorf("%q answers, %v", name, err)
	}
	if stop() < 20 {
		t.Error("hardly anybody connected, so this shows nothing")
	}
	if err := in.end(); err != nil {
		t.Error(err)
	}
	if name, err := whoAnswers(address); err == nil {
		t.Errorf("%q answers when all are gone", name)
	}
}

// acceptOne answers one client of the storm.
func acceptOne(t *testing.T, l net.Listener) {
	t.Helper()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "early")
	_ = conn.Close()
}

// TestNewcomerDiesBeforeItConfirms kills a real process that holds the sockets.
func TestNewcomerDiesBeforeItConfirms(t *testing.T) {
	path := newPath(t)
	in := start(t, "old", path, newListener(t), patience)
	waitForDoor(t, path)
	process, says := child(t, newcomerEnv, path)
	if says != "took "+in.listener.Addr().String() {
		t.Fatal(says)
	}
	kill(process)
	select {
	case <-in.taken:
		t.Fatal("the sockets went to a process that never said that it accepts")
	default:
	}
	l, confirm := take(t, path) // only now can it be seen that the old one has noticed
	defer func() { _ = l.Close() }()
	if name, err := whoAnswers(in.listener.Addr().String()); name != "old" {
		t.Errorf("%q answers, %v", name, err)
	}
	if err := confirm(); err != nil {
		t.Error(err)
	}
	<-in.taken
}

// TestNewcomerDiesBeforeItIsAnswered: one that confirmed and cannot be told that it has the sockets does not have them.
func TestNewcomerDiesBeforeItIsAnswered(t *testing.T) {
	path := newPath(t)
	in := start(t, "old", path, newListener(t), patience)
	waitForDoor(t, path)
	conn, err := dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	listeners, err := ask(conn)
	if err != nil {
		t.Fatal(err)
	}
	_ = listeners[0].Close()
	if err := conn.CloseRead(); err != nil {
		t.Fatal(err)
	}
	if err := send(conn, progress{accepting}); err != nil {
		t.Fatal(err)
	}
	l, confirm := take(t, path)
	defer func() { _ = l.Close() }()
	if name, err := whoAnswers(l.Addr().String()); name != "old" {
		t.Errorf("%q answers, %v", name, err)
	}
	if err := confirm(); err != nil {
		t.Error(err)
	}
	<-in.taken
}

func waitForDoor(t *testing.T, path string) {
	t.Helper()
	for {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("there is no door")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestIncumbentIsKilled: the sockets outlive the process that made them, whenever it dies after offering them.
func TestIncumbentIsKilled(t *testing.T) {
	path := newPath(t)
	process, says := child(t, incumbentEnv, path)
	address, listens := strings.CutPrefix(says, "listens ")
	if !listens {
		t.Fatal(says)
	}
	l, confirm := take(t, path)
	kill(process)
	answer(l, "new", func() {
		if name, err := whoAnswers(address); name != "new" {
			t.Errorf("%q answers, %v", name, err)
		}
		if confirm() == nil {
			t.Error("a dead process has let go")
		}
	})
	if _, _, err := Take(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("at what the dead process left: %v", err)
	}
	next := start(t, "next", path, newListener(t), patience)
	l, confirm = take(t, path)
	defer func() { _ = l.Close() }()
	if err := confirm(); err != nil {
		t.Error(err)
	}
	<-next.taken
}

// TestNewcomerFallsSilent: one that holds the door does not keep others out for ever.
func TestNewcomerFallsSilent(t *testing.T) {
	path := newPath(t)
	in := start(t, "old", path, newListener(t), 20*time.Millisecond)
	silent, late := take(t, path)
	defer func() { _ = silent.Close() }()
	l, confirm := take(t, path)
	defer func() { _ = l.Close() }()
	if err := late(); err == nil {
		t.Error("a newcomer was told that it has the sockets after another was let in")
	}
	for confirm() != nil { // with so little patience a slow machine may be late itself
		_ = l.Close()
		l, confirm = take(t, path)
	}
	<-in.taken
}

// TestStrangersChangeNothing: a door is for whoever may open it, and not all of them are newcomers.
func TestStrangersChangeNothing(t *testing.T) {
	path := newPath(t)
	in := start(t, "old", path, newListener(t), patience)
	waitForDoor(t, path)
	for _, says := range []string{"", "\n", "GET / HTTP/1.1\r\n\r\n", "{}\n{\"state\":\"accepting\"}\n", strings.Repeat("x", 2*maxLine), `{"version":1}`} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, says)
		_ = conn.Close()
	}
	impatient, giveUp := context.WithCancel(t.Context())
	listeners, confirm, err := Take(impatient, path)
	if err != nil {
		t.Fatal(err)
	}
	giveUp()
	_ = listeners[0].Close()
	if err := confirm(); !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("confirmed what was given up: %v", err)
	}
	l, confirm := take(t, path)
	defer func() { _ = l.Close() }()
	if err := confirm(); err != nil {
		t.Error(err)
	}
	<-in.taken
}

func TestNobody(t *testing.T) {
	path := newPath(t)
	if _, _, err := Take(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("where nothing is: %v", err)
	}
	leaveSocket(t, path)
	if _, _, err := Take(t.Context(), path); !errors.Is(err, ErrNobody) {
		t.Errorf("at a socket that a dead process left: %v", err)
	}
}

// leaveSocket leaves what a process leaves that was killed.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func TestDoor(t *testing.T) {
	path := newPath(t)
	leaveSocket(t, path)
	d, err := openDoor(path)
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.Lstat(path); err != nil || file.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", file.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside it: %v, %v", entries, err)
	}
	if second, err := openDoor(path); err == nil {
		second.close()
		t.Error("two processes serve one path")
	}
	d.close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the path is not free: %v", err)
	}
}

// TestDoorOfAnother: closing a door does not remove another's.
func TestDoorOfAnother(t *testing.T) {
	path := newPath(t)
	first, err := openDoor(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := openDoor(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.close()
	first.close()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestServeRefuses(t *testing.T) {
	path := newPath(t)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), path, []*net.TCPListener{newListener(t)}, nil); err == nil {
		t.Error("a file was taken for a socket")
	}
	if content, err := os.ReadFile(path); string(content) != "precious" {
		t.Errorf("the file is %q now, %v", content, err)
	}
	if err := Serve(t.Context(), newPath(t), nil, nil); err == nil {
		t.Error("no sockets were served")
	}
}

// TestServeEnds: with the context, whatever it is doing, and leaves nothing.
func TestServeEnds(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, path string){
		"at once":            func(*testing.T, string) {},
		"while it listens":   waitForDoor,
		"while it is asked":  func(t *testing.T, path string) { waitForDoor(t, path); connectSilently(t, path) },
		"while it is waited": func(t *testing.T, path string) { l, _ := take(t, path); _ = l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			in := start(t, "old", path, newListener(t), patience)
			before(t, path)
			if err := in.end(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the path is not free: %v", err)
			}
			select {
			case <-in.taken:
				t.Error("nobody took anything")
			default:
			}
		})
	}
}

func connectSilently(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
}

// TestBrokenOffers: a newcomer takes nothing from one that it does not understand, and keeps no descriptor of it.
func TestBrokenOffers(t *testing.T) {
	l := newListener(t)
	right := l.Addr().String()
	for name, c := range map[string]struct {
		offer   offer
		sockets int
	}{
		"another version":    {offer{2, []string{right}}, 1},
		"no sockets":         {offer{version, nil}, 0},
		"too few sockets":    {offer{version, []string{right, right}}, 1},
		"too many sockets":   {offer{version, []string{right}}, 2},
		"another's socket":   {offer{version, []string{"127.0.0.1:1", right}}, 2},
		"the second's wrong": {offer{version, []string{right, "127.0.0.1:1"}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			before := openFiles(t)
			offerOnce(t, path, c.offer, l, c.sockets, func() {
				if _, _, err := Take(t.Context(), path); err == nil || errors.Is(err, ErrNobody) {
					t.Errorf("taken: %v", err)
				}
			})
			if after := openFiles(t); after != before {
				t.Errorf("%d files are open, there were %d", after, before)
			}
		})
	}
}

// offerOnce makes an offer to the one that asks during the function.
func offerOnce(t *testing.T, path string, o offer, l *net.TCPListener, sockets int, during func()) {
	t.Helper()
	d, err := openDoor(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	var offering sync.WaitGroup
	offering.Go(func() {
		conn, err := d.listener.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		var descriptors []int
		for range sockets {
			descriptor, err := duplicate(l)
			if err != nil {
				t.Error(err)
			}
			descriptors = append(descriptors, descriptor)
		}
		_ = send(conn, o, descriptors...)
		closeAll(descriptors)
		_, _ = io.Copy(io.Discard, conn)
	})
	during()
	offering.Wait()
}

// openFiles counts this process's descriptors; 0 where the system does not tell.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// TestTakeEnds: with the context, if the other side is silent.
func TestTakeEnds(t *testing.T) {
	path := newPath(t)
	d, err := openDoor(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	ctx, cancel := context.WithCancel(t.Context())
	var accepting sync.WaitGroup
	defer accepting.Wait()
	accepting.Go(func() {
		conn, err := d.listener.AcceptUnix()
		cancel()
		if err == nil {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	})
	if _, _, err := Take(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
