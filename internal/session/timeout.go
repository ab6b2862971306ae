package session

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/wire"
)

// Every shard ends what it runs by the session's statement_timeout itself. A statement that runs in steps has that time for all of them, so the router looks at the
// clock as well: when the time is over it cancels whatever step there is, as the client could.

// timeUnits are those in which PostgreSQL takes a time, but for microseconds, which are none here.
var timeUnits = map[string]time.Duration{"": time.Millisecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// timeoutOf reads a time as settings have it; 0 if it is none, or cannot be read: then shards alone look at it.
func timeoutOf(text string) time.Duration {
	text = strings.TrimSpace(text)
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	number, err := strconv.ParseFloat(digits, 64)
	if err != nil || number < 0 {
		return 0
	}
	return time.Duration(number * float64(timeUnits[strings.TrimSpace(text[len(digits):])]))
}

// statementTimeout is how long a statement may take; 0: as long as it likes.
func (s *session) statementTimeout() time.Duration {
	if e, set := s.effective().find("statement_timeout"); set && len(e.values) == 1 {
		return timeoutOf(e.values[0])
	}
	if s.defaults == nil {
		return 0
	}
	return timeoutOf(s.defaults.timeout)
}

// limitTime ends what the session does when the time of a statement is over, until the function that it returns is called.
func (s *session) limitTime() (end func()) {
	limit := s.statementTimeout()
	if limit == 0 || s.timing != nil {
		return func() {}
	}
	timing := new(byte)
	s.mu.Lock()
	s.timing = timing
	s.mu.Unlock()
	timer := time.AfterFunc(limit, func() { s.timeOut(timing) })
	return func() {
		timer.Stop()
		s.mu.Lock() // which waits for what is being cancelled
		s.timing = nil
		s.mu.Unlock()
		if s.timedOut.Swap(false) {
			s.cancelled.Store(false)
		}
	}
}

func (s *session) timeOut(timing *byte) {
	ctx, cancel := context.WithTimeout(s.ctx, cancelTimeout)
	defer cancel()
	s.mu.cancel(func() func() {
		if s.timing != timing {
			return nil
		}
		s.timedOut.Store(true)
		return s.canceller(ctx)
	})
}

// asTimedOut makes the error of a statement that was cancelled because its time was over what PostgreSQL says of that.
func (s *session) asTimedOut(f *wire.Fields) bool {
	if f.Code != pgerr.QueryCanceled || !s.timedOut.Load() {
		return false
	}
	f.Message = errTimeout.Message
	return true
}

// goesOn says whether the next step of a statement may begin: it may have been cancelled between two, when no shard did anything.
func (s *session) goesOn() *pgerr.Error {
	if !s.cancelled.Swap(false) {
		return nil
	}
	return s.cancellation()
}
