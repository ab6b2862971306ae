// Package orders is how a test tells a process what to do at a failpoint: by files in a folder that both know.
//
// A test calls [Give]: the file has the point's name, and says what to do (kill, stop, sleep, hold), at which hit, and for which process. A process that
// comes to the point calls [Take], which claims the order by renaming the file: of all processes and goroutines that come by, exactly one obeys,
// and the test sees by the new name that somebody did, and who: [Obeyed]. What was not obeyed is taken back by [Withdraw]. A process that was told to
// hold waits until the test calls [Release], or the folder is gone.
//
// It knows no processes and sends no signals: obeying is the work of package failpoint. All functions are safe for concurrent use, by several processes too.
package orders

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Act is what a process has to do.
type Act string

// The acts. Stop is what SIGSTOP does to the whole process; Sleep and Hold are of the goroutine alone.
const (
	Nothing Act = ""
	Kill    Act = "kill"
	Stop    Act = "stop"
	Sleep   Act = "sleep"
	Hold    Act = "hold"
)

// Order is what a process does when it comes to a point.
type Order struct {
	Act Act
	// For is how long to sleep.
	For time.Duration
	// Hit is which hit obeys; earlier ones, of whatever process, go on. Default: the first.
	Hit int
	// Process is the number of the one that has to obey; others go on, and their hits do not count. Default: whichever comes.
	Process int

	claimed string // the file, when it is taken
}

// String is an order as it stands in its file, such as "sleep 500ms hit=2 process=4711".
func (o Order) String() string {
	words := []string{string(o.Act)}
	if o.Act == Sleep {
		words = append(words, o.For.String())
	}
	if o.Hit > 1 {
		words = append(words, "hit="+strconv.Itoa(o.Hit))
	}
	if o.Process != 0 {
		words = append(words, "process="+strconv.Itoa(o.Process))
	}
	return strings.Join(words, " ")
}

// parse reads what String writes.
func parse(text string) (o Order, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return o, errors.New("an empty order")
	}
	o.Act, words = Act(words[0]), words[1:]
	switch o.Act {
	case Kill, Stop, Hold:
	case Sleep:
		if len(words) == 0 {
			return o, fmt.Errorf("the order %q does not say how long", text)
		}
		if o.For, err = time.ParseDuration(words[0]); err != nil {
			return o, fmt.Errorf("the order %q: %w", text, err)
		}
		words = words[1:]
	default:
		return o, fmt.Errorf("the order %q: nobody knows how to %s", text, o.Act)
	}
	return o, o.parseConditions(text, words)
}

func (o *Order) parseConditions(text string, words []string) error {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		number, err := strconv.Atoi(value)
		switch {
		case err != nil || number < 1:
			return fmt.Errorf("the order %q: %s is no condition", text, word)
		case name == "hit":
			o.Hit = number
		case name == "process":
			o.Process = number
		default:
			return fmt.Errorf("the order %q: %s is no condition", text, word)
		}
	}
	return nil
}

// obeyedMark comes between the point's name and the number of the process.
const obeyedMark = ".obeyed."

// Give puts the order down for the point, in place of one that was not obeyed. What was obeyed there before is forgotten.
func Give(folder, point string, o Order) error {
	if _, err := parse(o.String()); err != nil {
		return err
	}
	if err := forget(folder, point); err != nil {
		return err
	}
	return write(folder, point, o)
}

// write puts the whole of the file there at once.
func write(folder, point string, o Order) error {
	file, err := os.CreateTemp(folder, ".new-")
	if err != nil {
		return fmt.Errorf("give an order: %w", err)
	}
	_, err = file.WriteString(o.String() + "\n")
	if err := errors.Join(err, file.Close(), os.Rename(file.Name(), filepath.Join(folder, point))); err != nil {
		return fmt.Errorf("give an order: %w", err)
	}
	return nil
}

func forget(folder, point string) error {
	files, err := filepath.Glob(filepath.Join(folder, point+obeyedMark+"*"))
	for _, file := range files {
		err = errors.Join(err, remove(file))
	}
	return err
}

func remove(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Withdraw takes back the order for the point, if nobody has obeyed it.
func Withdraw(folder, point string) error { return remove(filepath.Join(folder, point)) }

// Obeyed is the number of the process that has obeyed, or begun to obey, the last order for the point; 0 if none has yet.
func Obeyed(folder, point string) (process int, err error) {
	files, err := filepath.Glob(filepath.Join(folder, point+obeyedMark+"*"))
	if err != nil || len(files) == 0 {
		return 0, err
	}
	return strconv.Atoi(files[0][strings.LastIndex(files[0], ".")+1:])
}

// Release lets a process go on that holds at the point. Who obeyed is forgotten with it.
func Release(folder, point string) error { return forget(folder, point) }

// Take claims the order for the point, if there is one for this process and this hit; otherwise the order it returns is to do Nothing.
func Take(folder, point string) (Order, error) {
	path := filepath.Join(folder, point)
	given, err := read(path)
	if err != nil || given.Act == Nothing || given.Process != 0 && given.Process != os.Getpid() {
		return Order{}, err
	}
	claimed := fmt.Sprintf("%s.claimed.%d.%d", path, os.Getpid(), claims.Add(1))
	if err := os.Rename(path, claimed); errors.Is(err, fs.ErrNotExist) {
		return Order{}, nil // somebody else was faster
	} else if err != nil {
		return Order{}, err
	}
	if given, err = read(claimed); err != nil { // it may have been another one by then
		return Order{}, err
	}
	if given.Hit > 1 {
		given.Hit--
		return Order{}, errors.Join(write(folder, point, given), remove(claimed))
	}
	given.claimed = path + obeyedMark + strconv.Itoa(os.Getpid())
	return given, os.Rename(claimed, given.claimed)
}

// claims tells the claims of this process apart.
var claims atomic.Int64

// read returns the order to do nothing if there is no such file.
func read(path string) (Order, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Order{}, nil
	}
	if err != nil {
		return Order{}, err
	}
	return parse(strings.TrimSpace(string(text)))
}

// WaitReleased returns when the test has released the process that holds.
func (o Order) WaitReleased() {
	for {
		if _, err := os.Stat(o.claimed); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const durationMark = ".duration"

// SetDuration is for processes that are started afterwards.
func SetDuration(folder, name string, value time.Duration) error {
	return os.WriteFile(filepath.Join(folder, name+durationMark), []byte(value.String()+"\n"), 0o600)
}

// Duration returns what a test has set, or else the usual value.
func Duration(folder, name string, usual time.Duration) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(folder, name+durationMark))
	if errors.Is(err, fs.ErrNotExist) {
		return usual, nil
	}
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(strings.TrimSpace(string(text)))
}
