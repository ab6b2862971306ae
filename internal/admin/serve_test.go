package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/topology"
)

// slow is a cluster whose map takes until it is told, or until the operation is cancelled.
type slow struct {
	failing
	begun  chan struct{}
	answer chan struct{}
}

func newSlow() slow {
	return slow{begun: make(chan struct{}, 1), answer: make(chan struct{})}
}

func (s slow) Map(ctx context.Context) (*topology.Map, error) {
	s.begun <- struct{}{}
	select {
	case <-s.answer:
		return topology.New("0192f0c1-2d3e-7a4b-8c5d-6e7f8a9b0c1d")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serving is a server that listens.
type serving struct {
	url   string
	stop  context.CancelFunc
	ended chan error
}

func serve(t *testing.T, s *Server) serving {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	running := serving{"http://" + listener.Addr().String(), stop, make(chan error, 1)}
	if s.config.TLS != nil {
		running.url = "https://" + listener.Addr().String()
	}
	go func() { running.ended <- s.Serve(ctx, listener) }()
	t.Cleanup(stop)
	return running
}

// getLater asks for the map in the background.
func getLater(t *testing.T, url string) <-chan answer {
	t.Helper()
	got := make(chan answer, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		response, err := client.Get(url + "/v1/map")
		if err != nil {
			got <- answer{body: err.Error()}
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		got <- answer{response.StatusCode, response.Header, string(body)}
	}()
	return got
}

func TestRunningOperationsMayFinish(t *testing.T) {
	cluster := newSlow()
	running := serve(t, newServer(t, Config{Cluster: cluster}))
	got := getLater(t, running.url)
	<-cluster.begun
	running.stop()
	waitUntilRefused(t, running.url)
	close(cluster.answer)
	if a := <-got; a.status != 200 || !strings.Contains(a.body, `"version":1`) {
		t.Errorf("the operation that was running: %d %s", a.status, a.body)
	}
	if err := <-running.ended; err != nil {
		t.Error(err)
	}
}

// waitUntilRefused waits until nobody listens any more.
func waitUntilRefused(t *testing.T, url string) {
	t.Helper()
	for {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return
		}
		_ = conn.Close()
		time.Sleep(time.Millisecond)
	}
}

func TestOperationsThatDoNotFinishAreCancelled(t *testing.T) {
	cluster := newSlow()
	running := serve(t, newServer(t, Config{Cluster: cluster, ShutdownTimeout: time.Millisecond}))
	got := getLater(t, running.url)
	<-cluster.begun
	running.stop()
	if a := <-got; a.status != 503 || errorIn(t, a).Code != "unavailable" {
		t.Errorf("the operation that was running: %d %s", a.status, a.body)
	}
	if err := <-running.ended; err != nil {
		t.Error(err)
	}
}

func TestOperationsEndInTime(t *testing.T) {
	running := serve(t, newServer(t, Config{Cluster: newSlow(), OperationTimeout: time.Millisecond}))
	if a := <-getLater(t, running.url); a.status != 504 || errorIn(t, a).Code != "timeout" {
		t.Errorf("answered %d %s", a.status, a.body)
	}
	running.stop()
	if err := <-running.ended; err != nil {
		t.Error(err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	running := serve(t, newServer(t, Config{}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequest(http.MethodGet, running.url+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Long", strings.Repeat("x", 2*headerLimit))
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answered %s", response.Status)
	}
	running.stop()
	if err := <-running.ended; err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	borrowed := httptest.NewUnstartedServer(http.NotFoundHandler())
	borrowed.StartTLS()
	certificate := borrowed.TLS.Certificates[0]
	client := borrowed.Client()
	borrowed.Close()
	running := serve(t, newServer(t, Config{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}}))
	response, err := client.Get(running.url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	client.CloseIdleConnections()
	if response.StatusCode != http.StatusOK || response.TLS == nil {
		t.Errorf("answered %s", response.Status)
	}
	running.stop()
	if err := <-running.ended; err != nil {
		t.Error(err)
	}
	if _, err := New(Config{Cluster: failing{}, TLS: &tls.Config{}}); err == nil {
		t.Error("TLS without a certificate was taken")
	}
}

func TestAListenerThatFails(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := newServer(t, Config{}).Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("served on a closed listener: %v", err)
	}
}

// patient takes longer than an operation may, if it may not carry rows.
type patient struct{ failing }

func (patient) UndistributeTables(ctx context.Context, _ control.TablesRequest) (api.TablesChanged, error) {
	select {
	case <-ctx.Done():
		return api.TablesChanged{}, ctx.Err()
	case <-time.After(30 * time.Millisecond):
		return api.TablesChanged{MapVersion: 7, Tables: []api.Table{}}, nil
	}
}

// TestCarryingRowsTakesAsLongAsThereAreRows: other operations end when their time is over.
func TestCarryingRowsTakesAsLongAsThereAreRows(t *testing.T) {
	s := newServer(t, Config{Cluster: patient{}, OperationTimeout: time.Millisecond})
	if got := ask(t, s, request{method: "POST", path: "/v1/tables/undistribute", body: `{"tables": ["x"]}`, header: asJSON}); got.status != 200 || !strings.Contains(got.body, `"map_version":7`) {
		t.Errorf("answered %d %s", got.status, got.body)
	}
}
