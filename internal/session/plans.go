package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/maypok86/otter/v2"

	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/catalog"
	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// planned is a plan with its statistics.
type planned struct {
	plan     *plan.Plan
	stats    *observe.Statement
	resolved resolved
	outlines outlines
	// shaping are the literals on whose values the plans of such texts depend; nil for a plan itself.
	shaping []int
	// unreadable: no grammar could make sense of the text; the server says what is wrong with it.
	unreadable bool
}

// planner makes plans and keeps them.
type planner struct {
	cache *otter.Cache[string, *planned]
	// stoodIn are the last texts in which views were to stand in for tables, with why they cannot; nil if they can.
	stoodIn *otter.Cache[string, *pgerr.Error]
	catalog *catalog.Catalog
	stats   *observe.Statements
}

// maxPlannedText bounds what a kept plan's key may cost.
const maxPlannedText = 64 << 10

// maxStoodIn bounds how many such texts are kept.
const maxStoodIn = 1000

func newPlanner(size int, c *catalog.Catalog, stats *observe.Statements) *planner {
	return &planner{
		cache:   otter.Must(&otter.Options[string, *planned]{MaximumSize: size}),
		stoodIn: otter.Must(&otter.Options[string, *pgerr.Error]{MaximumSize: maxStoodIn}),
		catalog: c, stats: stats,
	}
}

// planFor returns how a text runs, from the cache if anybody ran one like it. The session's scan has its literals afterwards.
func (s *session) planFor(text []byte) (*planned, *pgerr.Error) {
	for {
		s.publish(anyTables)
		p, refused := s.planNow(text)
		if refused != nil {
			return nil, refused
		}
		if p.namesUnknown() && s.server.see().tables != s.view.tables { // a newer map may know where it is
			continue
		}
		hold, held := s.holdOn(p)
		if !held {
			if refused := p.refuseHeld(s.view.m); refused != nil {
				return nil, refused
			}
			s.publish(p)
			s.admit(p)
			return p, nil
		}
		if refused := s.awaitRelease(hold); refused != nil {
			return nil, refused
		}
	}
}

// planNow is planFor without a look at what is held.
func (s *session) planNow(text []byte) (*planned, *pgerr.Error) {
	counted := s.countedAs
	s.countedAs = nil // of this text alone, and not of those that it is run by
	s.refreshContext()
	if refused := s.seePath(); refused != nil {
		return nil, refused
	}
	if s.foreignEncoding && hasHighByte(text) && !s.readableEncoding() {
		return nil, errEncoding(s.encoding)
	}
	if s.scan.Scan(text, s.standardConforming()) != nil {
		return unreadablePlan, nil //nolint:nilerr // the server says what is wrong
	}
	if s.foreignEncoding && hasHighByte(s.scan.Text) { // the catalogue has such a name in another form
		return nil, errEncoding(s.encoding)
	}
	var refused *pgerr.Error
	if s.hint, refused = s.hintIn(text); refused != nil {
		return nil, refused
	}
	if s.hint == "" && s.inText { // it may stand beside another statement of the text
		s.hint = s.textHint
	}
	s.key = append(append(append(s.key[:0], s.scan.Text...), s.contextKey...), s.hint...)
	var p *planned
	if s.tx.defined == "" { // or plans are made with what only this transaction sees
		// The cache does not keep the key of a look-up, so it need not be copied.
		p, _ = s.server.planner.cache.GetIfPresent(unsafe.String(unsafe.SliceData(s.key), len(s.key)))
	}
	if p != nil && p.shaping != nil { // there is a plan for each of their values
		p, _ = s.server.planner.cache.GetIfPresent(shapedKey(string(s.key), p.shaping, s.scan.Literals, text))
	}
	if p == nil {
		if p, refused = s.makePlan(string(text), counted); refused != nil {
			return nil, refused
		}
	}
	return p, s.staysInView(p)
}

// staysInView refuses a plan of tables that are other ones than under the map that the transaction goes by. One that has run nothing
// yet goes by the newer map.
func (s *session) staysInView(p *planned) *pgerr.Error {
	if s.tx.view == nil || s.tx.view.tables == s.view.tables || p.declaredAlike(s.tx.view.m, s.view.m) {
		return nil
	}
	if s.backend != nil || s.isSpread() || len(s.ops) > 0 {
		if len(s.unitPlans) == 0 && len(p.plan.Statements) == 1 && p.onlyMoved(s.tx.view.m, s.view.m) && s.usedAlike(s.tx.view, s.view) {
			return nil // it goes by the newer map before it runs
		}
		return tablesChanged
	}
	s.tx.view = s.view
	return nil
}

