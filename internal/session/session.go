package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/internal/binding"
	"github.com/cleavedb/cleave/internal/observe"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/placement/key"
)

// The states of a transaction, as ReadyForQuery tells them.
const (
	statusIdle   = 'I'
	statusOpen   = 'T'
	statusFailed = 'E'
)

// session is one client's connection.
type session struct {
	server   *Server
	standing standing
	conn     net.Conn
	in       reader
	out      []byte // for the client, not written yet
	// instead is what the client gets in place of the message that is looked at.
	instead []byte

	number      uint32 // what the client knows as its process id
	secret      []byte
	user        string
	database    string
	address     string
	application string
	tls         *tls.ConnectionState // nil: in the clear
	binding     []byte               // of the certificate that the client was shown
	started     time.Time
	identity    *pool.Identity

	base, settings  *settings // what it began with; what it has now
	defaults        *defaults // what the shards give the role where nothing was set
	poolMode        Mode
	firstMode       Mode   // that it began with
	contextKey      []byte // what changes a text's meaning, as a part of the plan cache's key
	contextEpoch    uint64
	view            *mapView          // that it was computed under
	visiblePath     []string          // the search path as far as the role may use it; nil: not looked at yet
	foreignEncoding bool              // the client's is not UTF8
	encoding        string            // the client's
	reading         binding.Session   // how values are read
	conforming      bool              // a backslash in a string is just a backslash
	triggersOff     bool              // the client has switched them off, when no table was declared yet
	changes         uint64            // how many statements it has run that may write
	temporary       map[string]bool   // names of temporary relations
	reported        map[string]string // parameters as the client was told
	// reportedBefore are those from before the transaction; nil if none has changed.
	reportedBefore map[string]string
	ready          bool // the client has been told that it is in

	statements map[string]*statement
	unnamed    *statement
	portals    map[string]*portal
	// current is the unnamed portal.
	current portal

	inHand    byte // the kind of the message that is being handled
	opsBefore int  // how many operations there were before it
	// unparsed is the operation of a Parse, while what is rendered is not yet sure to parse its text; -1: none.
	unparsed int

	// The unit of work.
	ops      []op
	expects  []expect
	head     int // of expects
	toServer []byte
	skipping bool // an error came: everything up to Sync is passed over
	target   int  // the shard that the unit's statements go to, noShard if none needs one yet

	// The transaction.
	tx      transaction
	beside  *transaction // the client's, while a unit runs outside it
	log     settingsLog
	status  byte // as the client was told last
	backend *pool.Backend
	state   *serverState // of the backend
	// unsynced: the backend has messages that no Sync or Query has ended.
	unsynced bool
	// joined: the backend has heard of the transaction; pending is what it has still to hear. wrote: it may have changed something.
	joined  bool
	pending script
	wrote   bool
	// legs are the other backends of the transaction, by shard.
	legs    map[int]*leg
	working []*pool.Backend // those of them that do something now
	// spreadTo are the shards of the unit's operations if they concern several; spreadParts and rowOrder how these are divided.
	spreadTo    []int
	wanted      []int // scratch: the shards of one statement
	placing     placing
	told        toldNumbers
	rowShards   []int        // scratch: those of its keys, in their order
	counts      counting     // which statements count
	oneKey      [1]key.Value // scratch
	spreadParts plan.Parts
	rowOrder    []int
	spreadLimit int64   // how many rows the client gets at most, unlimited if there is no limit
	syncing     bool    // the client has ended the unit
	unload      *unload // the COPY TO that the unit is
	loading     *load   // the COPY that the unit is, if its rows go to several shards
	loaded      bool    // it has run, and the client has still to end the unit
	interrupt   func()  // ends from outside what the session itself does, besides its backends: a COPY, a function of the router; nil: nothing
	gather      *gather // what a statement on several shards has answered so far; nil: there is none
	sink        sink    // where its rows go, if not to the client
	sunkTag     string  // what the shards have answered with, if the rows are not for the client
	own         own     // the statement in hand, if the session itself answers it
	stepError   error   // why a step failed, if the session ends by it
	// isolations remembers the level at which transactions begin, under these settings.
	isolations map[*settings]string
	// inText: the statements of one text are run one by one, and the client hears that it may go on after the last.
	inText bool
	erred  bool // an error has been told since this was last false
	// textGoesOn: the statement that runs is not the last of its text. lastTag is the tag of one that is, while the router commits.
	textGoesOn bool
	textBefore int // how many characters stand before it in the text
	lastTag    []byte
	pinned     map[int]*pinned
	// lostPin says goodbye to a session that has lost a backend which it had kept; nil: it has lost none.
	lostPin *pgerr.Error
	// using is what the session runs now, and used what its transaction has used before, for those who have to wait for it; unitPlans
	// are the plans of the unit, and unitView is what the first of them was made with. holds are the tables that it keeps others off.
	using     atomic.Pointer[planned]
	version   atomic.Uint64 // of the map that it goes by, said after what it uses
	wants     []string      // the keyspaces that a statement uses, for as long as it is routed
	used      usedTables
	unitPlans []*planned
	unitView  *mapView
	holds     []tableHold
	// suppress: the unit's error has been told, what follows from it need not be.
	suppress bool
	writing  chan struct{} // closed when what is written in the background is written
	// passing is how many bytes of a message that is being passed on are still to come.
	passing     int
	passingHide bool
	copying     bool // the server waits for COPY data
	copyWrite   *copyWrite
	fatal       *wire.Fields

	params          []binding.Param    // scratch
	bindMessage     wire.Bind          // scratch
	isAside         bool               // a question is asked that is no part of the client's transaction
	asksOwn         bool               // it is asked of the backend that the session keeps for its temporary tables
	hint            string             // the shard that a comment of the text names
	textHint        string             // the same of a text whose statements are run one by one
	answers         messageReader      // for answers to questions of the session's own
	shardKey        string             // of cleave.shard_key; empty: not set
	consistent      bool               // cleave.consistent_reads
	firstConsistent bool               // that the session began with
	fanout          fanout             // of cleave.fanout; empty: not set
	firstFanout     fanout             // that the session began with
	partial         toggle             // cleave.partial_results
	missing         missing            // shards that the last statement was answered without
	wholeOnly       bool               // what runs is a part of something that needs all its shards
	scatters        bool               // scratch: the statement that is placed goes to shards that no key of it names
	hinted          string             // the last hint that was logged
	planningAside   bool               // what is planned is the body of a prepared statement
	hasMomentName   bool               // a prepared statement was made to be executed with the moment in it
	momentEdits     *momentEdits       // how the moment is written into the statement that is routed; nil: it is not
	atMoment        bool               // the text that runs has the transaction's moment in it
	countedAs       *observe.Statement // what is planned stands for a statement that has these statistics
	explaining      bool               // the unit has an EXPLAIN to which the router adds lines
	notices         bool               // what a server notices is for the client
	unheard         bool               // what a server reports of parameters is not for the client
	unitBytes       int
	// meaningPending: the unit has something in it that has not run yet, and after which names, settings or tables may be others.
	meaningPending bool
	preparedCount  int // by PREPARE
	scan           sqltext.Normalized
	key            []byte // scratch
	sentAt         time.Time
	relayed        int64 // bytes of the backend's answer

	ctx    context.Context //nolint:containedctx // the session's life
	cancel context.CancelFunc

	// What others may look at or do.
	mu     guard // of what follows, and that a backend is not given back while it is being cancelled
	active *pool.Backend
	// waiting: for a backend; cancelWait ends that.
	waiting    bool
	waitCtx    context.Context //nolint:containedctx // of one wait
	cancelWait context.CancelFunc
	// cancelled: the client has cancelled what is under way, at a moment when nothing of it was on a shard; what it waits for next ends at once.
	cancelled atomic.Bool
	// justRead: the message in hand came, whole, with what was read last. The session alone knows.
	justRead bool
	// asking: the backend at work has a question of the session's own. telling: of the shards of a statement, some may not have been told it.
	asking, telling atomic.Bool
	// sending is since when answers of shards are waited for, in nanoseconds; 0: none is. steps grows with whatever is sent. sentence ends a wait.
	sending  atomic.Int64
	steps    atomic.Uint64
	sentence atomic.Pointer[sentence]
	// began is when the transaction first sent something; 0: it has not, or there is none. isWatched: the session may have several backends.
	began     atomic.Int64
	isWatched bool
	// asideFrom is the client's backend while another one is asked; asideOwes: it has more to answer.
	asideFrom *pool.Backend
	asideOwes bool
	failing   *gather // the statement of which what is left is to be ended
	// timing stands for the statement whose time is measured; nil: none is. timedOut: its time is over.
	timing   *byte
	timedOut atomic.Bool
	draining atomic.Bool
	idle     atomic.Bool // waits for the client, outside any transaction
}

