package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cleavedb/cleave/internal/config"
	"github.com/cleavedb/cleave/internal/secret"
)

// load loads the text as a file, with these environment variables.
func load(t testing.TB, text string, environ ...string) (config.Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("cleave.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load("cleave.yaml", environ)
}

func mustLoad(t *testing.T, text string, environ ...string) config.Config {
	t.Helper()
	c, err := load(t, text, environ...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// values compares two configurations without where their values came from.
func values(want, got config.Config) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Config{}))
}

func TestDefaultsAreInOrder(t *testing.T) {
	c, err := config.Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := values(config.Default(), c); diff != "" {
		t.Error(diff)
	}
	if warnings := c.Warnings(); len(warnings) > 0 {
		t.Errorf("the defaults warn of %q", warnings)
	}
	for _, text := range []string{"", "# nothing\n", "etcd:\nhttp:\n  tls:\n", "---\ncluster:\n", "etcd: ~\n"} {
		if diff := values(config.Default(), mustLoad(t, text)); diff != "" {
			t.Errorf("%q changes the defaults: %s", text, diff)
		}
	}
}

const everything = `
cluster: orders
router_name: 007
listen: 127.0.0.1:5433
handover_socket: /run/handover.sock
tls: {cert_file: /router.pem, key_file: /router.key, client_ca_file: /router-clients.pem}
auth:
  rules:
    - hostssl all all all cert
    - host all all loopback trust
  users_file: /users.txt
pool:
  mode: session
  per_shard: 7
  total: 70
  min_idle: 2
  queue_timeout: 3s
  idle_timeout: 4m
  max_age: 5h
  logins_at_once: 6
  logins_per_second: 8
limits:
  clients: 9
  max_message: 100000
  startup_timeout: 11s
  hold_timeout: 12s
  drain_timeout: 13s
  plans: 14
  rows_memory: 100001
  rows_files: 15
  pull_memory: 100002
  pull_size: 100003
  given_rows: 100004
  array_rows: 100005
etcd:
  endpoints: [https://a:2379, "https://b:2379"]
  username: cleave
  password: {file: /etc/cleave/etcd-password}
  tls: {ca_file: /ca.pem, cert_file: /cert.pem, key_file: /key.pem, server_name: etcd.internal}
  request_timeout: 1m30s
  lease_ttl: 20s
http:
  listen: 0.0.0.0:8432
  token: env:HTTP_TOKEN
  tls:
    cert_file: /http.pem
    key_file: /http.key
    client_ca_file: /clients.pem
shards:
  user: postgres
  password:
    env: SHARDS_PASSWORD
  database: app
  sslmode: verify-ca
  root_ca_file: /shards.pem
  connect_timeout: 700ms
health:
  interval: 5s
  timeout: 5s
log:
  level: debug
  format: json
`

func everythingParsed() config.Config {
	return config.Config{
		Cluster: "orders", RouterName: "007", Listen: "127.0.0.1:5433", HandoverSocket: "/run/handover.sock",
		TLS:  config.TLS{CertFile: "/router.pem", KeyFile: "/router.key", ClientCAFile: "/router-clients.pem"},
		Auth: config.Auth{Rules: []string{"hostssl all all all cert", "host all all loopback trust"}, UsersFile: "/users.txt"},
		Pool: config.Pool{
			Mode: config.PoolSession, PerShard: 7, Total: 70, MinIdle: 2, QueueTimeout: 3 * time.Second, IdleTimeout: 4 * time.Minute,
			MaxAge: 5 * time.Hour, LoginsAtOnce: 6, LoginsPerSecond: 8,
		},
		Limits: config.Limits{
			Clients: 9, MaxMessage: 100000, StartupTimeout: 11 * time.Second, HoldTimeout: 12 * time.Second, DrainTimeout: 13 * time.Second, Plans: 14,
			RowsMemory: 100001, RowsFiles: 15, PullMemory: 100002, PullSize: 100003, GivenRows: 100004, ArrayRows: 100005,
		},
		Etcd: config.Etcd{
			Endpoints: []string{"https://a:2379", "https://b:2379"}, Username: "cleave",
			Password:       secret.Reference{File: "/etc/cleave/etcd-password"},
			TLS:            config.EtcdTLS{CAFile: "/ca.pem", CertFile: "/cert.pem", KeyFile: "/key.pem", ServerName: "etcd.internal"},
			RequestTimeout: 90 * time.Second, LeaseTTL: 20 * time.Second,
		},
		HTTP: config.HTTP{
			Listen: "0.0.0.0:8432", Token: secret.Reference{Env: "HTTP_TOKEN"},
			TLS: config.HTTPTLS{CertFile: "/http.pem", KeyFile: "/http.key", ClientCAFile: "/clients.pem"},
		},
		Shards: config.Shards{
			User: "postgres", Password: secret.Reference{Env: "SHARDS_PASSWORD"}, Database: "app",
			SSLMode: config.SSLVerifyCA, RootCAFile: "/shards.pem", ConnectTimeout: 700 * time.Millisecond,
		},
		Health: config.Health{Interval: 5 * time.Second, Timeout: 5 * time.Second},
		Log:    config.Log{Level: "debug", Format: config.LogJSON},
	}
}

