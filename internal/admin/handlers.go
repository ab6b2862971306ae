package admin

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// description describes the API for programs.
//
//go:embed openapi.yaml
var description []byte

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, http.StatusOK, api.Health{Status: "ok"})
}

func (s *Server) getReadiness(w http.ResponseWriter, _ *http.Request) error {
	if err := s.config.Ready(); err != nil {
		return notReady(err)
	}
	return reply(w, http.StatusOK, api.Health{Status: "ok"})
}

func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(s.config.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

func (s *Server) getDescription(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.Itoa(len(description)))
	_, _ = w.Write(description) // who hung up does not want to hear of it
	return nil
}

func (s *Server) getStatus(w http.ResponseWriter, r *http.Request) error {
	status, err := s.config.Cluster.Status(r.Context())
	if err != nil {
		return err
	}
	status.Routers, status.Shards, status.Findings = listOf(status.Routers), listOf(status.Shards), listOf(status.Findings)
	status.Store.Endpoints = listOf(status.Store.Endpoints)
	return reply(w, http.StatusOK, status)
}

func (s *Server) getRouters(w http.ResponseWriter, r *http.Request) error {
	status, err := s.config.Cluster.Status(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.RouterList{Routers: listOf(status.Routers)})
}

func (s *Server) getMap(w http.ResponseWriter, r *http.Request) error {
	m, err := s.config.Cluster.Map(r.Context())
	if err != nil {
		return err
	}
	tag := api.VersionTag(m.Version())
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache") // it may be kept, if asked for again each time
	if holds(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return reply(w, http.StatusOK, m.Document())
}

// holds tells whether the caller has what the tag stands for.
func holds(known, tag string) bool {
	for one := range strings.SplitSeq(known, ",") {
		one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
		if one == tag || one == "*" {
			return true
		}
	}
	return false
}

func (s *Server) createMap(w http.ResponseWriter, r *http.Request) error {
	if _, err := decode[struct{}](r); err != nil {
		return err
	}
	changed, err := s.config.Cluster.Create(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, changed)
}

func (s *Server) importMap(w http.ResponseWriter, r *http.Request) error {
	request, err := s.importRequest(r)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.Import(r.Context(), request)
	if errors.Is(err, store.ErrConflict) && request.IfVersion > 0 {
		return otherVersion(err.Error())
	}
	if err != nil {
		return err
	}
	if changed.MapVersion > 0 {
		w.Header().Set("ETag", api.VersionTag(changed.MapVersion))
	}
	return reply(w, http.StatusOK, changed)
}

func (s *Server) importRequest(r *http.Request) (request api.ImportMap, err error) {
	parameters := r.URL.Query()
	if request.DryRun, err = flagIn(parameters, "dry_run"); err != nil {
		return request, err
	}
	if request.Force, err = flagIn(parameters, "force"); err != nil {
		return request, err
	}
	if request.IfVersion, err = s.expectedVersion(r); err != nil {
		return request, err
	}
	if request.Document, err = io.ReadAll(r.Body); err != nil {
		return request, badBody(err)
	}
	return request, nil
}

// expectedVersion reads If-Match: the version that must be in force still when the change is made, 0 if the caller does not
// mind. Tags that cannot fit are refused at once.
func (s *Server) expectedVersion(r *http.Request) (uint64, error) {
	expected := strings.Join(r.Header.Values("If-Match"), ",")
	if expected == "" {
		return 0, nil
	}
	m, err := s.config.Cluster.Map(r.Context())
	if errors.Is(err, store.ErrNoMap) {
		return 0, otherVersion("there is no shard map, so it is not at the version that was expected")
	}
	if err != nil {
		return 0, err
	}
	// A weak tag fits nothing here: it does not promise that the map is the same.
	for one := range strings.SplitSeq(expected, ",") {
		if one = strings.TrimSpace(one); one == "*" || one == api.VersionTag(m.Version()) {
			return m.Version(), nil
		}
	}
	return 0, otherVersion(fmt.Sprintf("the shard map is at version %d, not at the one that was expected", m.Version()))
}

func (s *Server) rebuildMap(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.RebuildMap](r)
	if err != nil {
		return err
	}
	for i := range request.Shards {
		if s := &request.Shards[i]; s.Name == "" {
			s.Name = s.Primary.Address // what cannot be asked is reported by its name, and its record has the real one
		}
	}
	rebuilt, err := s.config.Cluster.Rebuild(r.Context(), request)
	if err != nil {
		return err
	}
	rebuilt.Findings = listOf(rebuilt.Findings)
	return reply(w, http.StatusOK, rebuilt)
}

func (s *Server) checkMap(w http.ResponseWriter, r *http.Request) error {
	findings, err := s.config.Cluster.CheckMap(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.FindingList{Findings: listOf(findings)})
}

func (s *Server) getShards(w http.ResponseWriter, r *http.Request) error {
	shards, err := s.config.Cluster.Shards(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.ShardList{Shards: listOf(shards)})
}

func (s *Server) getShard(w http.ResponseWriter, r *http.Request) error {
	shards, err := s.config.Cluster.Shards(r.Context())
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	at := slices.IndexFunc(shards, func(shard api.ShardStatus) bool { return shard.Name == name })
	if at < 0 {
		return &topology.NotFoundError{Kind: "shard", Name: name}
	}
	return reply(w, http.StatusOK, shards[at])
}

func (s *Server) addShard(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.AddShard](r)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.AddShard(r.Context(), request)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/shards/"+url.PathEscape(changed.Shard.Name))
	return reply(w, http.StatusCreated, changed)
}

