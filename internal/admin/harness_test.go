package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/topology"
)

// failing is a cluster in which every operation ends with the same error. What it does is for tests of what becomes of
// errors; everything else is tested with a real one.
type failing struct{ err error }

func (f failing) Status(context.Context) (api.Status, error)      { return api.Status{}, f.err }
func (f failing) Map(context.Context) (*topology.Map, error)      { return nil, f.err }
func (f failing) Create(context.Context) (api.MapChanged, error)  { return api.MapChanged{}, f.err }
func (f failing) CheckMap(context.Context) ([]api.Finding, error) { return nil, f.err }
func (f failing) DiffSchema(context.Context) ([]api.Finding, error) {
	return nil, f.err
}

func (f failing) Shards(context.Context) ([]api.ShardStatus, error) {
	return nil, f.err
}

func (f failing) Import(context.Context, api.ImportMap) (api.MapChanged, error) {
	return api.MapChanged{}, f.err
}

func (f failing) Rebuild(context.Context, api.RebuildMap) (api.RebuiltMap, error) {
	return api.RebuiltMap{}, f.err
}

func (f failing) AddShard(context.Context, api.AddShard) (api.ShardChanged, error) {
	return api.ShardChanged{}, f.err
}

func (f failing) RemoveShard(context.Context, string) (api.ShardChanged, error) {
	return api.ShardChanged{}, f.err
}

func (f failing) UpdateShard(context.Context, string, api.UpdateShard) (api.ShardChanged, error) {
	return api.ShardChanged{}, f.err
}

func (f failing) CreateKeyspace(context.Context, api.CreateKeyspace) (api.KeyspaceChanged, error) {
	return api.KeyspaceChanged{}, f.err
}

func (f failing) DropKeyspace(context.Context, string) (api.MapChanged, error) {
	return api.MapChanged{}, f.err
}

func (f failing) Traffic(context.Context, *topology.Keyspace) ([]api.RangeTraffic, error) {
	return nil, f.err
}

func (f failing) ShardTables(context.Context, control.ShardTablesRequest) (api.TablesChanged, error) {
	return api.TablesChanged{}, f.err
}

func (f failing) ReferenceTables(context.Context, control.TablesRequest) (api.TablesChanged, error) {
	return api.TablesChanged{}, f.err
}

func (f failing) Transactions(context.Context) (api.Transactions, error) {
	return api.Transactions{}, f.err
}

func (f failing) ResolveTransaction(context.Context, string, string) (string, error) {
	return "", f.err
}

func (f failing) Sagas(context.Context, control.SagasRequest) (api.SagaList, error) {
	return api.SagaList{}, f.err
}

func (f failing) Rollouts(context.Context) ([]topology.Rollout, error) { return nil, f.err }

func (f failing) BeginRollout(context.Context, control.RolloutBegin) (api.RolloutChanged, error) {
	return api.RolloutChanged{}, f.err
}

func (f failing) NextRollout(context.Context, control.RolloutStep) (api.RolloutChanged, error) {
	return api.RolloutChanged{}, f.err
}

func (f failing) FinishRollout(context.Context, control.RolloutStep) (api.RolloutChanged, error) {
	return api.RolloutChanged{}, f.err
}

func (f failing) UndoRollout(context.Context, control.RolloutStep) (api.RolloutChanged, error) {
	return api.RolloutChanged{}, f.err
}

func (f failing) UndistributeTables(context.Context, control.TablesRequest) (api.TablesChanged, error) {
	return api.TablesChanged{}, f.err
}

func (f failing) CheckCopies(context.Context, control.CopiesRequest) (api.CopiesChecked, error) {
	return api.CopiesChecked{}, f.err
}

func (f failing) Verify(context.Context, control.VerifyRequest) (api.Verified, error) {
	return api.Verified{}, f.err
}

func (f failing) StartMoves(context.Context, api.StartMove) (api.MoveList, error) {
	return api.MoveList{}, f.err
}

func (f failing) PlanRebalance(context.Context, api.PlanRebalance) (api.RebalancePlan, error) {
	return api.RebalancePlan{}, f.err
}

func (f failing) Automation(context.Context) (api.Automation, error) { return api.Automation{}, f.err }

