package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/internal/localpg"
)

// The sides.
const (
	oneServer  = "one-server"  // the base: a relay before one plain server
	crossShard = "cross-shard" // the router, the accounts on two shards
	sameShard  = "same-shard"  // the router, the accounts on one shard
	mixed      = "mixed"       // the router, any two accounts
	byHand     = "by-hand"     // no router, the accounts on two shards, the client commits in two phases
	byRelays   = "by-relays"   // relays before the shards, the accounts on one shard, the client knows which
	unguarded  = "unguarded"   // the same, on tables of which the router knows nothing: what is left to it is what several servers cost on one machine
)

// account is a row, and the place of the shard that has it.
type account struct {
	id    int64
	shard int
}

// transfer is one to be done. The accounts are in the order of their keys, which all clients keep to: none waits for one that waits for it.
// The amount may be negative, so money goes both ways.
type transfer struct {
	first, second account
	amount        int64
}

// side is one way to do it.
type side struct {
	name, what string
	// target is the least throughput over the base that is wanted; 0: none is.
	target float64
	draw   func(*rand.Rand) transfer
	// urls are what a client connects to.
	urls []string
	run  func([]*session, transfer) error
	// think is how long a client waits after a transfer.
	think time.Duration
	// proxies are the processes between client and servers.
	proxies []int
	servers []*localpg.Server
}

// side is the side of the name.
func (l *lab) side(name string) side {
	s := side{name: name, draw: l.drawAny, urls: []string{l.routerURL()}, run: runOnOne, proxies: []int{l.router.PID()}, servers: l.shards}
	switch name {
	case oneServer:
		s.what = "relay, one plain server"
		s.urls, s.proxies, s.servers = []string{address(l.plainRelay.address, database, "")}, []int{l.plainRelay.process.PID()}, []*localpg.Server{l.plain}
	case crossShard:
		s.what, s.target, s.draw = "router, two shards", 0.5, l.drawCross
	case sameShard:
		s.what, s.target, s.draw = "router, one shard", 0.95, l.drawSame
	case mixed:
		s.what = fmt.Sprintf("router, any of %d shards", len(l.shards))
	case byHand:
		s.what, s.draw, s.run = "no router, two shards, the client commits in two phases", l.drawCross, l.runByHand
		s.urls, s.proxies = nil, nil
		for _, shard := range l.shards {
			s.urls = append(s.urls, address(shard.Addr(), database, asRouter))
		}
	case byRelays:
		s.what = "relays, one shard, the client knows which"
		l.beforeShards(&s, database, asRouter)
	case unguarded:
		s.what = "the same, tables without a guard"
		l.beforeShards(&s, unguardedDatabase, "")
	}
	return s
}

// others are the same sides with the other router, where there is one.
func (l *lab) others(sides []side) []side {
	var others []side
	for _, s := range sides {
		if l.other != nil && slices.Contains(s.proxies, l.router.PID()) {
			s.name, s.what, s.target = s.name+"@other", "the other "+s.what, 0
			s.urls, s.proxies = []string{address(l.other.Address, database, "")}, []int{l.other.PID()}
			others = append(others, s)
		}
	}
	return others
}

// beforeShards makes it a side of relays before all shards, where the client chooses.
func (l *lab) beforeShards(s *side, database, settings string) {
	s.draw, s.run = l.drawSame, runOnItsShard
	s.urls, s.proxies = nil, nil
	for _, relay := range l.shardRelays {
		s.urls, s.proxies = append(s.urls, address(relay.address, database, settings)), append(s.proxies, relay.process.PID())
	}
}

// connect opens a client's sessions.
func (s *side) connect(ctx context.Context, mode string) (_ []*session, err error) {
	var sessions []*session
	for _, url := range s.urls {
		one, err := connect(ctx, url, mode)
		if err != nil {
			closeAll(sessions)
			return nil, fmt.Errorf("connect: %w", err)
		}
		sessions = append(sessions, one)
	}
	return sessions, nil
}

func closeAll(sessions []*session) {
	for _, s := range sessions {
		s.close()
	}
}

// runOnOne sends the statements one by one, as a client of one database does.
func runOnOne(sessions []*session, t transfer) error {
	s := sessions[0]
	if err := s.run("BEGIN"); err != nil {
		return err
	}
	s.change(debit, t.amount, t.first.id)
	if err := s.exchange(1); err != nil {
		return err
	}
	s.change(credit, t.amount, t.second.id)
	if err := s.exchange(1); err != nil {
		return err
	}
	return s.run("COMMIT")
}

func runOnItsShard(sessions []*session, t transfer) error {
	return runOnOne(sessions[t.first.shard:], t)
}

// gids counts the transactions that were prepared by hand.
var gids atomic.Int64

// runByHand does what the router does, with no more than is needed: BEGIN goes with the first statement, one shard prepares, the
// other one commits, then the prepared one does. Nothing is written down of the decision.
func (l *lab) runByHand(sessions []*session, t transfer) error {
	first, second := sessions[t.first.shard], sessions[t.second.shard]
	first.query("BEGIN")
	first.change(debit, t.amount, t.first.id)
	if err := first.exchange(2); err != nil {
		return err
	}
	second.query("BEGIN")
	second.change(credit, t.amount, t.second.id)
	if err := second.exchange(2); err != nil {
		return err
	}
	gid := fmt.Sprintf("'by_hand_%d'", gids.Add(1))
	if err := second.run("PREPARE TRANSACTION " + gid); err != nil {
		return err
	}
	if err := first.run("COMMIT"); err != nil {
		return err
	}
	return second.run("COMMIT PREPARED " + gid)
}

// ordered makes a transfer between two accounts.
func ordered(r *rand.Rand, a, b account) transfer {
	if a.id > b.id {
		a, b = b, a
	}
	amount := 1 + r.Int64N(100)
	if r.IntN(2) == 0 {
		amount = -amount
	}
	return transfer{a, b, amount}
}

// drawAny draws two accounts, wherever they are.
func (l *lab) drawAny(r *rand.Rand) transfer {
	for {
		a, b := l.anyOn(r, l.anyShard(r)), l.anyOn(r, l.anyShard(r))
		if a.id != b.id {
			return ordered(r, a, b)
		}
	}
}

// drawCross draws two accounts on two shards.
func (l *lab) drawCross(r *rand.Rand) transfer {
	a := r.IntN(len(l.accounts))
	b := (a + 1 + r.IntN(len(l.accounts)-1)) % len(l.accounts)
	return ordered(r, l.anyOn(r, a), l.anyOn(r, b))
}

// drawSame draws two accounts on one shard.
func (l *lab) drawSame(r *rand.Rand) transfer {
	shard := l.anyShard(r)
	for {
		if a, b := l.anyOn(r, shard), l.anyOn(r, shard); a.id != b.id {
			return ordered(r, a, b)
		}
	}
}

func (l *lab) anyShard(r *rand.Rand) int { return r.IntN(len(l.accounts)) }

func (l *lab) anyOn(r *rand.Rand, shard int) account {
	ids := l.accounts[shard]
	return account{ids[r.IntN(len(ids))], shard}
}