func TestEveryFieldCanBeSetInTheFile(t *testing.T) {
	c := mustLoad(t, everything)
	if diff := values(everythingParsed(), c); diff != "" {
		t.Error(diff)
	}
	for _, f := range config.Fields() {
		if c.Origin(f.Path).Source != config.FromFile {
			t.Errorf("%s is from %v", f.Path, c.Origin(f.Path))
		}
	}
	if got := c.Origin("shards.sslmode").Place; got != "cleave.yaml:54" {
		t.Errorf("sslmode is said to stand at %s", got)
	}
}

// TestEveryFieldCanBeSetInTheEnvironment: what the file can say, variables can, in the text that Value gives.
func TestEveryFieldCanBeSetInTheEnvironment(t *testing.T) {
	want := everythingParsed()
	var environ []string
	for _, f := range config.Fields() {
		environ = append(environ, f.Env+"="+want.Value(f.Path))
	}
	c := mustLoad(t, "cluster: other\n", environ...)
	if diff := values(want, c); diff != "" {
		t.Error(diff)
	}
	for _, f := range config.Fields() {
		if origin := (config.Origin{Source: config.FromEnvironment, Place: f.Env}); c.Origin(f.Path) != origin {
			t.Errorf("%s is from %v", f.Path, c.Origin(f.Path))
		}
	}
}

func TestPrecedence(t *testing.T) {
	c := mustLoad(t, "cluster: file\nlog: {level: warn}\n", "CLEAVE_CLUSTER=environment", "CLEAVE_LOG_LEVEL=", "HOME=/root", "CLEAVE")
	if c.Cluster != "environment" || c.Log.Level != "warn" || c.Log.Format != config.LogText {
		t.Errorf("cluster %s, level %s, format %s", c.Cluster, c.Log.Level, c.Log.Format)
	}
	for path, want := range map[string]config.Source{
		"cluster": config.FromEnvironment, "log.level": config.FromFile, "log.format": config.FromDefault,
	} {
		if got := c.Origin(path).Source; got != want {
			t.Errorf("%s is from %s, want %s", path, got, want)
		}
	}
}