func (s *Server) updateShard(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.UpdateShard](r)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.UpdateShard(r.Context(), r.PathValue("name"), request)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, changed)
}

func (s *Server) removeShard(w http.ResponseWriter, r *http.Request) error {
	changed, err := s.config.Cluster.RemoveShard(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, changed)
}

func (s *Server) getKeyspaces(w http.ResponseWriter, r *http.Request) error {
	m, err := s.config.Cluster.Map(r.Context())
	if err != nil {
		return err
	}
	list := api.KeyspaceList{MapVersion: m.Version(), Keyspaces: []api.Keyspace{}}
	for _, k := range m.Keyspaces() {
		list.Keyspaces = append(list.Keyspaces, api.DescribeKeyspace(k, false))
	}
	return reply(w, http.StatusOK, list)
}

func (s *Server) getKeyspace(w http.ResponseWriter, r *http.Request) error {
	withRanges, err := flagIn(r.URL.Query(), "ranges")
	if err != nil {
		return err
	}
	m, err := s.config.Cluster.Map(r.Context())
	if err != nil {
		return err
	}
	k := m.Keyspace(r.PathValue("name"))
	if k == nil {
		return &topology.NotFoundError{Kind: "keyspace", Name: r.PathValue("name")}
	}
	described := api.DescribeKeyspace(k, withRanges)
	if withRanges {
		if described.Traffic, err = s.config.Cluster.Traffic(r.Context(), k); err != nil {
			return err
		}
	}
	return reply(w, http.StatusOK, described)
}

// flagIn reads a parameter that is true or false, and false if it is not there.
func flagIn(parameters url.Values, name string) (bool, error) {
	if !parameters.Has(name) {
		return false, nil
	}
	set, err := strconv.ParseBool(parameters.Get(name))
	if err != nil {
		return false, invalid("parameter " + name + " is neither true nor false")
	}
	return set, nil
}

func (s *Server) createKeyspace(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.CreateKeyspace](r)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.CreateKeyspace(r.Context(), request)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/keyspaces/"+url.PathEscape(changed.Keyspace.Name))
	return reply(w, http.StatusCreated, changed)
}

func (s *Server) dropKeyspace(w http.ResponseWriter, r *http.Request) error {
	changed, err := s.config.Cluster.DropKeyspace(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, changed)
}

func (s *Server) getTables(w http.ResponseWriter, r *http.Request) error {
	m, err := s.config.Cluster.Map(r.Context())
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, api.TableList{MapVersion: m.Version(), Tables: api.DescribeTables(m)})
}

// declareTables is asked by an operator, who may declare any table.
func (s *Server) declareTables(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.DeclareTables](r)
	if err != nil {
		return err
	}
	tables := make([]control.TableKey, len(request.Tables))
	for i, t := range request.Tables {
		name, err := topology.ParseTableName(t.Name)
		if err != nil {
			return invalid(err.Error())
		}
		tables[i] = control.TableKey{Table: name, Key: t.Key}
	}
	var changed api.TablesChanged
	switch request.Kind {
	case "", topology.Sharded:
		changed, err = s.config.Cluster.ShardTables(r.Context(), control.ShardTablesRequest{
			Tables: tables, Keyspace: request.Keyspace, ColocateWith: request.ColocateWith,
			Strategy: string(request.Strategy), SplitAt: request.SplitAt, UniquePerShard: request.UniquePerShard, IDs: request.IDs,
		})
	case topology.Reference:
		var names []topology.TableName
		if names, err = referenceNames(request, tables); err == nil {
			changed, err = s.config.Cluster.ReferenceTables(r.Context(), control.TablesRequest{Tables: names})
		}
	default:
		return invalid("kind " + quote(string(request.Kind)) + " is neither sharded nor reference")
	}
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, changed)
}

// referenceNames refuses what makes no sense for reference tables.
func referenceNames(request api.DeclareTables, tables []control.TableKey) ([]topology.TableName, error) {
	given := request.Keyspace != "" || request.ColocateWith != "" || request.Strategy != "" || len(request.SplitAt) > 0 || request.UniquePerShard || request.IDs != ""
	var names []topology.TableName
	for _, t := range tables {
		given = given || len(t.Key) > 0
		names = append(names, t.Table)
	}
	if given {
		return nil, invalid("a reference table has no key and no keyspace, its unique constraints hold everywhere, and its numbers are counted")
	}
	return names, nil
}

// undistributeTables is asked by an operator, who may do it to any table.
func (s *Server) undistributeTables(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.UndistributeTables](r)
	if err != nil {
		return err
	}
	names, err := tableNames(request.Tables)
	if err != nil {
		return err
	}
	changed, err := s.config.Cluster.UndistributeTables(r.Context(), control.TablesRequest{Tables: names})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, changed)
}

func tableNames(texts []string) ([]topology.TableName, error) {
	names := make([]topology.TableName, len(texts))
	for i, text := range texts {
		var err error
		if names[i], err = topology.ParseTableName(text); err != nil {
			return nil, invalid(err.Error())
		}
	}
	return names, nil
}

// checkCopies is asked by an operator, who may do it to any table.
func (s *Server) checkCopies(w http.ResponseWriter, r *http.Request) error {
	request, err := decode[api.CheckCopies](r)
	if err != nil {
		return err
	}
	names, err := tableNames(request.Tables)
	if err != nil {
		return err
	}
	if request.Force && !request.Repair {
		return invalid("force is for a repair, and none is asked for")
	}
	checked, err := s.config.Cluster.CheckCopies(r.Context(), control.CopiesRequest{Tables: names, Repair: request.Repair, Force: request.Force})
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, checked)
}
