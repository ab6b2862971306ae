package processes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// process is a running 'cleave serve'.
type process struct {
	name    string
	command *exec.Cmd
	errors  transcript
	ended   chan error
	file    string // its configuration
	listen  string // where PostgreSQL clients connect
	api     *api.Client
}

// transcript is what a process has said so far.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *transcript) Write(part []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(part)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// serve runs 'cleave serve' with a file of these lines besides the addresses, and waits until its API answers.
func serve(t *testing.T, name string, endpoints []string, lines ...string) *process {
	t.Helper()
	p := configure(t, name, endpoints, lines...)
	p.start(t)
	address := strings.TrimPrefix(p.api.BaseURL, "http://")
	eventually(t, name+" answers", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return p
}

// configure writes the file.
func configure(t *testing.T, name string, endpoints []string, lines ...string) *process {
	t.Helper()
	http := cluster.FreeAddress(t)
	p := &process{name: name, listen: cluster.FreeAddress(t), file: filepath.Join(t.TempDir(), "cleave.yaml"), api: &api.Client{BaseURL: "http://" + http}}
	content := append([]string{
		"router_name: " + name, "listen: " + p.listen, "etcd:", "  endpoints: [" + strings.Join(endpoints, ", ") + "]", "  lease_ttl: 2s",
	}, lines...)
	if !strings.Contains(strings.Join(lines, "\n"), "http:") {
		content = append(content, "http:", "  listen: "+http)
	}
	text := strings.ReplaceAll(strings.Join(content, "\n")+"\n", "HTTP_ADDRESS", http)
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs it. It is killed when the test ends.
func (p *process) start(t *testing.T) {
	t.Helper()
	path, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	p.ended = make(chan error, 1)
	p.command = exec.Command(path, "serve", "--config", p.file)
	p.command.Stderr = &p.errors
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		p.ended <- p.command.Wait()
	}()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		<-waited
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, p.errors.String())
		}
	})
}