// onlyReads says whether it provably changes nothing.
func (p *planned) onlyReads() bool {
	return !slices.ContainsFunc(p.plan.Statements, func(st plan.Statement) bool {
		return !st.Reads && (st.Command == plan.Pass || st.Command == plan.Execute)
	})
}

var tablesChanged = pgerr.New(pgerr.SerializationFailure, "tables were declared while the transaction was running").
	WithDetail("A transaction sees one shard map from its first statement on.").WithHint("Begin it again.")

var unreadablePlan = &planned{unreadable: true, plan: &plan.Plan{}, stats: new(observe.Statement)}

// makePlan plans a text that nobody ran yet. One that is long because of its literals is planned with short ones: a plan does
// not depend on what they say. Counted are the statistics of what it stands for; nil: of itself.
func (s *session) makePlan(text string, counted *observe.Statement) (*planned, *pgerr.Error) {
	literals, long := s.scan.Literals, len(text) > facts.MaxText
	if long {
		short, _ := shorten(text, literals)
		var scan sqltext.Normalized
		if err := scan.Scan([]byte(short), s.standardConforming()); err != nil || !bytes.Equal(scan.Text, s.scan.Text) {
			return nil, errTooLong(len(text))
		}
		text, literals = short, scan.Literals
	}
	masked := s.foreignEncoding && hasHighByte([]byte(text))
	if masked {
		text = maskHighBytes(text)
	}
	statements, err := facts.Of(text)
	if err != nil {
		var refused *pgerr.Error
		if errors.As(err, &refused) {
			return nil, refused
		}
		return unreadablePlan, nil
	}
	context, refused := s.planContext()
	if refused != nil {
		return nil, refused
	}
	known, refused := s.look(statements, &context)
	if refused != nil {
		return nil, refused
	}
	context.Literals = literals
	if known, refused = s.lookBehind(text, statements, known, &context); refused != nil {
		return nil, refused
	}
	p := &planned{plan: plan.Make(text, statements, known, context)}
	if long && (p.plan.Uncacheable || len(p.plan.Shaping) > 0) { // it has places in the text in it, which are not those of the client's
		return nil, errTooLong(len(text))
	}
	if masked && (p.plan.Uncacheable || len(p.plan.Shaping) > 0) { // it has to do with what the literals say
		return nil, errEncoding(s.encoding)
	}
	p.plan.MarkPlain()
	key := string(s.key)
	normalized := key[:len(s.scan.Text)]
	if p.stats = counted; p.stats == nil {
		p.stats = s.server.planner.stats.Entry(sqltext.Fingerprint(s.scan.Text), func() string { return readable(normalized) })
	}
	if !p.plan.Uncacheable && len(text) <= maxPlannedText && s.tx.defined == "" {
		if shaping := p.plan.Shaping; len(shaping) > 0 {
			s.server.planner.cache.Set(key, &planned{plan: p.plan, stats: p.stats, shaping: shaping})
			key = shapedKey(key, shaping, literals, []byte(text))
		}
		s.server.planner.cache.Set(key, p)
	}
	return p, nil
}

// shapedKey is what a plan is kept under that depends on the values of some literals.
func shapedKey(key string, shaping []int, literals []sqltext.Literal, text []byte) string {
	shaped := []byte(key)
	for _, n := range shaping {
		shaped = binary.BigEndian.AppendUint32(append(shaped, 0), uint32(n))
		shaped = append(shaped, text[literals[n].Start:literals[n].End]...)
	}
	return string(shaped)
}

// shorten gives a text's strings other contents, none longer than a few bytes; back tells where a place in it, outside of strings, is in the text itself.
func shorten(text string, literals []sqltext.Literal) (short string, back func(place int) int) {
	const longest, instead = 32, "''"
	var b strings.Builder
	type cut struct{ place, bytes int }
	var cuts []cut
	at := 0
	for _, l := range literals {
		if l.End-l.Start <= longest || l.Kind != sqltext.String {
			continue
		}
		b.WriteString(text[at:l.Start])
		b.WriteString(instead)
		cuts = append(cuts, cut{b.Len(), l.End - l.Start - len(instead)})
		at = l.End
	}
	b.WriteString(text[at:])
	return b.String(), func(place int) int {
		shift := 0
		for _, c := range cuts {
			if c.place > place {
				break
			}
			shift += c.bytes
		}
		return place + shift
	}
}

