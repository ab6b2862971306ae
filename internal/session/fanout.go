package session

import (
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/wire"
)

// fanout is what becomes of statements that run on shards which no key of theirs names: the parameter cleave.fanout.
type fanout string

const (
	fanoutParameter = "cleave.fanout"

	fanoutOn   fanout = "on"
	fanoutWarn fanout = "warn"
	fanoutOff  fanout = "off"
)

// currentFanout is the session's, or what the role has, or on.
func (s *session) currentFanout() fanout {
	if s.fanout != "" {
		return s.fanout
	}
	if s.defaults != nil {
		if of, known := fanoutOf(s.defaults.fanout); known {
			return of
		}
	}
	return fanoutOn
}

func fanoutOf(text string) (fanout, bool) {
	of := fanout(strings.ToLower(strings.TrimSpace(text)))
	return of, slices.Contains([]fanout{fanoutOn, fanoutWarn, fanoutOff}, of)
}

// setFanout is SET cleave.fanout.
func (s *session) setFanout(e plan.Setting) *pgerr.Error {
	if e.Default {
		s.fanout = s.firstFanout
		return nil
	}
	of, known := fanoutOf(strings.Join(e.Values, ","))
	if !known {
		return wrongFanout(strings.Join(e.Values, ", "))
	}
	s.fanout = of
	return nil
}

func wrongFanout(value string) *pgerr.Error {
	return pgerr.New(pgerr.InvalidParameterValue, "invalid value for parameter \"%s\": \"%s\"", fanoutParameter, value).WithHint("Available values: on, warn, off.")
}

// mayFanOut refuses a statement that runs on shards which no key of its names, or warns of it, if the client or its role wants that.
func (s *session) mayFanOut(st *plan.Statement, shards []int) *pgerr.Error {
	if len(shards) < 2 {
		return nil
	}
	switch s.currentFanout() {
	case fanoutOff:
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "%s would run on %d shards, and cleave.fanout is off", st.Name, len(shards)).
			WithDetail("No key of its sharded tables says which shards have what it needs.").WithHint("Bind the key to a value; or SET cleave.fanout = on for this session.")
	case fanoutWarn:
		s.addLocal(wire.AppendNotice(nil, "WARNING", pgerr.New("01000", "%s runs on %d shards", st.Name, len(shards)).
			WithDetail("No key of its sharded tables says which shards have what it needs.")))
	case fanoutOn:
	}
	return nil
}

// mayScatter is mayFanOut for the shards that a statement wants, if no key of it names them.
func (s *session) mayScatter(st *plan.Statement, scatters bool) *pgerr.Error {
	if !scatters {
		return nil
	}
	return s.mayFanOut(st, s.wanted)
}

// fansOut says whether a statement goes to shards that no key of it names.
func fansOut(route *plan.Route) bool {
	return route.Level == plan.Several && (route.All || len(route.Bounds) > 0)
}
