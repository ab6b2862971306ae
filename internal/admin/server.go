package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

const (
	// headerTimeout is how long the head of a request may take: it is small, and who dawdles over it holds a connection.
	headerTimeout = 10 * time.Second
	// headerLimit is far above what our clients send.
	headerLimit = 64 << 10
	// answerTime is what an answer may take to be sent, beside the operation.
	answerTime = time.Minute
	// lastWords is how long cancelled operations may take to notice.
	lastWords = 5 * time.Second
)

// Server serves the API. Make it with [New].
type Server struct {
	config  Config
	token   [sha256.Size]byte
	origins *http.CrossOriginProtection
	metrics *metrics
	handler http.Handler
}

// New returns a server that does not listen yet.
func New(config Config) (*Server, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	observed, err := newMetrics(config.Registry)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	s := &Server{
		config: config, token: sha256.Sum256([]byte(config.Token)),
		origins: http.NewCrossOriginProtection(), metrics: observed,
	}
	s.handler = s.newHandler()
	return s, nil
}

// Handler returns the API as a handler, for who has a server of their own.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers on the listener, which it closes, until the context ends. Then running operations may finish for a while,
// after which they are cancelled. It returns nil if it ended because it was told to.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	operations, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := s.httpServer(operations)
	ended := make(chan error, 1)
	go func() { ended <- s.listen(server, listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the HTTP API: %w", err)
	case <-ctx.Done():
	}
	err := s.shutDown(ctx, server, cancel)
	<-ended
	return err
}

func (s *Server) httpServer(operations context.Context) *http.Server {
	return &http.Server{
		Handler:           s.handler,
		TLSConfig:         s.config.TLS,
		ReadHeaderTimeout: min(headerTimeout, s.config.ReadTimeout),
		ReadTimeout:       s.config.ReadTimeout,
		WriteTimeout:      s.config.ReadTimeout + s.config.OperationTimeout + answerTime,
		IdleTimeout:       s.config.IdleTimeout,
		MaxHeaderBytes:    headerLimit,
		// What it has to tell are the mistakes of strangers, such as a failed handshake.
		ErrorLog:    slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return operations },
	}
}

func (s *Server) listen(server *http.Server, listener net.Listener) error {
	if s.config.TLS != nil {
		return server.ServeTLS(listener, "", "")
	}
	return server.Serve(listener)
}

// shutDown waits for running operations, then cancels them, then cuts the connections.
func (s *Server) shutDown(ctx context.Context, server *http.Server, cancelOperations func()) error {
	ctx = context.WithoutCancel(ctx)
	if endsWithin(ctx, server, s.config.ShutdownTimeout) {
		return nil
	}
	cancelOperations()
	if endsWithin(ctx, server, lastWords) {
		return nil
	}
	return errors.Join(errors.New("the HTTP API was ended in the middle of an operation"), server.Close())
}

func endsWithin(ctx context.Context, server *http.Server, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return server.Shutdown(ctx) == nil
}

// serve makes a handler of a route: it guards, bounds, observes, and turns errors into answers.
func (s *Server) serve(r route) http.Handler {
	observe := s.metrics.route(r.method, r.path)
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		started := time.Now()
		out := &recorder{ResponseWriter: w, status: http.StatusOK}
		if err := s.attempt(r, out, request); err != nil {
			s.answerError(out, request, err)
		}
		took := time.Since(started)
		observe.note(out.status, took)
		s.config.Logger.DebugContext(request.Context(), "request", "method", request.Method, "path", request.URL.Path,
			"status", out.status, "bytes", out.bytes, "took", took, "remote", request.RemoteAddr)
	})
}

// attempt runs the operation. One that panics costs its caller the answer, and nobody else anything.
func (s *Server) attempt(r route, w http.ResponseWriter, request *http.Request) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the operation failed: %v", panicked)
			s.config.Logger.Error("an operation panicked", "path", request.URL.Path, "panic", panicked, "stack", string(debug.Stack()))
		}
	}()
	if err := s.guard(r, request); err != nil {
		return err
	}
	ctx, cancel := s.bounded(r, w, request)
	defer cancel()
	request = request.WithContext(ctx)
	request.Body = http.MaxBytesReader(w, request.Body, r.limit)
	return r.handle(s, w, request)
}

// bounded limits how long an operation may take, unless it carries rows, which takes as long as there are rows: it ends with who asked.
func (s *Server) bounded(r route, w http.ResponseWriter, request *http.Request) (context.Context, context.CancelFunc) {
	if !r.carriesRows() {
		return context.WithTimeout(request.Context(), s.config.OperationTimeout)
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
		s.config.Logger.Debug("an answer that takes long will be cut off", "path", request.URL.Path, "error", err)
	}
	return context.WithCancel(request.Context())
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(content []byte) (int, error) {
	n, err := r.ResponseWriter.Write(content)
	r.bytes += n
	return n, err
}

// Unwrap lets the standard library reach what it needs of the original.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