func (f failing) UpdateAutomation(context.Context, api.UpdateAutomation) (api.Automation, error) {
	return api.Automation{}, f.err
}

func (f failing) ApplyRebalance(context.Context, string) (api.MoveList, error) {
	return api.MoveList{}, f.err
}

func (f failing) ThrottleMove(context.Context, string, api.MoveLimits) (api.Move, error) {
	return api.Move{}, f.err
}

func (f failing) Moves(context.Context) (api.MoveList, error) { return api.MoveList{}, f.err }

func (f failing) Move(context.Context, string) (api.Move, error) { return api.Move{}, f.err }

func (f failing) WishMove(context.Context, string, string) (api.Move, error) {
	return api.Move{}, f.err
}

func (f failing) SplitRanges(context.Context, string, api.SplitRanges) (api.KeyspaceChanged, error) {
	return api.KeyspaceChanged{}, f.err
}

func (f failing) MergeRanges(context.Context, string, api.MergeRanges) (api.KeyspaceChanged, error) {
	return api.KeyspaceChanged{}, f.err
}

var errBroken = errors.New("it is broken")

// newServer makes a server whose log goes nowhere unless the test gave it a place.
func newServer(t *testing.T, config Config) *Server {
	t.Helper()
	if config.Cluster == nil {
		config.Cluster = failing{errBroken}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request is what a test sends.
type request struct {
	method, path, body string
	header             map[string]string
	host               string
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request to the handler.
func ask(t *testing.T, s *Server, r request) answer {
	t.Helper()
	sent := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
	sent.Host = "127.0.0.1:8432"
	if r.host != "" {
		sent.Host = r.host
	}
	for name, value := range r.header {
		sent.Header.Set(name, value)
	}
	recorded := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorded, sent)
	return answer{recorded.Code, recorded.Header(), recorded.Body.String()}
}

// asJSON marks a request as JSON.
var asJSON = map[string]string{"Content-Type": "application/json"}

// errorIn reads an error answer.
func errorIn(t *testing.T, a answer) api.Error {
	t.Helper()
	var body api.ErrorBody
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		t.Fatalf("the error %q is not in the form of all errors: %v", a.body, err)
	}
	if a.header.Get("Content-Type") != "application/json" {
		t.Errorf("the error is %q", a.header.Get("Content-Type"))
	}
	return body.Error
}

// contract is the description of the API, to hold requests and answers against.
type contract struct {
	document *openapi3.T
	router   routers.Router
}

func loadContract(t *testing.T) contract {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(description)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	document.Servers = nil // tests listen elsewhere
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	return contract{document, router}
}

// inspecting is a transport that holds every request and every answer against the description.
type inspecting struct {
	t        *testing.T
	contract contract
	next     http.RoundTripper
	// seen counts answers by method and path of the description.
	seen map[string]int
}

func (i *inspecting) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	route, parameters, err := i.contract.router.FindRoute(r)
	if err != nil {
		i.t.Errorf("%s %s is not described: %v", r.Method, r.URL, err)
		return i.next.RoundTrip(r)
	}
	checked := r.Clone(r.Context())
	checked.Body = io.NopCloser(bytes.NewReader(body))
	input := &openapi3filter.RequestValidationInput{
		Request: checked, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	requestErr := openapi3filter.ValidateRequest(r.Context(), input)
	response, err := i.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if requestErr != nil && response.StatusCode/100 == 2 {
		i.t.Errorf("%s %s was accepted, but is not as described: %v", r.Method, r.URL, requestErr)
	}
	i.seen[r.Method+" "+route.Path]++
	return i.checkAnswer(input, response)
}

func (i *inspecting) checkAnswer(input *openapi3filter.RequestValidationInput, response *http.Response) (*http.Response, error) {
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(content))
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: response.StatusCode, Header: response.Header, Options: input.Options,
	}
	output.SetBodyBytes(content)
	if err := openapi3filter.ValidateResponse(input.Request.Context(), output); err != nil {
		i.t.Errorf("the answer to %s %s is not as described: %v", input.Request.Method, input.Request.URL, err)
	}
	return response, nil
}
