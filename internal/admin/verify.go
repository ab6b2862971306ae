package admin

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
)

// verify is asked by an operator. Who accepts lines hears how far it is, and the result last; everybody else the result alone.
func (s *Server) verify(w http.ResponseWriter, r *http.Request) error {
	asked, err := decode[api.Verify](r)
	if err != nil {
		return err
	}
	names, err := tableNames(asked.Tables)
	if err != nil {
		return err
	}
	request := control.VerifyRequest{
		Keyspace: asked.Keyspace, Tables: names, Shards: asked.Shards, Repair: asked.Repair, Prefer: asked.Prefer, Limit: asked.Limit, MaxRate: asked.MaxRate,
	}
	if !strings.Contains(r.Header.Get("Accept"), api.EventStream) {
		found, err := s.config.Cluster.Verify(r.Context(), request)
		if err != nil {
			return err
		}
		return reply(w, http.StatusOK, found)
	}
	lines := &eventStream{w: w}
	request.Progress = func(p api.VerifyProgress) { lines.write(api.VerifyEvent{Progress: &p}) }
	found, err := s.config.Cluster.Verify(r.Context(), request)
	switch {
	case err == nil:
		lines.write(api.VerifyEvent{Result: &found})
	case !lines.begun:
		return err
	default: // the status is sent, so this is the last line
		answer := translate(err).answer
		lines.write(api.VerifyEvent{Error: &answer})
	}
	return nil // if a line could not be written, nobody hears this either
}

// eventStream writes an answer line by line, as there is something to say.
type eventStream struct {
	w     http.ResponseWriter
	begun bool
	gone  bool // whoever asked; the operation ends with them
}

func (e *eventStream) write(event api.VerifyEvent) {
	if e.gone {
		return
	}
	line, err := json.Marshal(event)
	if err == nil {
		if !e.begun {
			e.begun = true
			header := e.w.Header()
			header.Set("Content-Type", api.EventStream)
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Cache-Control", "no-store")
			e.w.WriteHeader(http.StatusOK)
		}
		_, err = e.w.Write(append(line, '\n'))
	}
	if err == nil {
		err = http.NewResponseController(e.w).Flush()
	}
	e.gone = err != nil
}