func errTooLong(size int) *pgerr.Error {
	return pgerr.New(pgerr.ProgramLimitExceeded, "a statement of %d bytes is too long", size).
		WithDetail("The router plans statements of up to %d bytes, not counting strings.", facts.MaxText).
		WithHint("Send values as parameters, or with COPY.")
}

// maskHighBytes makes a text readable whose literals and comments, and nothing else, are in another encoding. A plan does not depend
// on them, and places stay as they are.
func maskHighBytes(text string) string {
	masked := []byte(text)
	for i, b := range masked {
		if b >= utf8.RuneSelf {
			masked[i] = '?'
		}
	}
	return string(masked)
}

// lookBehind asks the catalogue for what the queries of views name, those behind other views too.
func (s *session) lookBehind(text string, statements []facts.Statement, known *plan.Known, c *plan.Context) (*plan.Known, *pgerr.Error) {
	for range maxViews {
		relations, functions := plan.WantsBehind(text, statements, known, *c)
		if len(relations) == 0 && len(functions) == 0 {
			break
		}
		more, refused := s.lookFor(relations, functions, c)
		if refused != nil {
			return nil, refused
		}
		known = known.With(more)
	}
	return known, nil
}

// maxViews is more than the planner looks through.
const maxViews = 100

// look asks the catalogue for what the statements name. What the open transaction has defined only its own backend knows.
func (s *session) look(statements []facts.Statement, c *plan.Context) (*plan.Known, *pgerr.Error) {
	relations, functions := plan.Wants(statements)
	return s.lookFor(relations, functions, c)
}

func (s *session) lookFor(relations []plan.RelationName, functions []plan.FunctionName, c *plan.Context) (*plan.Known, *pgerr.Error) {
	if s.tx.defined != "" && !s.seesOwn() {
		c.Unsettled = s.tx.defined
	}
	if len(relations) == 0 && len(functions) == 0 {
		return &plan.Known{}, nil
	}
	if s.tx.defined != "" && s.seesOwn() {
		c.Altered = true
		return s.lookInside(relations, functions, c.SearchPath)
	}
	if s.tx.locked && s.seesOwn() { // who asked from outside would wait for this very transaction
		return s.lookInside(relations, functions, c.SearchPath)
	}
	ctx, cancel := context.WithTimeout(s.ctx, catalogTimeout)
	defer cancel()
	known, err := s.server.planner.catalog.Look(ctx, relations, functions, c.SearchPath)
	if err != nil {
		return nil, pgerr.New(pgerr.CannotConnectNow, "the statement could not be planned").
			WithDetail("The catalogue could not be read: %s", err).WithHint("It is read from the shard with the lowest number: cleave status shows how that one is.")
	}
	return known, nil
}

// seesOwn says whether the backend of the open transaction can be asked what is in the catalogue.
func (s *session) seesOwn() bool {
	s.visitHome()
	return s.mayAskInside() && s.backend.Shard() == s.home()
}

// lookInside asks the transaction's own backend what names stand for.
func (s *session) lookInside(relations []plan.RelationName, functions []plan.FunctionName, path []string) (*plan.Known, *pgerr.Error) {
	known, err := s.server.planner.catalog.LookOn(func(question string, arguments ...string) ([]byte, error) {
		values := make([][]byte, len(arguments))
		for i, argument := range arguments {
			values[i] = []byte(argument)
		}
		a, refused := s.inside("; SET LOCAL search_path TO pg_catalog; SET LOCAL client_encoding TO UTF8"+
			"; SET LOCAL standard_conforming_strings TO on; SET LOCAL datestyle TO ISO; SET LOCAL intervalstyle TO postgres; SET LOCAL extra_float_digits TO 1; SET LOCAL jit TO off", func() (answer, error) { return s.askParams(question, nil, nil, values) })
		switch {
		case refused != nil:
			return nil, refused
		case a.failure != nil:
			return nil, a.failure.PGError()
		case len(a.rows) != 1 || len(a.rows[0]) != 1:
			return nil, errors.New("the catalogue gave no answer")
		}
		return []byte(a.rows[0][0]), nil
	}, relations, functions, path)
	if refused := refusalIn(err); refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, pgerr.New(pgerr.InternalError, "the statement could not be planned").WithDetail("%s", err)
	}
	return known, nil
}