func TestLists(t *testing.T) {
	want := []string{"http://a:1", "http://b:2"}
	for _, text := range []string{"[http://a:1, http://b:2]", "\n    - http://a:1\n    - http://b:2", "http://a:1, http://b:2"} {
		if diff := cmp.Diff(want, mustLoad(t, "etcd:\n  endpoints: "+text+"\n").Etcd.Endpoints); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	if diff := cmp.Diff(want, mustLoad(t, "", "CLEAVE_ETCD_ENDPOINTS=http://a:1 ,http://b:2,").Etcd.Endpoints); diff != "" {
		t.Error(diff)
	}
}

// TestAVariableMayHoldTheSecret as people expect of one called PASSWORD; what is kept is still a reference.
func TestAVariableMayHoldTheSecret(t *testing.T) {
	for value, want := range map[string]secret.Reference{
		"hunter2":    {Env: "CLEAVE_SHARDS_PASSWORD"},
		"file:/pw":   {File: "/pw"},
		"env:OTHERS": {Env: "OTHERS"},
	} {
		for _, text := range []string{"", "shards: {password: {env: CLEAVE_SHARDS_PASSWORD}}\n"} {
			if got := mustLoad(t, text, "CLEAVE_SHARDS_PASSWORD="+value).Shards.Password; got != want {
				t.Errorf("%s is %#v, want %#v", value, got, want)
			}
		}
	}
}

// problems is one case of what is refused, a line each.
type problems struct {
	text    string
	environ []string
	want    []string
}

func TestWhatIsRefused(t *testing.T) {
	for name, of := range map[string]problems{
		"unknown field":      {"cluser: a\n", nil, []string{"cleave.yaml:1: cluser: there is no such field: did you mean cluster?"}},
		"unknown in section": {"log:\n  colour: red\n", nil, []string{"cleave.yaml:2: log.colour: there is no such field: known here are log.level, log.format"}},
		"twice":              {"cluster: a\ncluster: b\n", nil, []string{`cleave.yaml:2: it is not YAML: mapping key "cluster" already defined at [1:1]`}},
		"not a section":      {"etcd: http://a:1\n", nil, []string{"cleave.yaml:1: etcd: it is a section: write its fields as name: value, one a line, indented"}},
		"not a mapping":      {"- cluster\n", nil, []string{"cleave.yaml:1: it is a section: write its fields as name: value, one a line, indented"}},
		"section as value":   {"cluster: {name: a}\n", nil, []string{"cleave.yaml:1: cluster: a single value is wanted: write it behind the colon, without lists, fields, tags or anchors"}},
		"alias":              {"cluster: &a x\nrouter_name: *a\n", nil, []string{"cleave.yaml:1: cluster: a single", "cleave.yaml:2: router_name: a single"}},
		"merge":              {"log:\n  <<: {level: info}\n", nil, []string{"cleave.yaml:2: log.<<: there is no such field"}},
		"two documents":      {"cluster: a\n---\ncluster: b\n", nil, []string{"cleave.yaml: there is more than one YAML document"}},
		"list in list":       {"etcd: {endpoints: [[a]]}\n", nil, []string{"cleave.yaml:1: etcd.endpoints: a single value"}},
		"duration":           {"health:\n  interval: 5\n", nil, []string{`cleave.yaml:2: health.interval: "5" is not a duration: write one such as 500ms, 5s or 1m30s`}},
		"variable":           {"", []string{"CLEAVE_HEALTH_INTERVAL=soon"}, []string{`CLEAVE_HEALTH_INTERVAL: health.interval: "soon" is not a duration`}},
		"cluster":            {"cluster: A/b\n", nil, []string{`cleave.yaml:1: cluster: "A/b" is no name for a cluster`}},
		"router":             {"router_name: a b\n", nil, []string{`cleave.yaml:1: router_name: "a b" is no name for a router`}},
		"listen":             {"listen: here\n", nil, []string{`cleave.yaml:1: listen: "here" is no address to listen on`}},
		"port":               {"listen: 127.0.0.1:70000\n", nil, []string{`cleave.yaml:1: listen: "127.0.0.1:70000" is no address`}},
		"port with zero":     {"listen: 127.0.0.1:06432\n", nil, []string{`cleave.yaml:1: listen: "127.0.0.1:06432": write the port as 6432`}},
		"URL to listen":      {"http: {listen: 'http://127.0.0.1:80'}\n", nil, []string{`cleave.yaml:1: http.listen: "http://127.0.0.1:80" is no address`}},
		"one address":        {"listen: 127.0.0.1:8432\n", nil, []string{"cleave.yaml:1: http.listen: listen has the same address 127.0.0.1:8432: give each its own port"}},
		"no endpoints":       {"etcd: {endpoints: []}\n", nil, []string{"cleave.yaml:1: etcd.endpoints: there are none"}},
		"endpoints": {
			"etcd: {endpoints: ['a:1', 'http://a', 'ftp://a:1', 'http://a:1/x', 'http://a:1?x', '%']}\n", nil,
			[]string{
				`cleave.yaml:1: etcd.endpoints: "a:1" is no endpoint`, `cleave.yaml:1: etcd.endpoints: "http://a" is no endpoint`,
				`cleave.yaml:1: etcd.endpoints: "ftp://a:1" is no endpoint`, `cleave.yaml:1: etcd.endpoints: "http://a:1/x" is no endpoint`,
				`cleave.yaml:1: etcd.endpoints: "http://a:1?x" is no endpoint`, `cleave.yaml:1: etcd.endpoints: number 6 is no plain URL`,
			},
		},
		"TLS without https": {"etcd: {tls: {ca_file: /ca.pem}}\n", nil, []string{`etcd.endpoints: "http://127.0.0.1:2379" does not use TLS, for which etcd.tls has fields`}},
		"user":              {"etcd: {username: a}\n", nil, []string{`cleave.yaml:1: etcd.password: user "a" needs a password`}},
		"password":          {"etcd: {password: env:A}\n", nil, []string{"cleave.yaml:1: etcd.username: there is a password and no user"}},
		"lease":             {"etcd: {lease_ttl: 1s}\n", nil, []string{"cleave.yaml:1: etcd.lease_ttl: 1s is no time for a lease: use whole seconds, at least 2s"}},
		"split seconds":     {"etcd: {lease_ttl: 2500ms}\n", nil, []string{"cleave.yaml:1: etcd.lease_ttl: 2.5s is no time for a lease"}},
		"timeout":           {"etcd: {request_timeout: -1s}\n", nil, []string{"cleave.yaml:1: etcd.request_timeout: -1s is not above zero"}},
		"key alone":         {"http: {tls: {key_file: /k}}\n", nil, []string{"cleave.yaml:1: http.tls.cert_file: http.tls.key_file is set: this is needed too"}},
		"certificate alone": {"http: {tls: {cert_file: /c}}\n", nil, []string{"cleave.yaml:1: http.tls.key_file: http.tls.cert_file is set: this is needed too"}},
		"clients without":   {"http: {tls: {client_ca_file: /c}}\n", nil, []string{"cleave.yaml:1: http.tls.cert_file: callers show certificates only over https"}},
		"open door": {
			"http:\n  listen: :8432\n", nil,
			[]string{"cleave.yaml:2: http.token: other machines reach http.listen :8432: refer to a token", "cleave.yaml:2: http.tls.cert_file: other machines reach http.listen :8432: name a certificate"},
		},
		"open door from outside": {
			"http: {token: env:T}\n", []string{"CLEAVE_HTTP_LISTEN=db.example.com:8432"},
			[]string{"CLEAVE_HTTP_LISTEN: http.tls.cert_file: other machines reach"},
		},
		"no user":       {"shards: {user: '', database: ''}\n", nil, []string{"cleave.yaml:1: shards.user: it is empty", "cleave.yaml:1: shards.database: it is empty"}},
		"sslmode":       {"shards: {sslmode: on}\n", nil, []string{`cleave.yaml:1: shards.sslmode: "on" is not known: use disable, require, verify-ca, verify-full`}},
		"prefer":        {"shards: {sslmode: prefer}\n", nil, []string{"cleave.yaml:1: shards.sslmode: prefer falls back to plain text in silence"}},
		"verify-ca":     {"shards: {sslmode: verify-ca}\n", nil, []string{"cleave.yaml:1: shards.root_ca_file: sslmode verify-ca needs an authority of your own"}},
		"relative":      {"shards: {root_ca_file: ca.pem}\n", nil, []string{`cleave.yaml:1: shards.root_ca_file: "ca.pem" is a relative path`}},
		"hand-over":     {"handover_socket: next.sock\n", nil, []string{`cleave.yaml:1: handover_socket: "next.sock" is a relative path`}},
		"long socket":   {"handover_socket: /" + strings.Repeat("x", 79) + "\n", nil, []string{`cleave.yaml:1: handover_socket: "/` + strings.Repeat("x", 79) + `" has 80 bytes: use up to 79`}},
		"connect":       {"shards: {connect_timeout: 0s}\n", nil, []string{"cleave.yaml:1: shards.connect_timeout: 0s is not above zero"}},
		"health":        {"health: {interval: 0s, timeout: 0s}\n", nil, []string{"cleave.yaml:1: health.interval: 0s is not", "cleave.yaml:1: health.timeout: 0s is not"}},
		"slow look":     {"health: {timeout: 3s}\n", nil, []string{"cleave.yaml:1: health.timeout: 3s is longer than health.interval 2s"}},
		"log":           {"log: {level: loud, format: xml}\n", nil, []string{`cleave.yaml:1: log.level: "loud" is not known: use debug, info, warn, error`, `cleave.yaml:1: log.format: "xml" is not known: use text, json`}},
		"two of a kind": {"etcd: {username: a, password: {file: /a, env: B}}\n", nil, []string{"cleave.yaml:1: etcd.password: a secret stands in a file or in an environment variable, not in both"}},
		"all at once": {
			"cluser: a\nhttp:\n  listen: 0.0.0.0:8432\n  tokn: env:T\nlog:\n  level: loud\n", []string{"CLEAVE_ETCD_LEASE_TTL=long"},
			[]string{
				"cleave.yaml:1: cluser:", "cleave.yaml:4: http.tokn: there is no such field: did you mean http.token?",
				"CLEAVE_ETCD_LEASE_TTL: etcd.lease_ttl:", "cleave.yaml:3: http.tls.cert_file: other machines reach", "cleave.yaml:6: log.level:",
			},
		},
		"a value beside an unknown field": {
			"shards:\n  sslmode: on\n  pasword: env:P\netcd:\n  lease_ttl: 1s\n  tls:\n    cafile: /x\n", nil,
			[]string{
				"cleave.yaml:3: shards.pasword: there is no such field: did you mean shards.password?",
				"cleave.yaml:7: etcd.tls.cafile: there is no such field: did you mean etcd.tls.ca_file?",
				"cleave.yaml:5: etcd.lease_ttl: 1s is no time", `cleave.yaml:2: shards.sslmode: "on" is not known`,
			},
		},
		"a section that was not understood": {"etcd: yes\n", []string{"CLEAVE_ETCD_USERNAME=a"}, []string{"cleave.yaml:1: etcd: it is a section"}},
		"nothing follows from what was not understood": {
			"health:\n  interval: 1\n  timeout: 5s\netcd:\n  user: a\n  password: env:P\nshards:\n  sslmode: verify-ca\n  root_ca_fil: /ca\nhttp: yes\n", nil,
			[]string{
				`cleave.yaml:2: health.interval: "1" is not a duration`, "cleave.yaml:5: etcd.user: there is no such field",
				"cleave.yaml:9: shards.root_ca_fil: there is no such field: did you mean shards.root_ca_file?", "cleave.yaml:10: http: it is a section",
				"cleave.yaml:6: etcd.username: there is a password and no user",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, of.text, of.environ...)
			expectLines(t, lines(err), of.want)
		})
	}
}

