package admin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	s := newServer(t, Config{Token: "s3cret"})
	for header, status := range map[string]int{
		"":               401,
		"Bearer":         401,
		"Bearer wrong":   401,
		"Bearer s3cre":   401,
		"Bearer s3crets": 401,
		"Basic s3cret":   401,
		"s3cret":         401,
		"Bearer s3cret":  500, // let in, and on to the failing cluster
		"bearer  s3cret": 500,
	} {
		got := ask(t, s, request{method: "GET", path: "/v1/status", header: map[string]string{"Authorization": header}})
		if got.status != status {
			t.Errorf("with %q: %d, want %d", header, got.status, status)
		}
		if status == 401 && (got.header.Get("WWW-Authenticate") == "" || errorIn(t, got).Code != "unauthenticated") {
			t.Errorf("with %q: %v %s", header, got.header, got.body)
		}
	}
	for _, path := range []string{"/metrics", "/v1/openapi.yaml", "/v1/nothing", "/"} {
		if got := ask(t, s, request{method: "GET", path: path}); got.status != 401 {
			t.Errorf("%s without a token: %d", path, got.status)
		}
	}
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 503} {
		if got := ask(t, s, request{method: "GET", path: path}); got.status != status {
			t.Errorf("%s without a token: %d, want %d", path, got.status, status)
		}
	}
	if got := ask(t, s, request{method: "GET", path: "/v1/status", host: "any.name", header: map[string]string{"Authorization": "Bearer s3cret"}}); got.status != 500 {
		t.Errorf("with a token under another name: %d", got.status)
	}
}

func TestHosts(t *testing.T) {
	s := newServer(t, Config{})
	for host, allowed := range map[string]bool{
		"localhost":            true,
		"LocalHost:8432":       true,
		"localhost.:8432":      true,
		"a.localhost:8432":     true,
		"127.0.0.1:8432":       true,
		"10.1.2.3":             true,
		"[::1]:8432":           true,
		"[::1]":                true,
		"cleave.internal:8432": false,
		"evil.test":            false,
		"evil.test:8432":       false,
		"localhost.evil.test":  false,
		"127.0.0.1.evil.test":  false,
		"notlocalhost":         false,
	} {
		got := ask(t, s, request{method: "GET", path: "/v1/openapi.yaml", host: host})
		if allowed != (got.status == 200) || !allowed && (got.status != 403 || errorIn(t, got).Code != "forbidden") {
			t.Errorf("as %q: %d %.80s", host, got.status, got.body)
		}
	}
	if got := ask(t, s, request{method: "GET", path: "/healthz", host: "evil.test"}); got.status != 200 {
		t.Errorf("health under another name: %d", got.status)
	}
}