const noShard = -1

// transaction is the client's, or one that the router has begun for it.
type transaction struct {
	// open: it is begun, and no shard knows of it yet. failed: nothing runs in it any more.
	open, failed bool
	// implicit: the client did not begin it, so it ends with the unit.
	implicit bool
	begin    string // its BEGIN as the client wrote it; empty as long as there is no block
	script   script // what was said after it
	// characteristics are those of it that say what kind of transaction it is: one that is chained to it is alike.
	characteristics []line
	// view is the map that statements of the transaction use. since are those that it went by when it was on shards already, each with other owners than the next one.
	view  *mapView
	since []*topology.Map
	// moment is when it began, for statements on several shards, as a literal; empty: nobody asked yet. clock is the shard whose own time that is; 0: not
	// known yet, noClock: none.
	moment string
	clock  int
	// level is its isolation level, if it was asked for. opened: its snapshots were opened on all shards, and fit together.
	level  string
	opened bool
	// public: something was defined that other sessions see; shared: of which other routers have to hear at once; dropped are declared tables that are gone.
	public  bool
	shared  bool
	dropped []topology.TableName
	// defined is the last command in it that changed the schema, which nobody else sees yet; empty: none.
	defined string
	// locked: it may have locked tables such that others than its own backends have to wait who read about them in the catalogue.
	locked bool
	// taken are sequences from which its backend on the home shard has taken numbers, so that it knows the last of each; lastTaken: the
	// last of all is among them.
	taken     []string
	lastTaken bool
}

