package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cleavedb/cleave/saga"
)

// services are the three services, each an HTTP server of its own.
type services struct {
	addresses map[string]string
	servers   []*http.Server
	running   sync.WaitGroup
}

// service is one of them. It knows what it has been asked before by the idempotency key, and then answers as it did.
type service struct {
	name string
	out  io.Writer

	mu       sync.Mutex
	answered map[string]answer
	asked    int
}

type answer struct {
	status int
	body   string
}

func startServices(out io.Writer) (*services, error) {
	s := &services{addresses: map[string]string{}}
	for _, name := range []string{"stock", "payment", "shipping"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			s.close()
			return nil, err
		}
		server := &http.Server{Handler: &service{name: name, out: out, answered: map[string]answer{}}, ReadHeaderTimeout: time.Second}
		s.servers, s.addresses[name] = append(s.servers, server), "http://"+listener.Addr().String()
		s.running.Go(func() { _ = server.Serve(listener) })
	}
	return s, nil
}

func (s *services) close() {
	for _, server := range s.servers {
		_ = server.Close()
	}
	s.running.Wait()
}

// ServeHTTP answers a request once for each idempotency key.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.asked++
	if s.name == "payment" && s.asked == 1 { // so that there is something to try again
		fmt.Fprintf(s.out, "  %s: busy\n", s.name)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	a, known := s.answered[key]
	if !known {
		a = s.do(strings.Trim(r.URL.Path, "/"), o)
		s.answered[key] = a
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// do is what the service is for.
func (s *service) do(what string, o order) answer {
	if what == "ship" && o.To == "the Moon" {
		fmt.Fprintf(s.out, "  %s: refused\n", s.name)
		return answer{http.StatusUnprocessableEntity, "we do not ship to " + o.To}
	}
	fmt.Fprintf(s.out, "  %s: %s %s\n", s.name, what, o.Item)
	return answer{http.StatusOK, fmt.Sprintf("%s-%d", what, o.Number)}
}

// call is a step that asks a service. What the service refuses (4xx) is final: it was not done and will not be. Everything else may pass, and is tried again.
func (s *services) call(name, what string) func(context.Context, *saga.Call) (any, error) {
	return func(ctx context.Context, call *saga.Call) (any, error) {
		var o order
		if err := call.Input(&o); err != nil {
			return nil, err
		}
		body, err := json.Marshal(o)
		if err != nil {
			return nil, saga.Permanent(err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.addresses[name]+"/"+what, bytes.NewReader(body))
		if err != nil {
			return nil, saga.Permanent(err)
		}
		request.Header.Set("Idempotency-Key", call.IdempotencyKey)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		switch {
		case err != nil:
			return nil, err
		case response.StatusCode/100 == 4:
			return nil, saga.Permanent(fmt.Errorf("%s: %s", name, text))
		case response.StatusCode/100 != 2:
			return nil, fmt.Errorf("%s answered %s", name, response.Status)
		}
		return string(text), nil
	}
}
