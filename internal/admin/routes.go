package admin

import (
	"net/http"
	"slices"
	"strings"
)

// route is one operation of the API.
type route struct {
	method string
	// path is a pattern of [http.ServeMux], without the method.
	path string
	// open routes answer everybody: they tell no more than whether the process is well.
	open bool
	// limit is how large a body may be, in bytes.
	limit  int64
	handle func(*Server, http.ResponseWriter, *http.Request) error
}

// carriesRows says whether the operation copies tables from shard to shard, reads or changes them with all of their rows.
func (r route) carriesRows() bool {
	return r.method == http.MethodPost &&
		(slices.Contains([]string{"/v1/tables", "/v1/tables/undistribute", "/v1/tables/check-copies", "/v1/shards", "/v1/verify"}, r.path) || strings.HasPrefix(r.path, "/v1/schema/rollouts/"))
}

const (
	// bodyLimit is plenty for every request but a whole map.
	bodyLimit = 1 << 20
	// mapLimit takes a map with several million pins; reading it needs some times as much memory.
	mapLimit = 256 << 20
)

// routes is all of the API. What is not here is not served.
func routes() []route {
	return []route{
		{http.MethodGet, "/healthz", true, 0, (*Server).getHealth},
		{http.MethodGet, "/readyz", true, 0, (*Server).getReadiness},
		{http.MethodGet, "/metrics", false, 0, (*Server).getMetrics},
		{http.MethodGet, "/v1/openapi.yaml", false, 0, (*Server).getDescription},
		{http.MethodGet, "/v1/status", false, 0, (*Server).getStatus},
		{http.MethodGet, "/v1/routers", false, 0, (*Server).getRouters},
		{http.MethodGet, "/v1/map", false, 0, (*Server).getMap},
		{http.MethodPost, "/v1/map", false, bodyLimit, (*Server).createMap},
		{http.MethodPut, "/v1/map", false, mapLimit, (*Server).importMap},
		{http.MethodPost, "/v1/map/rebuild", false, bodyLimit, (*Server).rebuildMap},
		{http.MethodGet, "/v1/map/check", false, 0, (*Server).checkMap},
		{http.MethodGet, "/v1/shards", false, 0, (*Server).getShards},
		{http.MethodPost, "/v1/shards", false, bodyLimit, (*Server).addShard},
		{http.MethodGet, "/v1/shards/{name}", false, 0, (*Server).getShard},
		{http.MethodPatch, "/v1/shards/{name}", false, bodyLimit, (*Server).updateShard},
		{http.MethodDelete, "/v1/shards/{name}", false, 0, (*Server).removeShard},
		{http.MethodGet, "/v1/keyspaces", false, 0, (*Server).getKeyspaces},
		{http.MethodPost, "/v1/keyspaces", false, bodyLimit, (*Server).createKeyspace},
		{http.MethodGet, "/v1/keyspaces/{name}", false, 0, (*Server).getKeyspace},
		{http.MethodDelete, "/v1/keyspaces/{name}", false, 0, (*Server).dropKeyspace},
		{http.MethodPost, "/v1/keyspaces/{name}/split", false, bodyLimit, (*Server).splitRanges},
		{http.MethodPost, "/v1/keyspaces/{name}/merge", false, bodyLimit, (*Server).mergeRanges},
		{http.MethodGet, "/v1/schema/diff", false, 0, (*Server).diffSchema},
		{http.MethodGet, "/v1/schema/rollouts", false, 0, (*Server).getRollouts},
		{http.MethodPost, "/v1/schema/rollouts", false, bodyLimit, (*Server).beginRollout},
		{http.MethodPost, "/v1/schema/rollouts/{name}/next", false, bodyLimit, (*Server).nextRollout},
		{http.MethodPost, "/v1/schema/rollouts/{name}/finish", false, bodyLimit, (*Server).finishRollout},
		{http.MethodPost, "/v1/schema/rollouts/{name}/undo", false, bodyLimit, (*Server).undoRollout},
		{http.MethodGet, "/v1/transactions", false, 0, (*Server).getTransactions},
		{http.MethodPost, "/v1/transactions/resolve", false, bodyLimit, (*Server).resolveTransaction},
		{http.MethodGet, "/v1/moves", false, 0, (*Server).getMoves},
		{http.MethodPost, "/v1/moves", false, bodyLimit, (*Server).startMoves},
		{http.MethodGet, "/v1/moves/{id}", false, 0, (*Server).getMove},
		{http.MethodPost, "/v1/moves/{id}/wish", false, bodyLimit, (*Server).wishMove},
		{http.MethodPost, "/v1/moves/{id}/throttle", false, bodyLimit, (*Server).throttleMove},
		{http.MethodPost, "/v1/rebalance", false, bodyLimit, (*Server).planRebalance},
		{http.MethodGet, "/v1/rebalance/auto", false, 0, (*Server).getAutomation},
		{http.MethodPatch, "/v1/rebalance/auto", false, bodyLimit, (*Server).updateAutomation},
		{http.MethodPost, "/v1/rebalance/{id}/apply", false, bodyLimit, (*Server).applyRebalance},
		{http.MethodGet, "/v1/sagas", false, 0, (*Server).getSagas},
		{http.MethodGet, "/v1/tables", false, 0, (*Server).getTables},
		{http.MethodPost, "/v1/tables", false, bodyLimit, (*Server).declareTables},
		{http.MethodPost, "/v1/tables/undistribute", false, bodyLimit, (*Server).undistributeTables},
		{http.MethodPost, "/v1/tables/check-copies", false, bodyLimit, (*Server).checkCopies},
		{http.MethodPost, "/v1/verify", false, bodyLimit, (*Server).verify},
	}
}

// unmatched stands for requests that no route takes.
const unmatched = "unmatched"

// newHandler makes one handler of the table. Which method a path takes is decided here and not by the mux, whose refusals
// are not JSON.
func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	byPath := map[string]map[string]http.Handler{}
	for _, r := range routes() {
		methods := byPath[r.path]
		if methods == nil {
			methods = map[string]http.Handler{}
			byPath[r.path] = methods
			mux.Handle(r.path, s.dispatch(methods))
		}
		methods[r.method] = s.serve(r)
		if r.method == http.MethodGet {
			methods[http.MethodHead] = methods[r.method]
		}
	}
	mux.Handle("/", s.serve(route{path: unmatched, handle: func(_ *Server, _ http.ResponseWriter, r *http.Request) error {
		return noSuchPath(r.URL.Path)
	}}))
	return mux
}

// dispatch chooses the handler by the method.
func (s *Server) dispatch(methods map[string]http.Handler) http.Handler {
	wrongMethod := s.serve(route{path: unmatched, handle: func(_ *Server, w http.ResponseWriter, r *http.Request) error {
		allowed := make([]string, 0, len(methods))
		for method := range methods {
			allowed = append(allowed, method)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return methodNotAllowed(r.Method, allowed)
	}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler, known := methods[r.Method]; known {
			handler.ServeHTTP(w, r)
			return
		}
		wrongMethod.ServeHTTP(w, r)
	})
}