// characterise takes what changes the kind of the transaction.
func (t *transaction) characterise(text string) {
	t.script.add(line{sql: text})
	t.characteristics = append(t.characteristics, line{sql: text})
}

// next is a transaction that is chained to this one. One that has failed has lost its kind already.
func (t *transaction) next() transaction {
	if t.failed {
		return transaction{open: true, begin: "BEGIN"}
	}
	return transaction{open: true, begin: t.begin, script: slices.Clone(t.characteristics), characteristics: t.characteristics}
}

func (t *transaction) status() byte {
	switch {
	case t.open && t.failed:
		return statusFailed
	case t.open:
		return statusOpen
	default:
		return statusIdle
	}
}

// pinned is a backend that stays with the session.
type pinned struct {
	backend *pool.Backend
	reasons []plan.Pin
	since   time.Time
}

func (p *pinned) has(reason plan.Pin) bool { return slices.Contains(p.reasons, reason) }

func (p *pinned) why() string {
	texts := make([]string, len(p.reasons))
	for i, r := range p.reasons {
		texts[i] = string(r)
	}
	return strings.Join(texts, ", ")
}

// errEnd ends a session whose client has been told why, or is gone.
var errEnd = errors.New("the session has ended")

// serve answers the client until it leaves.
func (s *session) serve() error {
	for {
		if err := s.wait(); err != nil {
			return err
		}
		kind, body, err := s.in.next(s.server.config.MaxMessage)
		if err != nil {
			return s.readFailed(err)
		}
		if err := s.handle(kind, body); err != nil {
			return err
		}
		if s.lostPin != nil {
			return s.sayGoodbye(s.lostPin)
		}
		s.relayed = 0
		s.quiet()
		if len(s.ops) == 0 {
			s.in.recycle()
		}
	}
}

// wait prepares for a client that may stay silent for long.
func (s *session) wait() error {
	s.justRead = false
	if s.in.buffered() {
		return nil
	}
	if err := s.write(); err != nil {
		return err
	}
	if s.backend == nil && len(s.ops) == 0 && !s.tx.open && !s.isSpread() {
		if s.draining.Load() {
			return s.sayGoodbye(shutdown)
		}
		s.idle.Store(true)
		defer s.idle.Store(false)
		if s.draining.Load() { // it was set while nobody was looking
			return s.sayGoodbye(shutdown)
		}
		if len(s.pinned) > 0 {
			return s.waitPinned()
		}
	}
	return s.readMore()
}

func (s *session) readMore() error {
	if err := s.in.fill(s.server.config.MaxMessage); err != nil {
		return s.readFailed(err)
	}
	s.cancelled.Store(false) // whoever cancelled while the client was waited for has cancelled nothing
	s.justRead = s.in.buffered()
	return nil
}

var shutdown = pgerr.Fatal(pgerr.AdminShutdown, "terminating connection due to administrator command")