const catalogTimeout = 10 * time.Second

func (s *session) planContext() (plan.Context, *pgerr.Error) {
	m := s.view.m
	if m == nil {
		return plan.Context{}, errNoShards
	}
	home := m.Home()
	if home == nil {
		return plan.Context{}, errNoShards
	}
	return plan.Context{
		SearchPath: s.visiblePath, PathIsLocal: s.pathChanged(), Temporary: func(name string) bool { return s.temporary[name] },
		Literals: s.scan.Literals, Map: m, Home: home.Name(), Dumps: s.dumps(), HintShard: s.hint, HintKey: s.shardKey != "",
		Dropped: s.tx.dropped, Role: s.currentRole(), ForeignEncoding: s.foreignEncoding,
	}, nil
}

// pathChanged says whether the open transaction has set the search path, or may have.
func (s *session) pathChanged() bool {
	return slices.ContainsFunc(s.log.changes, func(c change) bool { return c.all || c.entry.name == "search_path" || isIdentity(c.entry.name) })
}

// refreshContext computes what a text's meaning depends on besides itself, if that may have changed.
func (s *session) refreshContext() {
	epoch := s.server.epoch.Load() + s.server.planner.catalog.Epoch()
	view := s.server.see()
	if len(s.contextKey) > 0 && s.contextEpoch == epoch && s.view.tables == view.tables {
		s.view = view
		s.noteVersion()
		return
	}
	s.contextEpoch, s.view = epoch, view
	s.noteVersion()
	key := s.contextKey[:0]
	key = binary.BigEndian.AppendUint64(key, epoch)
	key = binary.BigEndian.AppendUint64(key, view.tables)
	s.visiblePath = nil
	path := s.searchPath()
	key = binary.BigEndian.AppendUint16(key, uint16(len(path)))
	key = append(key, strings.Join(path, "\x00")...)
	key = append(key, "\x00"+s.currentRole()...)
	s.refreshReading()
	s.triggersOff = switchesOff(s.effective()) && hasGuards(view.m)
	if !s.standardConforming() {
		key = append(key, "\x00escapes"...)
	}
	if s.foreignEncoding { // texts that views bring along are in UTF8
		key = append(key, "\x00foreign"...)
	}
	if s.pathChanged() {
		key = append(key, "\x00local"...)
	}
	if e, set := s.effective().find("transform_null_equals"); set {
		key = append(key, "\x00null="+e.sql...)
	}
	if s.shardKey != "" {
		key = append(key, "\x00keyed"...)
	}
	if s.dumps() {
		key = append(key, "\x00dumps"...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.temporary)) {
		key = append(key, "\x00temp "+name...)
	}
	key = append(key, 0)
	s.contextKey = key
}

// refreshReading computes how texts and values are read. What the server reports comes at the end of a unit only, so the
// session's own settings count.
func (s *session) refreshReading() {
	now := s.effective()
	value := func(name string) string {
		if e, set := now.find(name); set && len(e.values) == 1 {
			return e.values[0]
		}
		return ""
	}
	s.encoding = strings.ToUpper(value("client_encoding"))
	utf8 := slices.Contains([]string{"UTF8", "UTF-8", "UNICODE", "SQL_ASCII"}, s.encoding)
	s.foreignEncoding = !utf8
	zone := value("timezone")
	s.reading = binding.Session{ClientEncodingUTF8: utf8, TimeZoneUTC: zone == "UTC" || zone == "Etc/UTC"}
	s.conforming = !isOff(value("standard_conforming_strings"))
}

// isOff says whether a value of a boolean parameter is one of those that mean off, or the beginning of one.
func isOff(value string) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	return value == "0" || value != "" && slices.ContainsFunc([]string{"off", "false", "no"}, func(word string) bool {
		return strings.HasPrefix(word, value) && value != "o"
	})
}

// readableEncoding says whether, in the client's encoding, a byte that looks like ASCII always is.
func (s *session) readableEncoding() bool {
	for _, unsafe := range []string{"SJIS", "SHIFT", "MSKANJI", "WIN932", "BIG5", "WIN950", "GBK", "WIN936", "UHC", "WIN949", "GB18030", "JOHAB"} {
		if strings.Contains(s.encoding, unsafe) {
			return false
		}
	}
	return true
}

func hasHighByte(text []byte) bool {
	return slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf })
}