// lines are the problems of an error.
func lines(err error) []string {
	var found config.Problems
	if !errors.As(err, &found) {
		return []string{fmt.Sprint(err)}
	}
	return strings.Split(found.Error(), "\n")
}

// expectLines wants as many lines as beginnings, in the same order.
func expectLines(t *testing.T, got, beginnings []string) {
	t.Helper()
	if !slices.EqualFunc(got, beginnings, strings.HasPrefix) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(beginnings, "\n  "))
	}
}

// TestSecretsAreNotRepeated: whoever writes a password into the file by mistake does not find it in a log.
func TestSecretsAreNotRepeated(t *testing.T) {
	for _, text := range []string{
		"etcd: {username: a, password: hunter2}\n",
		"etcd: {username: a, password: 'file:hunter2'}\n",
		"etcd: {username: a, password: {value: hunter2}}\n",
		"etcd: {username: a, password: {hunter2: /a}}\n",
		"etcd: {username: a, password: {file: hunter2}}\n",
		"etcd: {username: a, password: {env: 'hunter2!'}}\n",
		"etcd: {username: a, password: [hunter2]}\n",
		"etcd: {username: a, password: {file: [hunter2]}}\n",
		"etcd:\n  password: hunter2: x\n",
		"etcd:\n  password: \"hunter2\n",
		"etcd: {endpoints: ['http://root:hunter2@a:1']}\n",
		"etcd: {endpoints: ['http://root:hunter2@a:1:2%zz']}\n",
	} {
		_, err := load(t, text)
		var found config.Problems
		if !errors.As(err, &found) || len(found) != 1 || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q is refused with %v", text, err)
		}
	}
	c := mustLoad(t, "", "CLEAVE_HTTP_TOKEN=hunter2")
	if printed := fmt.Sprintf("%v %+v %q %q", c, c, c.Value("http.token"), c.Warnings()); strings.Contains(printed, "hunter2") {
		t.Errorf("prints %s", printed)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "nowhere.yaml"), nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestCheckWithoutLoading(t *testing.T) {
	c := config.Default()
	if err := c.Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	c.RouterName, c.HTTP.Token = "", secret.Reference{File: "relative"}
	expectLines(t, lines(c.Check()), []string{`router_name: "" is no name`, "http.token: the file of a secret must be an absolute path"})
}