// readFailed decides what the end of the client's stream means.
func (s *session) readFailed(err error) error {
	var refused *pgerr.Error
	if errors.As(err, &refused) {
		return s.sayGoodbye(fatal(refused))
	}
	if s.draining.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		return s.sayGoodbye(shutdown)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return errEnd
	}
	return fmt.Errorf("read from the client: %w", err)
}

func fatal(e *pgerr.Error) *pgerr.Error {
	c := *e
	c.Severity = pgerr.SeverityFatal
	return &c
}

// sayGoodbye tells the client why its session ends.
func (s *session) sayGoodbye(e *pgerr.Error) error {
	s.out = wire.AppendError(s.out, e)
	_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second)) // it may not be listening
	_ = s.write()
	return errEnd
}

// write sends the client what is ready for it.
func (s *session) write() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	if cap(s.out) > maxKeptBuffer {
		s.out = nil
	}
	if err != nil {
		return fmt.Errorf("write to the client: %w", err)
	}
	return nil
}

// handle does what one message asks for.
func (s *session) handle(kind byte, body []byte) error {
	s.written() // a COPY that failed leaves data on its way, and what comes now must not overtake it
	s.inHand, s.opsBefore = kind, len(s.ops)
	if len(s.ops) == 0 { // what came before, and whoever cancelled that, is over
		s.outliveSentence()
		if !s.justRead { // or whoever cancels now sees that the session is at work
			s.cancelled.Store(false)
		}
	}
	if s.skipping && kind != wire.MsgSync && kind != wire.MsgTerminate {
		return nil
	}
	switch kind {
	case wire.MsgQuery:
		return s.simpleQuery(body)
	case wire.MsgParse, wire.MsgBind, wire.MsgDescribe, wire.MsgExecute, wire.MsgClose:
		return s.extended(kind, body)
	case wire.MsgSync:
		return s.sync()
	case wire.MsgFlush:
		return s.flush()
	case wire.MsgTerminate:
		return errEnd
	case wire.MsgCopyData, wire.MsgCopyDone, wire.MsgCopyFail:
		return s.copyUnawaited(body)
	case wire.MsgFunctionCall:
		return s.refuseQuery(pgerr.New(pgerr.FeatureNotSupported, "the function call protocol is not supported").
			WithDetail("It names a function by its number, which differs from shard to shard.").WithHint("Call the function in a SELECT."))
	default:
		return s.sayGoodbye(pgerr.Fatal(pgerr.ProtocolViolation, "invalid frontend message type %d", kind))
	}
}

// refuse answers the unit with an error of the router's own. Whatever the unit or the transaction has done on a backend is
// undone there: the backend is made to fail in the same place. One that the router itself ends on all its shards is only noted to have
// failed, when what the unit has so far has run.
func (s *session) refuse(e *pgerr.Error) error {
	if e == stepFailed { // the client has been told
		return s.stepError
	}
	if e.Severity == pgerr.SeverityFatal { // the session has lost what it cannot go on without
		return s.sayGoodbye(e)
	}
	if s.isConducted() || len(s.spreadTo) > 0 {
		if s.finishStep() != nil {
			return s.stepError
		}
		s.spreadTo, s.loading, s.unload = nil, nil, nil // what is refused has not come to be a part of the unit
	}
	s.skipping, s.erred = true, true
	if !s.isConducted() && s.inServerTransaction() {
		s.ops = append(s.ops, op{kind: opPoison, failure: e})
		return nil
	}
	if s.tx.open || s.isConducted() {
		s.tx.failed = true
	}
	s.addLocal(wire.AppendError(nil, e))
	s.server.countRefusal(e)
	return nil
}

// isConducted says whether the router ends the transaction: it is on several shards, or the client did not begin it.
func (s *session) isConducted() bool { return s.tx.implicit || s.isSpread() }

// inServerTransaction says whether a backend has, or is about to get, work that an error must undo.
func (s *session) inServerTransaction() bool {
	return s.backend != nil && (s.status != statusIdle || s.unsynced) || s.needsServer()
}

// currentStatus is what ReadyForQuery says where no backend says it.
func (s *session) currentStatus() byte {
	if s.isSpread() {
		if s.hasFailed() {
			return statusFailed
		}
		return statusOpen
	}
	if s.backend != nil {
		return s.status
	}
	return s.tx.status()
}

// noMap has nothing in it.
var noMap = new(topology.Map)

// currentMap is the map that the running transaction uses, or the newest one.
func (s *session) currentMap() *topology.Map {
	if s.tx.view != nil {
		return s.tx.view.m
	}
	if m := s.server.see().m; m != nil {
		return m
	}
	return noMap
}
