package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// startCluster runs a real cluster, with etcd in this process, until the test ends.
func startCluster(t *testing.T) *control.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	etcd, err := store.StartEmbedded(ctx, store.EmbeddedConfig{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	quiet := slog.New(slog.DiscardHandler)
	st, err := store.Open(store.Config{Endpoints: etcd.Endpoints(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	follower, err := st.Follow(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(follower.Close)
	cluster := control.New(control.Config{
		Store: st, Follower: follower, Logger: quiet, Endpoints: etcd.Endpoints(), Version: "test",
		Access: shard.Access{User: "postgres", Database: "postgres", SSLMode: "disable", ConnectTimeout: 10 * time.Second},
	})
	running, stop := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { cluster.Run(running) })
	t.Cleanup(func() {
		stop()
		loops.Wait()
	})
	return cluster
}

// newClient serves the cluster and returns a client whose every call is held against the description.
func newClient(t *testing.T, cluster *control.Cluster) (*api.Client, *inspecting) {
	t.Helper()
	server := httptest.NewServer(newServer(t, Config{Cluster: cluster, Ready: cluster.Ready}).Handler())
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	inspector := &inspecting{t: t, contract: loadContract(t), next: transport, seen: map[string]int{}}
	return &api.Client{BaseURL: server.URL, HTTP: &http.Client{Transport: inspector}}, inspector
}

// must returns the value of a call that has to succeed.
func must[T any](t *testing.T, what string) func(T, error) T {
	t.Helper()
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return value
	}
}

// refusedWith asks for an error with the code.
func refusedWith(t *testing.T, what, code string, err error) api.Error {
	t.Helper()
	var refused *api.RequestError
	if !errors.As(err, &refused) {
		t.Fatalf("%s: %v, want it refused as %s", what, err, code)
	}
	if refused.Answer.Code != code {
		t.Errorf("%s: refused as %s (%s), want %s", what, refused.Answer.Code, refused.Answer.Message, code)
	}
	return refused.Answer
}

func shardAt(name string, server *localpg.Server) api.AddShard {
	return api.AddShard{ShardSpec: topology.ShardSpec{Name: name, Primary: topology.InstanceSpec{Address: server.Addr()}}}
}

// rollOut changes a sharded table shard by shard, and takes it back, and once more to the end.
func rollOut(t *testing.T, client *api.Client) {
	t.Helper()
	index := api.BeginRollout{Name: "by id/1", Change: "CREATE INDEX accounts_by_id ON accounts (id)"}
	_, err := client.BeginRollout(t.Context(), api.BeginRollout{Name: "columns", Change: "ALTER TABLE accounts ADD COLUMN x int"})
	if refused := refusedWith(t, "a column", api.CodeRefused, err); refused.SQLState != "0A000" || refused.Detail == "" || refused.Hint == "" {
		t.Errorf("refused with %+v", refused)
	}
	_, err = client.NextRollout(t.Context(), index.Name, api.StepRollout{})
	refusedWith(t, "what was not begun", api.CodeNotFound, err)
	must[api.RolloutChanged](t, "begin")(client.BeginRollout(t.Context(), index))
	_, err = client.BeginRollout(t.Context(), index)
	refusedWith(t, "begin again", api.CodeInUse, err)
	next := must[api.RolloutChanged](t, "next")(client.NextRollout(t.Context(), index.Name, api.StepRollout{}))
	if !slices.Equal(next.Shards, []string{"one"}) || next.Rollout.Shards[0].State != topology.ShardApplied || next.Rollout.Undo == "" {
		t.Errorf("the next step is %+v", next)
	}
	must[api.RolloutChanged](t, "undo")(client.UndoRollout(t.Context(), index.Name))
	must[api.RolloutChanged](t, "begin once more")(client.BeginRollout(t.Context(), index))
	must[api.RolloutChanged](t, "finish")(client.FinishRollout(t.Context(), index.Name))
	list := must[[]api.Rollout](t, "list")(client.Rollouts(t.Context()))
	if len(list) != 1 || list[0].State != topology.RolloutFinished || list[0].Closed.IsZero() {
		t.Errorf("the roll-outs are %+v", list)
	}
}

// resolveTransaction decides for a transaction whose decision may be lost.
func resolveTransaction(t *testing.T, client *api.Client, home *localpg.Server) {
	t.Helper()
	status := must[api.Status](t, "status")(client.Status(t.Context()))
	gid := "cleave/" + status.Cluster[:8] + "/1/1/1/99/router/random" // of another timeline
	conn := must[*pgx.Conn](t, "connect")(pgx.Connect(t.Context(), home.DSN("postgres")))
	defer conn.Close(context.Background())
	must[pgconn.CommandTag](t, "prepare")(conn.Exec(t.Context(), "BEGIN; CREATE TABLE doubtful (); PREPARE TRANSACTION '"+gid+"/1'"))
	list := must[api.Transactions](t, "list")(client.Transactions(t.Context()))
	if len(list.Findings) > 0 || len(list.Transactions) != 1 || list.Transactions[0].ID != gid || list.Transactions[0].Phase != "in doubt" {
		t.Errorf("transactions are %+v", list)
	}
	_, err := client.ResolveTransaction(t.Context(), api.ResolveTransaction{ID: gid, How: "somehow"})
	refusedWith(t, "an unknown way", api.CodeInvalid, err)
	_, err = client.ResolveTransaction(t.Context(), api.ResolveTransaction{ID: "nonsense", How: "commit"})
	refusedWith(t, "an unknown name", api.CodeInvalid, err)
	_, err = client.ResolveTransaction(t.Context(), api.ResolveTransaction{ID: gid, How: "forget"})
	refusedWith(t, "what is not lost", api.CodeNotFound, err)
	must[api.TransactionResolved](t, "resolve")(client.ResolveTransaction(t.Context(), api.ResolveTransaction{ID: gid, How: "rollback"}))
	if list := must[api.Transactions](t, "list again")(client.Transactions(t.Context())); len(list.Transactions) > 0 {
		t.Errorf("then transactions are %+v", list)
	}
}

// declareTables makes tables on the home shard and declares them.
func declareTables(t *testing.T, client *api.Client, home *localpg.Server) {
	t.Helper()
	conn := must[*pgx.Conn](t, "connect")(pgx.Connect(t.Context(), home.DSN("postgres")))
	defer conn.Close(context.Background())
	must[pgconn.CommandTag](t, "create tables")(conn.Exec(t.Context(), `
		CREATE TABLE accounts (id bigint PRIMARY KEY); CREATE TABLE currencies (code text PRIMARY KEY); CREATE TABLE "Odd" (id bigint, name text UNIQUE)`))
	sharding := func(name string, columns ...string) api.DeclareTables {
		return api.DeclareTables{Tables: []api.TableKey{{Name: name, Key: columns}}}
	}
	request := sharding("accounts", "id")
	request.Keyspace = "users"
	changed := must[api.TablesChanged](t, "shard")(client.DeclareTables(t.Context(), request))
	if table := changed.Tables[0]; table.Name != "public.accounts" || table.Keyspace != "users" || len(changed.KeyspacesCreated) > 0 || !slices.Equal(table.ColocatedWith, []string{"public.users"}) {
		t.Errorf("declared %+v", changed)
	}
	rollOut(t, client)
	resolveTransaction(t, client, home)
	must[api.TablesChanged](t, "reference")(client.DeclareTables(t.Context(), api.DeclareTables{Kind: topology.Reference, Tables: []api.TableKey{{Name: "currencies"}}}))
	checkCopies(t, client)
	verify(t, client, home)
	back := must[api.TablesChanged](t, "undistribute")(client.UndistributeTables(t.Context(), api.UndistributeTables{Tables: []string{"currencies"}}))
	if table := back.Tables[0]; table.Kind != topology.Single || table.Shard != "one" {
		t.Errorf("undistributed %+v", back)
	}
	_, err := client.UndistributeTables(t.Context(), api.UndistributeTables{Tables: []string{"currencies"}})
	refusedWith(t, "undistribute again", api.CodeConflict, err)
	_, err = client.UndistributeTables(t.Context(), api.UndistributeTables{Tables: []string{`"Odd`}})
	refusedWith(t, "undistribute nonsense", api.CodeInvalid, err)
	single, keyed := sharding(`"Odd"`), sharding(`"Odd"`, "id")
	single.Kind, keyed.Kind = topology.Single, topology.Reference
	for _, c := range []struct {
		request     api.DeclareTables
		code, state string
	}{
		{sharding("accounts", "id"), api.CodeConflict, "55000"},
		{sharding("nowhere", "id"), api.CodeNotFound, "42P01"},
		{sharding(`"Odd"`, "size"), api.CodeInvalid, "42703"},
		{sharding(`"Odd"`, "id"), api.CodeRefused, "42P16"},
		{single, api.CodeInvalid, ""},
		{keyed, api.CodeInvalid, ""},
		{sharding(`"Odd`, "id"), api.CodeInvalid, ""},
		{api.DeclareTables{Tables: []api.TableKey{}}, api.CodeInvalid, "22023"},
	} {
		_, err := client.DeclareTables(t.Context(), c.request)
		if answered := refusedWith(t, fmt.Sprintf("declare %+v", c.request), c.code, err); answered.SQLState != c.state {
			t.Errorf("declare %+v: SQLSTATE %q, want %q", c.request, answered.SQLState, c.state)
		}
	}
}

// checkCopies compares the copies of a table, and of tables that are none.
func checkCopies(t *testing.T, client *api.Client) {
	t.Helper()
	checked := must[api.CopiesChecked](t, "check copies")(client.CheckCopies(t.Context(), api.CheckCopies{Tables: []string{"currencies"}, Repair: true}))
	if !slices.Equal(checked.Tables, []string{"public.currencies"}) || len(checked.Differences)+len(checked.Findings) > 0 {
		t.Errorf("checked %+v", checked)
	}
	_, err := client.CheckCopies(t.Context(), api.CheckCopies{Tables: []string{"accounts"}})
	refusedWith(t, "copies of a sharded table", api.CodeConflict, err)
	_, err = client.CheckCopies(t.Context(), api.CheckCopies{Tables: []string{`"Odd`}})
	refusedWith(t, "copies of nonsense", api.CodeInvalid, err)
	_, err = client.CheckCopies(t.Context(), api.CheckCopies{Force: true})
	refusedWith(t, "force without a repair", api.CodeInvalid, err)
}

// verify finds a row on a shard that it does not belong to, repairs it, and hears how far that is.
func verify(t *testing.T, client *api.Client, home *localpg.Server) {
	t.Helper()
	conn := must[*pgx.Conn](t, "connect")(pgx.Connect(t.Context(), home.DSN("postgres")))
	defer conn.Close(context.Background())
	must[pgconn.CommandTag](t, "make strays")(conn.Exec(t.Context(), "SET session_replication_role = replica; INSERT INTO accounts SELECT generate_series(1, 20)"))
	found := must[api.Verified](t, "verify")(client.Verify(t.Context(), api.Verify{Keyspace: "users", Tables: []string{"accounts"}, Limit: 1}, nil))
	if found.StraysFound < 1 || len(found.Strays) != 1 || found.Strays[0].AtOwner != "absent" || found.Wrong() != found.StraysFound {
		t.Errorf("verified %+v", found)
	}
	var heard []api.VerifyProgress
	repaired := must[api.Verified](t, "repair")((&api.Client{BaseURL: client.BaseURL, Token: client.Token}).Verify(t.Context(), api.Verify{Tables: []string{"accounts", "currencies"}, Repair: true}, func(p api.VerifyProgress) { heard = append(heard, p) }))
	if repaired.StraysRepaired != found.StraysFound || repaired.Wrong() != 0 || len(repaired.References.Tables) != 1 || len(heard) == 0 || heard[0].Doing == "" {
		t.Errorf("repaired %+v, and heard %+v", repaired, heard)
	}
	for _, c := range []struct {
		request api.Verify
		code    string
	}{
		{api.Verify{Tables: []string{"nowhere"}}, api.CodeConflict},
		{api.Verify{Tables: []string{`"Odd`}}, api.CodeInvalid},
		{api.Verify{Keyspace: "nowhere"}, api.CodeNotFound},
		{api.Verify{Shards: []string{"nowhere"}}, api.CodeNotFound},
		{api.Verify{Prefer: "owner"}, api.CodeInvalid},
	} {
		_, err := client.Verify(t.Context(), c.request, nil)
		refusedWith(t, fmt.Sprintf("verify %+v", c.request), c.code, err)
		_, err = client.Verify(t.Context(), c.request, func(api.VerifyProgress) {})
		refusedWith(t, fmt.Sprintf("verify %+v and hear", c.request), c.code, err)
	}
}

// TestALifeOfACluster takes every operation of the API through a real cluster with real servers. Every request and answer
// is held against the description, and in the end every operation must have been among them.
func TestALifeOfACluster(t *testing.T) {
	servers := pgtest.StartN(t, 2)
	client, inspector := newClient(t, startCluster(t))
	ctx := t.Context()

	// Before there is a map.
	_, err := client.Map(ctx)
	if answered := refusedWith(t, "map before there is one", api.CodeNoMap, err); !strings.Contains(answered.Hint, "cleave map create") {
		t.Errorf("hint %q", answered.Hint)
	}
	if got := plainGet(t, client, "/readyz"); got.status != 503 {
		t.Errorf("ready without a map: %d %s", got.status, got.body)
	}
	if status := must[api.Status](t, "status")(client.Status(ctx)); status.MapVersion != 0 || len(status.Findings) == 0 {
		t.Errorf("status without a map: %+v", status)
	}
	created := must[api.MapChanged](t, "create")(client.CreateMap(ctx))
	_, err = client.CreateMap(ctx)
	refusedWith(t, "create twice", api.CodeExists, err)
	if got := plainGet(t, client, "/readyz"); got.status != 200 {
		t.Errorf("ready with a map: %d %s", got.status, got.body)
	}

	// Shards.
	_, err = client.CreateKeyspace(ctx, api.CreateKeyspace{Name: "early"})
	refusedWith(t, "keyspace without shards", api.CodeRefused, err)
	withPassword := shardAt("one", servers[0])
	withPassword.Password.Env = "NOT_NEEDED_BY_TRUST"
	t.Setenv("NOT_NEEDED_BY_TRUST", "hunter2")
	added := must[api.ShardChanged](t, "add")(client.AddShard(ctx, withPassword))
	if added.Shard.Number != 1 || added.MapVersion <= created.MapVersion {
		t.Errorf("added %+v", added)
	}
	must[api.ShardChanged](t, "add")(client.AddShard(ctx, shardAt("two", servers[1])))
	_, err = client.AddShard(ctx, shardAt("two", servers[1]))
	refusedWith(t, "add twice", api.CodeExists, err)
	nowhere := shardAt("three", servers[0])
	nowhere.Primary.Address = "127.0.0.1:1"
	_, err = client.AddShard(ctx, nowhere)
	refusedWith(t, "add a server that is not there", api.CodeRefused, err)
	_, err = client.AddShard(ctx, api.AddShard{ShardSpec: topology.ShardSpec{Name: "Not A Name"}})
	refusedWith(t, "add under a bad name", api.CodeInvalid, err)

	weight, state, eu := 2.5, topology.Draining, "eu"
	updated := must[api.ShardChanged](t, "update")(client.UpdateShard(ctx, "one", api.UpdateShard{Weight: &weight, Labels: map[string]*string{"region": &eu, "old": nil}}))
	if updated.Shard.Weight != 2.5 || updated.Shard.Labels["region"] != "eu" {
		t.Errorf("updated %+v", updated.Shard)
	}
	_, err = client.UpdateShard(ctx, "none", api.UpdateShard{State: &state})
	refusedWith(t, "update what is not there", api.CodeNotFound, err)

	// Keyspaces.
	made := must[api.KeyspaceChanged](t, "keyspace")(client.CreateKeyspace(ctx, api.CreateKeyspace{Name: "users", Slots: 16, Seed: "-7"}))
	if made.Keyspace.RangeCount == 0 || made.Keyspace.Seed != "-7" {
		t.Errorf("made %+v", made)
	}
	must[api.KeyspaceChanged](t, "keyspace by range")(client.CreateKeyspace(ctx, api.CreateKeyspace{
		Name: "orders", Strategy: topology.ByRange, Key: []string{"bigint", "text"}, SplitAt: []topology.Point{{"100"}, {"200", "m"}},
	}))
	must[api.KeyspaceChanged](t, "keyspace of schemas")(client.CreateKeyspace(ctx, api.CreateKeyspace{Name: "tenants", Strategy: topology.BySchema, Algorithm: "minimal"}))
	list := must[api.KeyspaceList](t, "keyspaces")(client.Keyspaces(ctx))
	if len(list.Keyspaces) != 3 || list.Keyspaces[2].Ranges != nil {
		t.Errorf("keyspaces %+v", list)
	}
	orders := must[api.Keyspace](t, "keyspace")(client.Keyspace(ctx, "orders", true))
	if diff := cmp.Diff([]topology.Point{nil, {"100"}, {"200", "m"}}, froms(orders.Ranges)); diff != "" {
		t.Errorf("ranges of orders: %s", diff)
	}
	_, err = client.Keyspace(ctx, "none", false)
	refusedWith(t, "a keyspace that is not there", api.CodeNotFound, err)
	users := must[api.Keyspace](t, "keyspace")(client.Keyspace(ctx, "users", false))
	total := 0.0
	for _, share := range users.Shares {
		total += share.Share
	}
	if users.Ranges != nil || total < 0.999 || total > 1.001 {
		t.Errorf("users %+v", users)
	}

	// What is used stays.
	_, err = client.RemoveShard(ctx, "one")
	refusedWith(t, "remove a shard with ranges", api.CodeInUse, err)

	// The map, out and in again.
	document := must[[]byte](t, "export")(client.MapDocument(ctx))
	if strings.Contains(string(document), "hunter2") {
		t.Error("a password is in the map")
	}
	withTables := edited(t, document, `"tables":[]`, `"tables":[{"name":"public.users","kind":"sharded","keyspace":"users","key":["id"]},{"name":"public.countries","kind":"reference"},{"name":"public.audit","kind":"single","shard":"one"}]`)
	imported := must[api.MapChanged](t, "import")(client.ImportMap(ctx, api.ImportMap{Document: withTables, IfVersion: made.MapVersion + 2}))
	m := must[*topology.Map](t, "map")(client.Map(ctx))
	if m.Version() != imported.MapVersion || m.TableCount() != 3 {
		t.Errorf("imported version %d, got %d with %d tables", imported.MapVersion, m.Version(), m.TableCount())
	}
	_, err = client.ImportMap(ctx, api.ImportMap{Document: []byte(`{"schema": 1, "readable_by": 1, "keyspcaes": []}`)})
	if answered := refusedWith(t, "import nonsense", api.CodeInvalid, err); !strings.Contains(answered.Message, "keyspcaes") {
		t.Errorf("message %q", answered.Message)
	}
	_, err = client.ImportMap(ctx, api.ImportMap{Document: []byte(`{"schema": 99, "readable_by": 99}`)})
	refusedWith(t, "import from the future", api.CodeNewerSchema, err)
	tables := must[api.TableList](t, "tables")(client.Tables(ctx))
	if len(tables.Tables) != 3 || tables.MapVersion != m.Version() {
		t.Errorf("tables %+v", tables)
	}
	_, err = client.DropKeyspace(ctx, "users")
	refusedWith(t, "drop a keyspace with tables", api.CodeInUse, err)

	// Sagas, of which there are none where they are not installed.
	if list := must[api.SagaList](t, "sagas")(client.Sagas(ctx, "stuck", "order", 10)); len(list.Sagas) != 0 || list.More || len(list.Findings) != 0 {
		t.Errorf("sagas %+v", list)
	}
	for _, wrong := range []string{"state=lost", "limit=0", "limit=many", "limit=10001"} {
		if got := plainGet(t, client, "/v1/sagas?"+wrong); got.status != 400 {
			t.Errorf("sagas with %s: %d %s", wrong, got.status, got.body)
		}
	}

	checkAgreement(t, client)
	rebuilt := must[api.RebuiltMap](t, "rebuild")(client.RebuildMap(ctx, api.RebuildMap{}))
	if rebuilt.MapVersion != 0 || len(rebuilt.Map.Keyspaces) != 3 {
		t.Errorf("rebuilt %+v", rebuilt)
	}
	applied := must[api.RebuiltMap](t, "rebuild and apply")(client.RebuildMap(ctx, api.RebuildMap{Apply: true, Shards: []topology.ShardSpec{
		{Primary: topology.InstanceSpec{Address: servers[0].Addr()}}, {Primary: topology.InstanceSpec{Address: servers[1].Addr()}},
	}}))
	if applied.MapVersion <= m.Version() {
		t.Errorf("rebuilt to version %d, from %d", applied.MapVersion, m.Version())
	}

	// How it is.
	shards := must[[]api.ShardStatus](t, "shards")(client.Shards(ctx))
	one := must[api.ShardStatus](t, "shard")(client.Shard(ctx, "one"))
	if len(shards) != 2 || shards[0].Name != "one" || one.Ranges != shards[0].Ranges || one.Tables != 1 {
		t.Errorf("shards %+v, one %+v", shards, one)
	}
	_, err = client.Shard(ctx, "none")
	refusedWith(t, "a shard that is not there", api.CodeNotFound, err)
	if status := must[api.Status](t, "status")(client.Status(ctx)); status.Keyspaces != 3 || status.Tables != 3 || len(status.Shards) != 2 {
		t.Errorf("status %+v", status)
	}
	must[[]api.Router](t, "routers")(client.Routers(ctx))

	declareTables(t, client, servers[0])
	tryMoves(t, client)

	// The end.
	must[api.MapChanged](t, "drop")(client.DropKeyspace(ctx, "orders"))
	empty := edited(t, must[[]byte](t, "export")(client.MapDocument(ctx)), `"shard":"two"`, `"shard":"one"`)
	_, err = client.ImportMap(ctx, api.ImportMap{Document: empty})
	refusedWith(t, "import a map that looks for data elsewhere", api.CodeRefused, err)
	told := must[api.MapChanged](t, "import as a rehearsal")(client.ImportMap(ctx, api.ImportMap{Document: empty, DryRun: true, Force: true}))
	if told.MapVersion != 0 || len(told.Changes) == 0 {
		t.Errorf("told %+v", told)
	}
	must[api.MapChanged](t, "import")(client.ImportMap(ctx, api.ImportMap{Document: empty, Force: true}))
	removed := must[api.ShardChanged](t, "remove")(client.RemoveShard(ctx, "two"))
	if removed.Shard.Name != "two" {
		t.Errorf("removed %+v", removed)
	}
	drift := must[[]api.Finding](t, "compare the tables")(client.DiffSchema(ctx)) // the map that was imported has tables that nobody made
	if len(drift) == 0 || slices.ContainsFunc(drift, func(f api.Finding) bool { return f.Code != "table_missing" }) {
		t.Errorf("drift: %+v", drift)
	}
	for _, path := range []string{"/healthz", "/metrics", "/v1/openapi.yaml"} {
		if got := plainGet(t, client, path); got.status != 200 || strings.Contains(got.body, "hunter2") {
			t.Errorf("%s: %d", path, got.status)
		}
	}
	for _, r := range routes() {
		if inspector.seen[r.method+" "+r.path] == 0 {
			t.Errorf("%s %s was not tried", r.method, r.path)
		}
	}
}

// tryMoves asks for moves that cannot be, or have nothing to carry, and divides ranges.
func tryMoves(t *testing.T, client *api.Client) {
	t.Helper()
	ctx := t.Context()
	split := must[api.KeyspaceChanged](t, "split")(client.SplitRanges(ctx, "orders", api.SplitRanges{At: [][]string{{"777777"}}}))
	merged := must[api.KeyspaceChanged](t, "merge")(client.MergeRanges(ctx, "orders", api.MergeRanges{}))
	if merged.Keyspace.RangeCount >= split.Keyspace.RangeCount {
		t.Errorf("%d ranges became %d", split.Keyspace.RangeCount, merged.Keyspace.RangeCount)
	}
	_, err := client.SplitRanges(ctx, "orders", api.SplitRanges{})
	refusedWith(t, "split nowhere", api.CodeInvalid, err)
	_, err = client.SplitRanges(ctx, "none", api.SplitRanges{Middle: true})
	refusedWith(t, "split a keyspace that is not there", api.CodeNotFound, err)
	told := must[api.MoveList](t, "a rehearsal")(client.StartMoves(ctx, api.StartMove{Keyspace: "orders", From: "two", To: "one", DryRun: true}))
	if len(told.Moves) != 1 || told.Moves[0].From != "two" {
		t.Errorf("it would move %+v", told)
	}
	if list := must[api.MoveList](t, "moves")(client.Moves(ctx)); len(list.Moves) != 0 {
		t.Errorf("a rehearsal has left %+v", list)
	}
	_, err = client.StartMoves(ctx, api.StartMove{Keyspace: "orders", To: "one"})
	refusedWith(t, "move nothing", api.CodeInvalid, err)
	_, err = client.StartMoves(ctx, api.StartMove{Keyspace: "orders", From: "two", To: "one", Streams: 10_000, DryRun: true})
	refusedWith(t, "more streams than anybody needs", api.CodeInvalid, err)
	_, err = client.StartMoves(ctx, api.StartMove{Keyspace: "orders", From: "two", To: "nowhere"})
	refusedWith(t, "move to nowhere", api.CodeNotFound, err)
	plan := must[api.RebalancePlan](t, "plan")(client.PlanRebalance(ctx, api.PlanRebalance{}))
	if len(plan.Shards) != 2 || plan.ID == "" {
		t.Errorf("plan %+v", plan)
	}
	_, err = client.ApplyRebalance(ctx, "none")
	refusedWith(t, "a plan that is not there", api.CodeNotFound, err)
	automation := must[api.Automation](t, "automation")(client.Automation(ctx))
	if automation.Settings.On || automation.Settings.Moves != "do" || automation.Settings.MaxBytes == 0 {
		t.Errorf("automation is on, or has no defaults: %+v", automation)
	}
	hours, on := "22:00-06:00", true
	if automation = must[api.Automation](t, "switch on")(client.UpdateAutomation(ctx, api.UpdateAutomation{On: &on, Hours: &hours})); !automation.Settings.On || automation.Settings.Hours != hours || len(automation.Events) != 1 {
		t.Errorf("automation %+v", automation)
	}
	hours, on = "later", false
	_, err = client.UpdateAutomation(ctx, api.UpdateAutomation{Hours: &hours})
	refusedWith(t, "hours that are none", api.CodeInvalid, err)
	_, err = client.UpdateAutomation(ctx, api.UpdateAutomation{Keyspaces: &[]string{"none"}})
	refusedWith(t, "a keyspace that is not there", api.CodeNotFound, err)
	_, err = client.UpdateAutomation(ctx, api.UpdateAutomation{Resume: []string{"orders"}})
	refusedWith(t, "nothing to resume", api.CodeInvalid, err)
	must[api.Automation](t, "switch off")(client.UpdateAutomation(ctx, api.UpdateAutomation{On: &on}))
	_, err = client.Move(ctx, "none")
	refusedWith(t, "a move that is not there", api.CodeNotFound, err)
	_, err = client.WishMove(ctx, "none", "cancel")
	refusedWith(t, "a wish for a move that is not there", api.CodeNotFound, err)
	rate, load := int64(1000), 0.5
	_, err = client.ThrottleMove(ctx, "none", api.MoveLimits{MaxRate: &rate})
	refusedWith(t, "limits of a move that is not there", api.CodeNotFound, err)
	_, err = client.ThrottleMove(ctx, "none", api.MoveLimits{MaxLoad: &load})
	refusedWith(t, "a limit that cannot be", api.CodeInvalid, err)
	_, err = client.ThrottleMove(ctx, "none", api.MoveLimits{})
	refusedWith(t, "no limits", api.CodeInvalid, err)
	limited := must[api.MoveList](t, "a rehearsal with limits")(client.StartMoves(ctx, api.StartMove{Keyspace: "orders", From: "two", To: "one", DryRun: true, MoveLimits: api.MoveLimits{MaxRate: &rate}}))
	if limits := limited.Moves[0].Limits; *limits.MaxRate != rate || *limits.MaxLagSeconds != 10 || !*limits.Throttle {
		t.Errorf("the limits are %d bytes a second, a lag of %g seconds, throttle %t", *limits.MaxRate, *limits.MaxLagSeconds, *limits.Throttle)
	}
}

// checkAgreement waits until every shard has recorded what the map says: the leader tells them by itself.
func checkAgreement(t *testing.T, client *api.Client) {
	t.Helper()
	var findings []api.Finding
	for range 100 {
		findings = must[[]api.Finding](t, "check")(client.CheckMap(t.Context()))
		if !slices.ContainsFunc(findings, func(f api.Finding) bool { return f.Code == "not_recorded" }) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, f := range findings {
		if f.Severity == api.Problem || f.Code == "not_recorded" {
			t.Errorf("the shards do not agree with the map: %+v", f)
		}
	}
}

func froms(ranges []topology.RangeSpec) []topology.Point {
	points := make([]topology.Point, len(ranges))
	for i, r := range ranges {
		points[i] = r.From
	}
	return points
}

// edited replaces a text in a document, which must be there.
func edited(t *testing.T, document []byte, text, by string) []byte {
	t.Helper()
	if !strings.Contains(string(document), text) {
		t.Fatalf("no %s in %s", text, document)
	}
	changed := strings.ReplaceAll(string(document), text, by)
	if !json.Valid([]byte(changed)) {
		t.Fatalf("no JSON any more: %s", changed)
	}
	return []byte(changed)
}

// plainGet asks without the client's methods, but through its inspector.
func plainGet(t *testing.T, client *api.Client, path string) answer {
	t.Helper()
	sent, err := http.NewRequestWithContext(t.Context(), http.MethodGet, client.BaseURL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.HTTP.Do(sent)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{got.StatusCode, got.Header, string(body)}
}

// TestTheMapIsSentOnce: who has the version is not sent it again.
func TestTheMapIsSentOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	cluster := startCluster(t)
	must[api.MapChanged](t, "create")(cluster.Create(t.Context()))
	s := newServer(t, Config{Cluster: cluster})
	for known, status := range map[string]int{`"1"`: 304, `W/"1"`: 304, `"0", "1"`: 304, "*": 304, `"2"`: 200, "1": 200, "": 200} {
		got := ask(t, s, request{method: "GET", path: "/v1/map", header: map[string]string{"If-None-Match": known}})
		if got.status != status || got.header.Get("ETag") != `"1"` || (got.body == "") != (status == 304) {
			t.Errorf("with %s: %d %s %q", known, got.status, got.header.Get("ETag"), got.body)
		}
	}
	if got := ask(t, s, request{method: "HEAD", path: "/v1/map"}); got.status != 200 || got.header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", got.status, got.header)
	}
}

// TestAnImportHoldsAgainstTheVersionThatItsCallerSaw: with If-Match nobody's change is overwritten unseen.
func TestAnImportHoldsAgainstTheVersionThatItsCallerSaw(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	cluster := startCluster(t)
	s := newServer(t, Config{Cluster: cluster})
	put := func(match, document string) answer {
		return ask(t, s, request{method: "PUT", path: "/v1/map", body: document, header: map[string]string{"Content-Type": "application/json", "If-Match": match}})
	}
	if got := put("*", "{}"); got.status != 412 || errorIn(t, got).Code != "conflict" {
		t.Errorf("where there is no map: %d %s", got.status, got.body)
	}
	must[api.MapChanged](t, "create")(cluster.Create(t.Context()))
	document := ask(t, s, request{method: "GET", path: "/v1/map"}).body
	for _, match := range []string{`"2"`, `"0"`, "1", `W/"1"`, `"2", "3"`} {
		if got := put(match, document); got.status != 412 || errorIn(t, got).Code != "conflict" {
			t.Errorf("expecting %s, at version 1: %d %s", match, got.status, got.body)
		}
	}
	for version, match := range []string{`"1"`, "*", `"0", "3"`, ""} { // each import makes the next version
		got := put(match, document)
		if want := api.VersionTag(uint64(version) + 2); got.status != 200 || got.header.Get("ETag") != want {
			t.Errorf("expecting %s: %d %s, ETag %s, want %s", match, got.status, got.body, got.header.Get("ETag"), want)
		}
	}
	told := ask(t, s, request{method: "PUT", path: "/v1/map?dry_run=true", body: document, header: asJSON})
	if m := must[*topology.Map](t, "map")(cluster.Map(t.Context())); told.status != 200 || told.header.Get("ETag") != "" || m.Version() != 5 {
		t.Errorf("a rehearsal made version %d: %d %s", m.Version(), told.status, told.body)
	}
	if got := ask(t, s, request{method: "PUT", path: "/v1/map?dry_run=maybe", body: document, header: asJSON}); got.status != 400 {
		t.Errorf("a parameter that is neither true nor false: %d", got.status)
	}
}

// overtaken is a cluster whose map changes between the look at If-Match and the import.
type overtaken struct{ *control.Cluster }

func (overtaken) Import(context.Context, api.ImportMap) (api.MapChanged, error) {
	return api.MapChanged{}, &store.ConflictError{Base: 1, Current: 2}
}

func TestAnImportThatIsOvertaken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	cluster := startCluster(t)
	must[api.MapChanged](t, "create")(cluster.Create(t.Context()))
	s := newServer(t, Config{Cluster: overtaken{cluster}})
	for match, status := range map[string]int{`"1"`: 412, "": 409} {
		got := ask(t, s, request{method: "PUT", path: "/v1/map", body: "{}", header: map[string]string{"Content-Type": "application/json", "If-Match": match}})
		if got.status != status || errorIn(t, got).Code != "conflict" {
			t.Errorf("expecting %q: %d %s, want %d", match, got.status, got.body, status)
		}
	}
}

// TestReadinessWithoutAWordOfItsOwn: by default the cluster's applied map decides.
func TestReadinessWithoutAWordOfItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	cluster := startCluster(t)
	s := newServer(t, Config{Cluster: cluster})
	if got := ask(t, s, request{method: "GET", path: "/readyz"}); got.status != 503 || !strings.Contains(errorIn(t, got).Message, "no shard map") {
		t.Errorf("without a map: %d %s", got.status, got.body)
	}
	must[api.MapChanged](t, "create")(cluster.Create(t.Context()))
	if got := ask(t, s, request{method: "GET", path: "/readyz"}); got.status != 200 {
		t.Errorf("with a map: %d %s", got.status, got.body)
	}
}