// end waits until it has ended by itself or because it was told to, in order.
func (p *process) end(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("%s did not end in order: %v", p.name, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s does not end", p.name)
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("in a minute it did not come to pass that %s", what)
}

func startEtcd(t *testing.T) *store.Embedded {
	t.Helper()
	embedded, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(embedded.Close)
	return embedded
}

// urls are etcd's addresses as a configuration has them.
func urls(endpoints []string) []string {
	list := make([]string, len(endpoints))
	for i, e := range endpoints {
		list[i] = e
		if !strings.Contains(e, "://") {
			list[i] = "http://" + e
		}
	}
	return list
}

var trusted = []string{"shards:", "  user: postgres", "  database: postgres", "  sslmode: disable"}

func addRequest(name string, server *localpg.Server) api.AddShard {
	request := api.AddShard{}
	request.Name, request.Primary.Address = name, server.Addr()
	return request
}

func ready(p *process) bool {
	answer, err := http.Get(p.api.BaseURL + "/readyz")
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func TestSeveralProcessesServeOneCluster(t *testing.T) {
	thorough.Only(t)
	servers := pgtest.StartN(t, 2)
	etcd := startEtcd(t)
	first := serve(t, "first", urls(etcd.Endpoints()), routerLines...)
	if ready(first) {
		t.Error("ready without a map")
	}
	var refused *api.RequestError
	if _, err := first.api.AddShard(t.Context(), addRequest("s1", servers[0])); !errors.As(err, &refused) || refused.Answer.Code != "no_map" {
		t.Errorf("a shard without a map: %v", err)
	}
	if _, err := first.api.CreateMap(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := serve(t, "second", urls(etcd.Endpoints()), routerLines...)
	for i, p := range []*process{first, second} {
		if _, err := p.api.AddShard(t.Context(), addRequest(fmt.Sprintf("s%d", i+1), servers[i])); err != nil {
			t.Fatal(err)
		}
	}
	settled := func(p *process) func() bool {
		return func() bool {
			status, err := p.api.Status(t.Context())
			return err == nil && len(status.Routers) == 2 && len(status.Shards) == 2 && len(status.Findings) == 0 && ready(p) &&
				status.Routers[0].Applied == status.MapVersion && status.Routers[1].Applied == status.MapVersion
		}
	}
	eventually(t, "both processes have applied the map and all shards have recorded it", func() bool { return settled(first)() && settled(second)() })

	// The one that leads is killed outright; the other goes on, and the shards are told by it.
	status, err := first.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader, other := first, second
	if status.Leader == "second" {
		leader, other = second, first
	}
	if err := leader.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-leader.ended
	request := api.CreateKeyspace{Name: "users", Algorithm: "ring"}
	if _, err := other.api.CreateKeyspace(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other leads, the dead one's record is gone, and the shards have recorded the keyspace", func() bool {
		status, err := other.api.Status(t.Context())
		return err == nil && len(status.Routers) == 1 && status.Leader != "" && len(status.Findings) == 0
	})

	// Etcd goes away: the process stays ready, says so, and refuses changes.
	etcd.Close()
	eventually(t, "etcd is missed", func() bool {
		status, err := other.api.Status(t.Context())
		return err == nil && !status.Store.Connected && ready(other)
	})
	if _, err := other.api.DropKeyspace(t.Context(), "users"); !errors.As(err, &refused) || refused.Status != http.StatusServiceUnavailable {
		t.Errorf("a change without etcd: %v", err)
	}
	if err := other.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	other.end(t) // though etcd is away
}

func TestAProcessStartsBeforeEtcd(t *testing.T) {
	address := cluster.FreeAddress(t)
	p := serve(t, "early", []string{"http://" + address}, trusted...)
	if ready(p) {
		t.Error("ready without etcd")
	}
	answer, err := http.Get(p.api.BaseURL + "/healthz")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("not healthy: %v", err)
	}
	_ = answer.Body.Close()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	embedded, err := store.StartEmbedded(t.Context(), store.EmbeddedConfig{Dir: t.TempDir(), Fast: true, ClientPort: number})
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	eventually(t, "a map can be made", func() bool {
		_, err := p.api.CreateMap(t.Context())
		return err == nil
	})
	eventually(t, "it is ready", func() bool { return ready(p) })
}

func TestTheAPIOverTLSWithAToken(t *testing.T) {
	etcd := startEtcd(t)
	folder := t.TempDir()
	authority := certificate(t, folder)
	token := filepath.Join(folder, "token")
	if err := os.WriteFile(token, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "secure", urls(etcd.Endpoints()), append(trusted,
		"http:", "  listen: HTTP_ADDRESS", "  token: {file: "+token+"}", "  tls:", "    cert_file: "+filepath.Join(folder, "cert.pem"), "    key_file: "+filepath.Join(folder, "key.pem"))...)
	client := &api.Client{
		BaseURL: strings.Replace(p.api.BaseURL, "http:", "https:", 1),
		HTTP:    &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}}},
	}
	defer client.HTTP.CloseIdleConnections()
	var refused *api.RequestError
	if _, err := client.Status(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
		t.Errorf("without a token: %v", err)
	}
	client.Token = "open sesame"
	if _, err := client.CreateMap(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := p.api.Status(t.Context()); err == nil {
		t.Error("it answers over plain HTTP")
	}
}

// certificate writes one for 127.0.0.1, signed by itself.
func certificate(t *testing.T, folder string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cleave"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	for name, content := range map[string][]byte{"cert.pem": public, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(public)
	return pool
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	path, err := cluster.Binary()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		t.Skip("it builds the binary: not with -short")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	run := func(variables ...string) (string, int) {
		command := exec.Command(path, "serve", "--config", "")
		command.Env = append(os.Environ(), variables...)
		output, err := command.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatalf("%v: %v", variables, err)
		}
		return strings.TrimSpace(string(output)), exit.ExitCode()
	}
	free := cluster.FreeAddress(t)
	for _, c := range []struct {
		variables []string
		code      int
		want      string
	}{
		{[]string{"CLEAVE_LISTEN=" + free, "CLEAVE_HTTP_LISTEN=" + taken.Addr().String()}, 1, "address already in use"},
		{[]string{"CLEAVE_HTTP_LISTEN=0.0.0.0:0"}, 2, "token"},
		{[]string{"CLEAVE_ETCD_ENDPOINTS=nonsense"}, 2, "etcd.endpoints"},
		{[]string{"CLEAVE_LISTEN=" + free, "CLEAVE_HTTP_LISTEN=127.0.0.1:0", "CLEAVE_ETCD_USERNAME=me", "CLEAVE_ETCD_PASSWORD=file:/nowhere"}, 1, "/nowhere"},
	} {
		output, code := run(c.variables...)
		if code != c.code || !strings.Contains(output, c.want) {
			t.Errorf("%v: exit code %d, %s", c.variables, code, output)
		}
	}
}
