package localpg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// logLimit is how large a log may be for a start to go on with it; a larger one is put aside.
const logLimit = 16 << 20

// openLog opens the server's log for appending and says where it ends now.
func openLog(path string) (*os.File, int64, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, 0, fmt.Errorf("put the old log aside: %w", err)
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open the server's log: %w", err)
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open the server's log: %w", err), file.Close())
	}
	return file, end, nil
}

// tailBytes is enough for the lines that a failure is explained with.
const tailBytes = 64 << 10

// readLog returns the end of what was written from the offset on.
func readLog(path string, offset int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	offset = max(offset, info.Size()-tailBytes)
	text, err := io.ReadAll(io.NewSectionReader(file, offset, tailBytes))
	if err != nil {
		return ""
	}
	return string(text)
}

func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}

var (
	fatalLine   = regexp.MustCompile(`(FATAL|PANIC): +(.*)`)
	bindLine    = regexp.MustCompile(`LOG: +(could not bind .*)`)
	furtherLine = regexp.MustCompile(`(DETAIL|HINT): +(.*)`)
	// toClients are refusals of connections, which come while a server starts or stops and explain nothing.
	toClients = regexp.MustCompile(`the database system is |role .* does not exist|database .* does not exist|password authentication failed|terminating connection`)
)

// lastFailure is the reason of a failed start: the last fatal line, what the server says further of it, and why a port
// could not be had. Without a fatal line it is the end of the log.
func lastFailure(log string) string {
	var reason []string
	var bind string
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		if match := bindLine.FindStringSubmatch(line); match != nil {
			bind = match[1]
		}
		if match := fatalLine.FindStringSubmatch(line); match != nil && !toClients.MatchString(line) {
			reason = []string{match[2]}
		} else if match := furtherLine.FindStringSubmatch(line); match != nil && len(reason) > 0 {
			reason = append(reason, strings.ToLower(match[1])+": "+match[2])
		}
	}
	if log == "" {
		return "its log is empty"
	}
	if len(reason) == 0 {
		return lastLines(log, 5)
	}
	if bind != "" {
		reason = append(reason, bind)
	}
	return strings.Join(reason, "; ")
}

// portTaken says whether the log tells of a port that another program has.
func portTaken(log string) bool {
	return bindLine.MatchString(log) && strings.Contains(log, "in use")
}

// memoryBusy says whether the log tells of processes of an earlier server that are still ending.
func memoryBusy(log string) bool {
	return strings.Contains(log, "pre-existing shared memory block")
}