func TestOtherOrigins(t *testing.T) {
	s := newServer(t, Config{})
	cases := []struct {
		name   string
		method string
		header map[string]string
		status int
	}{
		{"a program", "POST", nil, 500},
		{"the same origin", "POST", map[string]string{"Origin": "http://127.0.0.1:8432", "Sec-Fetch-Site": "same-origin"}, 500},
		{"another origin", "POST", map[string]string{"Origin": "http://evil.test"}, 403},
		{"another site", "POST", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"another site, by its origin", "POST", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.test"}, 403},
		{"another port", "POST", map[string]string{"Origin": "http://127.0.0.1:9999"}, 403},
		{"an opaque origin", "POST", map[string]string{"Origin": "null"}, 403},
		{"a removal", "DELETE", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a look", "GET", map[string]string{"Sec-Fetch-Site": "cross-site"}, 500},
	}
	for _, c := range cases {
		path := map[string]string{"POST": "/v1/map", "DELETE": "/v1/shards/a", "GET": "/v1/map"}[c.method]
		header := map[string]string{"Content-Type": "application/json"}
		for name, value := range c.header {
			header[name] = value
		}
		got := ask(t, s, request{method: c.method, path: path, body: "{}", header: header})
		if got.status != c.status {
			t.Errorf("%s: %d, want %d", c.name, got.status, c.status)
		}
		if len(got.header.Values("Access-Control-Allow-Origin")) > 0 {
			t.Errorf("%s: other origins are invited to read", c.name)
		}
	}
}

func TestChangesAreJSON(t *testing.T) {
	s := newServer(t, Config{})
	for kind, status := range map[string]int{
		"": 415, "text/plain": 415, "application/x-www-form-urlencoded": 415, "multipart/form-data": 415, "application/jsonx": 415,
		"application/json": 500, "application/json; charset=utf-8": 500, "Application/JSON": 500,
	} {
		for _, change := range []request{{method: "POST", path: "/v1/map"}, {method: "PUT", path: "/v1/map"}, {method: "PATCH", path: "/v1/shards/a"}} {
			change.body, change.header = "{}", map[string]string{"Content-Type": kind}
			if got := ask(t, s, change); got.status != status {
				t.Errorf("%s %s as %q: %d, want %d", change.method, change.path, kind, got.status, status)
			}
		}
	}
}

func TestBodiesAreReadStrictly(t *testing.T) {
	s := newServer(t, Config{})
	cases := []struct{ name, path, body, code, message string }{
		{"unknown field", "/v1/shards", `{"name": "a", "wieght": 2}`, "invalid", `"wieght"`},
		{"unknown field below", "/v1/shards", `{"name": "a", "primary": {"host": "x:1"}}`, "invalid", `"host"`},
		{"unknown field where none are known", "/v1/map", `{"force": true}`, "invalid", `"force"`},
		{"wrong type", "/v1/shards", `{"name": "a", "weight": "heavy"}`, "invalid", `field "weight" cannot be a string`},
		{"number too large", "/v1/keyspaces", `{"name": "a", "slots": 1e99}`, "invalid", `field "slots"`},
		{"no object", "/v1/shards", `[]`, "invalid", "not a JSON object"},
		{"no JSON", "/v1/shards", `name=a`, "invalid", "not JSON"},
		{"half of it", "/v1/shards", `{"name": "a"`, "invalid", "ends in the middle"},
		{"nothing", "/v1/shards", ``, "invalid", "no body"},
		{"too much", "/v1/shards", `{"name": "a"} {"name": "b"}`, "invalid", "follows the end"},
		{"too large", "/v1/shards", `{"name": "` + strings.Repeat("a", bodyLimit) + `"}`, "too_large", "1048576 bytes"},
		{"a password", "/v1/shards", `{"name": "a", "password": "hunter2"}`, "invalid", "file:/path or env:NAME"},
		{"a password elsewhere", "/v1/shards", `{"name": "a", "password": {"password": "hunter2"}}`, "invalid", "file:/path or env:NAME"},
	}
	for _, c := range cases {
		got := ask(t, s, request{method: "POST", path: c.path, body: c.body, header: asJSON})
		answered := errorIn(t, got)
		if answered.Code != c.code || !strings.Contains(answered.Message, c.message) {
			t.Errorf("%s: %d %s", c.name, got.status, got.body)
		}
		if strings.Contains(got.body, "hunter2") {
			t.Errorf("%s: the password is in the answer: %s", c.name, got.body)
		}
	}
	if got := ask(t, s, request{method: "PUT", path: "/v1/map", body: strings.Repeat(" ", mapLimit+1), header: asJSON}); got.status != 413 {
		t.Errorf("a map that is too large: %d", got.status)
	}
	if got := ask(t, s, request{method: "PUT", path: "/v1/map", body: strings.Repeat(" ", 2*bodyLimit), header: asJSON}); got.status != 500 {
		t.Errorf("a map larger than other requests may be: %d, want it passed on", got.status)
	}
}

func TestPathsAndMethods(t *testing.T) {
	s := newServer(t, Config{})
	for _, path := range []string{"/", "/v1", "/v1/", "/v2/status", "/v1/shards/", "/v1/shards/a/b", "/v1/status/x"} {
		if got := ask(t, s, request{method: "GET", path: path}); got.status != 404 || errorIn(t, got).Code != "not_found" {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for path, allowed := range map[string]string{
		"/v1/map": "GET, HEAD, POST, PUT", "/v1/shards/a": "DELETE, GET, HEAD, PATCH", "/v1/map/rebuild": "POST", "/healthz": "GET, HEAD",
	} {
		got := ask(t, s, request{method: "TRACE", path: path})
		if got.status != 405 || got.header.Get("Allow") != allowed || errorIn(t, got).Code != "method_not_allowed" {
			t.Errorf("%s: %d, Allow %q, %s", path, got.status, got.header.Get("Allow"), got.body)
		}
	}
	if got := ask(t, s, request{method: "HEAD", path: "/healthz"}); got.status != 200 || got.header.Get("Content-Length") != "16" {
		t.Errorf("HEAD: %d %v", got.status, got.header)
	}
	if got := ask(t, s, request{method: "GET", path: "/v1/keyspaces/a?ranges=perhaps"}); got.status != 400 {
		t.Errorf("a parameter that is neither true nor false: %d", got.status)
	}
}

func TestAnswersAreJSONLines(t *testing.T) {
	got := ask(t, newServer(t, Config{}), request{method: "GET", path: "/healthz"})
	if got.body != "{\"status\":\"ok\"}\n" || got.header.Get("Content-Type") != "application/json" || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%q %v", got.body, got.header)
	}
}

func TestRequestsAreLoggedAtDebugLevel(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, Config{Token: "s3cret", Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ask(t, s, request{method: "GET", path: "/v1/nothing", header: map[string]string{"Authorization": "Bearer s3cret"}})
	var line struct {
		Level, Method, Path string
		Status, Bytes       int
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, log.String())
	}
	if line.Level != "DEBUG" || line.Method != http.MethodGet || line.Path != "/v1/nothing" || line.Status != 404 || line.Bytes == 0 {
		t.Errorf("logged %q", log.String())
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Error("the token is in the log")
	}
}

func TestRequestsAreCounted(t *testing.T) {
	s := newServer(t, Config{})
	ask(t, s, request{method: "GET", path: "/v1/shards/a"})
	ask(t, s, request{method: "GET", path: "/v1/shards/b"})
	ask(t, s, request{method: "HEAD", path: "/healthz"})
	ask(t, s, request{method: "GET", path: "/secret/path"})
	got := ask(t, s, request{method: "GET", path: "/metrics"})
	for _, want := range []string{
		`cleave_http_requests_total{code="500",method="GET",route="/v1/shards/{name}"} 2`,
		`cleave_http_requests_total{code="200",method="GET",route="/healthz"} 1`,
		`cleave_http_requests_total{code="404",method="",route="unmatched"} 1`,
		`cleave_http_request_duration_seconds_count{code="500",method="GET",route="/v1/shards/{name}"} 2`,
	} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in\n%s", want, got.body)
		}
	}
	if strings.Contains(got.body, "secret") {
		t.Error("what a stranger asked for became a label")
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a server without a cluster was made")
	}
	if _, err := New(Config{Cluster: failing{}, ReadTimeout: -1}); err == nil {
		t.Error("a negative time was taken")
	}
	s := newServer(t, Config{})
	if _, err := New(Config{Cluster: failing{}, Registry: s.config.Registry}); err == nil {
		t.Error("two servers share the series of one registry")
	}
}