func errEncoding(encoding string) *pgerr.Error {
	return pgerr.New(pgerr.FeatureNotSupported, "a statement with names that are not ASCII is not supported with client_encoding %s", encoding).
		WithDetail("The router compares names with the catalogue's, which are in UTF8.").WithHint("SET client_encoding = 'UTF8'.")
}

func (s *session) contextChanged() { s.contextKey = s.contextKey[:0] }

// effective are the settings as they are inside the running transaction.
func (s *session) effective() *settings {
	if len(s.log.changes) == 0 {
		return s.settings
	}
	return s.log.apply(s.settings, s.base, false)
}

// searchPath returns the schemas in which names are looked up, "$user" replaced.
func (s *session) searchPath() []string {
	path := s.defaults.searchPath
	if e, set := s.effective().find("search_path"); set {
		path = e.values
	}
	resolved := make([]string, 0, len(path))
	for _, schema := range path {
		if schema == "$user" {
			schema = s.currentRole()
		}
		if schema != "" {
			resolved = append(resolved, schema)
		}
	}
	return resolved
}

// seePath finds out which schemas of the search path the role may use: PostgreSQL passes over the others, and a name would be
// taken for another's. With one schema there is nothing to confuse.
func (s *session) seePath() *pgerr.Error {
	if s.visiblePath != nil {
		return nil
	}
	if path := s.searchPath(); len(path) < 2 {
		s.visiblePath = path
		return nil
	}
	if known := s.server.paths.find(string(s.contextKey)); known != nil && s.tx.defined == "" {
		s.visiblePath = known
		return nil
	}
	a, refused := s.aside(func() (answer, error) { return s.ask("SELECT pg_catalog.unnest(pg_catalog.current_schemas(false))") })
	if refused != nil {
		return refused
	}
	if a.failure != nil {
		return a.failure.PGError()
	}
	s.visiblePath = make([]string, 0, len(a.rows))
	for _, row := range a.rows {
		s.visiblePath = append(s.visiblePath, row[0])
	}
	if s.tx.defined == "" {
		s.server.paths.keep(string(s.contextKey), s.visiblePath)
	}
	return nil
}

// pathCache remembers visible search paths, by everything that they depend on.
type pathCache struct {
	mu    sync.Mutex
	paths map[string][]string
}

const maxPaths = 1000

func (c *pathCache) find(key string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paths[key]
}

func (c *pathCache) keep(key string, path []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paths == nil || len(c.paths) >= maxPaths {
		c.paths = map[string][]string{}
	}
	c.paths[key] = path
}

func (s *session) currentRole() string {
	effective := s.effective()
	if e, set := effective.find("role"); set && len(e.values) == 1 && !strings.EqualFold(e.values[0], "none") {
		return e.values[0]
	}
	if e, set := effective.find("session_authorization"); set && len(e.values) == 1 {
		return e.values[0]
	}
	return s.user
}

// standardConforming says whether a backslash in '…' is just a backslash.
func (s *session) standardConforming() bool {
	return s.conforming
}

// sameTables says whether two maps give every statement the same plan: shards, pins and ranges are looked at only when it runs.
func sameTables(a, b *topology.Map) bool {
	if a == nil || b == nil || a.TableCount() != b.TableCount() || a.Home() == nil || b.Home() == nil || a.Home().Name() != b.Home().Name() {
		return false
	}
	if (a.ShardCount() == 1) != (b.ShardCount() == 1) { // on one shard a reference table is like any other
		return false
	}
	for _, t := range a.Tables() {
		other := b.Table(t.Name().Schema, t.Name().Name)
		if other == nil || !sameTable(t.Spec(), other.Spec()) {
			return false
		}
	}
	return slices.Equal(ofSchemas(a), ofSchemas(b))
}

// ofSchemas are the keyspaces that place whole schemas, which the planner looks up.
func ofSchemas(m *topology.Map) []*topology.Keyspace {
	return slices.DeleteFunc(m.Keyspaces(), func(k *topology.Keyspace) bool { return k.Strategy() != topology.BySchema })
}

func sameTable(a, b topology.TableSpec) bool {
	return a.Kind == b.Kind && a.Keyspace == b.Keyspace && a.Shard == b.Shard && slices.Equal(a.Key, b.Key) && slices.Equal(a.IDs, b.IDs) && slices.Equal(a.MadeKeys, b.MadeKeys)
}