func TestLoopbackNeedsNothing(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1", "127.0.0.1:0"} {
		mustLoad(t, "", "CLEAVE_HTTP_LISTEN="+address)
	}
}

func TestWarnings(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return path
	}
	open, closed := write("open", 0o644), write("closed", 0o600)
	t.Setenv("SET_IN_THIS_TEST", "hunter2")
	for name, of := range map[string]problems{
		"front door":       {"listen: 127.0.0.1:1\n", nil, nil},
		"plain etcd":       {"etcd: {endpoints: ['http://10.0.0.1:2379', 'http://127.0.0.1:2379', 'https://10.0.0.1:2379']}\n", nil, []string{"cleave.yaml:1: etcd.endpoints: http://10.0.0.1:2379 is not encrypted"}},
		"disable":          {"shards: {sslmode: disable}\n", nil, []string{"cleave.yaml:1: shards.sslmode: connections to shards are not encrypted"}},
		"require":          {"", []string{"CLEAVE_SHARDS_SSLMODE=require"}, []string{"CLEAVE_SHARDS_SSLMODE: shards.sslmode: require encrypts but takes any server"}},
		"require with CA":  {"shards: {sslmode: require, root_ca_file: " + open + "}\n", nil, nil},
		"missing file":     {"shards: {root_ca_file: /no/such/file}\n", nil, []string{"cleave.yaml:1: shards.root_ca_file: it cannot be read here: open /no/such/file"}},
		"open key":         {"http: {tls: {cert_file: " + open + ", key_file: " + open + "}}\n", nil, []string{"cleave.yaml:1: http.tls.key_file: every user of this machine can read"}},
		"closed key":       {"http: {tls: {cert_file: " + open + ", key_file: " + closed + "}}\n", nil, nil},
		"missing secret":   {"http: {token: env:NOT_SET_IN_THIS_TEST}\n", nil, []string{"cleave.yaml:1: http.token: it cannot be read here: read secret: environment variable NOT_SET_IN_THIS_TEST"}},
		"secret":           {"http: {token: env:SET_IN_THIS_TEST}\n", nil, nil},
		"open secret":      {"http: {token: 'file:" + open + "'}\n", nil, []string{"cleave.yaml:1: http.token: every user of this machine can read"}},
		"closed secret":    {"http: {token: 'file:" + closed + "'}\n", nil, nil},
		"unknown variable": {"", []string{"CLEAVE_ETCD_ENDPOINT=x", "CLEAVE_COLOUR=red"}, []string{"environment variable CLEAVE_COLOUR sets nothing: docs/", "environment variable CLEAVE_ETCD_ENDPOINT sets nothing: did you mean CLEAVE_ETCD_ENDPOINTS?"}},
		"section variable": {"", []string{"CLEAVE_ETCD=x"}, []string{"environment variable CLEAVE_ETCD sets nothing"}},
		"other variables": {
			"", []string{
				"CLEAVE_PG_BIN=/bin", "CLEAVE_REQUIRE_POSTGRES=1", "CLEAVE_API=x", "CLEAVE_API_TOKEN=x", "CLEAVE_SERVICE_HOST=10.0.0.1", "CLEAVE_SERVICE_PORT_HTTP=1",
				"CLEAVE_PORT=tcp://10.0.0.1:1", "CLEAVE_PORT_1_TCP_ADDR=10.0.0.1", "CLEAVE_HTTP_PORT=tcp://10.0.0.1:1", "CLEAVEDB=x",
			}, nil,
		},
		"a secret's variable": {"http: {token: env:CLEAVE_MY_TOKEN}\n", []string{"CLEAVE_MY_TOKEN=x"}, []string{"cleave.yaml:1: http.token: it cannot be read here"}},
	} {
		t.Run(name, func(t *testing.T) {
			expectLines(t, mustLoad(t, of.text, of.environ...).Warnings(), of.want)
		})
	}
}

// TestEveryFieldIsDescribed: each exported field of the structs is in Fields once, with a sentence and either a default or
// an example.
func TestEveryFieldIsDescribed(t *testing.T) {
	var listed []string
	for _, f := range config.Fields() {
		listed = append(listed, f.Path)
		if !strings.HasSuffix(f.Doc, ".") || f.Default == "" && f.Example == "" {
			t.Errorf("%s lacks a sentence, or a default and an example: %+v", f.Path, f)
		}
		if want := "CLEAVE_" + strings.ToUpper(strings.ReplaceAll(f.Path, ".", "_")); f.Env != want {
			t.Errorf("%s has the variable %s, want %s", f.Path, f.Env, want)
		}
	}
	if diff := cmp.Diff(pathsOf(t, reflect.TypeFor[config.Config](), ""), listed); diff != "" {
		t.Error(diff)
	}
	variables := map[string]string{}
	for _, f := range config.Fields() {
		if other, taken := variables[f.Env]; taken {
			t.Errorf("%s and %s share the variable %s", f.Path, other, f.Env)
		}
		variables[f.Env] = f.Path
	}
}

// pathsOf derives the paths from the Go names, not from the tags.
func pathsOf(t *testing.T, section reflect.Type, prefix string) []string {
	var paths []string
	for _, f := range reflect.VisibleFields(section) {
		if !f.IsExported() {
			continue
		}
		path := prefix + f.Tag.Get("yaml")
		if plain := strings.ReplaceAll(f.Tag.Get("yaml"), "_", ""); plain != strings.ToLower(f.Name) {
			t.Errorf("%s.%s is called %s in the file", section.Name(), f.Name, f.Tag.Get("yaml"))
		}
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[secret.Reference]() {
			if f.Tag.Get("doc") == "" {
				t.Errorf("section %s has no sentence", path)
			}
			paths = append(paths, pathsOf(t, f.Type, path+".")...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// TestTemplate: as written it means the defaults; with every field's # removed it is still in order and sets every field.
func TestTemplate(t *testing.T) {
	text := string(config.Template())
	c := mustLoad(t, text)
	if diff := values(config.Default(), c); diff != "" {
		t.Error(diff)
	}
	uncommented := regexp.MustCompile(`(?m)^( *)#(\w)`).ReplaceAllString(text, "$1$2")
	// TLS for etcd and the default endpoint do not go together, which is what Check is for.
	uncommented = strings.ReplaceAll(uncommented, "[http://", "[https://")
	c = mustLoad(t, uncommented)
	for _, f := range config.Fields() {
		if c.Origin(f.Path).Source != config.FromFile {
			t.Errorf("%s is not in the file", f.Path)
		}
		if f.Path != "etcd.endpoints" && f.Example == "" && c.Value(f.Path) != f.Default {
			t.Errorf("%s is %q, its default is %q", f.Path, c.Value(f.Path), f.Default)
		}
		if strings.Count(text, f.Env+".") != 1 {
			t.Errorf("%s is not named once", f.Env)
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > 101 {
			t.Errorf("a long line: %s", line)
		}
	}
}

func TestValueOfNoField(t *testing.T) {
	c := config.Default()
	for _, path := range []string{"", "etcd", "etcd.nothing"} {
		if got := c.Value(path); got != "" {
			t.Errorf("%q is %q", path, got)
		}
	}
	c.Etcd.RequestTimeout, c.Etcd.LeaseTTL = 2*time.Hour, 90*time.Minute
	if a, b := c.Value("etcd.request_timeout"), c.Value("etcd.lease_ttl"); a != "2h" || b != "1h30m" {
		t.Errorf("durations are %s and %s", a, b)
	}
}

// FuzzLoad: whatever stands in the file, it is read or refused, and what is read has passed the checks.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{everything, string(config.Template()), "a: &x [*x]\n", "? {a: b}\n: c\n", "etcd: {tls: {ca_file: |\n x\n}}", "<<: *a\n", "\xff\xfe"} {
		f.Add(text)
	}
	path := filepath.Join(f.TempDir(), "cleave.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path, nil)
		var found config.Problems
		if err != nil && !errors.As(err, &found) {
			t.Fatalf("%q is refused with %v", text, err)
		}
		if err == nil && c.Check() != nil {
			t.Fatalf("%q is loaded and fails the check with %v", text, c.Check())
		}
	})
}
