package differential_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/test/cluster"
)

// TestTheRouterAgreesWhileRowsMove makes up schemas and statements as ever, with keys of every kind and keyspaces of every strategy, while rows of every keyspace go from shard to shard: all of a
// shard's, a part, and single keys; some go back, and some moves are cancelled. What may be refused for that, or has to be tried again, is counted as refused; whatever is answered has to be right.
func TestTheRouterAgreesWhileRowsMove(t *testing.T) {
	skipShort(t)
	t.Parallel()
	data := filepath.Join(cluster.Folder(t), "cluster")
	dev := cluster.Start(t, "--data", data, "--shards", "3")
	defer dev.Interrupt(t)
	router := fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", role, dev.Listen, database)
	r := newGenerated(pair{plain: plainServers(t, 1)[0], router: router, isRouter: true, api: dev.API}, "m3")
	r.first = worldsWhileMoving
	r.moves = &movements{}
	r.run(t, max(*generateFlag, movesTake))
	r.report(t)
	t.Logf("%d moves came to their end, %d went back, %d were cancelled", r.moves.done, r.moves.back, r.moves.cancelled)
	if r.moves.done == 0 && *onlyFlag == "" {
		t.Error("nothing has moved")
	}
}

const (
	// movesTake is how long it is until the first moves have come to their end, beside other tests.
	movesTake = 30 * time.Second
	// worldsWhileMoving keeps these schemas apart from those that stay where they are.
	worldsWhileMoving = 900 * worldsOfCluster
	// statementsWhileMoving is how many there are in such a world: most of the time should go into those, and not into making it.
	statementsWhileMoving = 2 * statementsInWorld
	// moveEnds is how long a move may take until its next phase, on a machine that has much else to do.
	moveEnds = 2 * time.Minute
)

// movements are how many moves came to which end, in all worlds.
type movements struct {
	done, back, cancelled int
}

// mover moves rows of one world until it is stopped.
type mover struct {
	api    *api.Client
	random *rand.Rand
	world  *world
	counts *movements
	stop   context.CancelFunc
	ended  sync.WaitGroup
	failed error
}

// startMoving begins to move the rows of a world.
func startMoving(ctx context.Context, client *api.Client, w *world, seed uint64, counts *movements) *mover {
	m := &mover{api: client, random: rand.New(rand.NewPCG(seed, 1)), world: w, counts: counts} //nolint:gosec // to be repeated
	goesOn, stop := context.WithCancel(ctx)
	m.stop = stop
	m.ended.Go(func() {
		for goesOn.Err() == nil && m.failed == nil {
			m.failed = m.once(ctx, goesOn)
		}
	})
	return m
}

// end has the last move come to its end: while there is one nothing can be dropped.
func (m *mover) end() error {
	m.stop()
	m.ended.Wait()
	return m.failed
}

// once makes one move, from its beginning to one of its ends. What lasts until somebody wishes otherwise lasts for a moment, or until the world is left.
func (m *mover) once(ctx, goesOn context.Context) error {
	request, err := m.request(ctx)
	if err != nil {
		return err
	}
	list, err := m.api.StartMoves(ctx, request)
	var refused *api.RequestError
	if errors.As(err, &refused) { // there is nothing of that keyspace on that shard
		rest(goesOn, 10*time.Millisecond)
		return nil
	}
	if err != nil {
		return err
	}
	for _, move := range list.Moves {
		if err := m.follow(ctx, goesOn, move.ID); err != nil {
			return err
		}
	}
	return nil
}

// request makes up what is to move.
func (m *mover) request(ctx context.Context) (api.StartMove, error) {
	shards, err := m.api.Shards(ctx)
	if err != nil {
		return api.StartMove{}, err
	}
	m.random.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
	space := m.world.keyspaces[m.random.IntN(len(m.world.keyspaces))]
	request := api.StartMove{Keyspace: space.in(m.world.schema), To: shards[0].Name, Manual: m.random.IntN(2) == 0, Streams: 1 + m.random.IntN(2)}
	if m.random.IntN(2) == 0 {
		request.KeepSeconds = time.Hour.Seconds()
	}
	if m.random.IntN(3) > 0 {
		request.From = shards[1].Name
		return request, nil
	}
	for range 1 + m.random.IntN(4) {
		key := space.samples[m.random.IntN(len(space.samples))]
		if !slices.ContainsFunc(request.Keys, func(k []string) bool { return slices.Equal(k, key) }) {
			request.Keys = append(request.Keys, key)
		}
	}
	return request, nil
}

// follow sees a move to its end.
func (m *mover) follow(ctx, goesOn context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, moveEnds)
	defer cancel()
	cancels, rollsBack := m.random.IntN(5) == 0, m.random.IntN(2) == 0
	for {
		move, err := m.api.Move(ctx, id)
		if err != nil {
			return err
		}
		wish := ""
		switch {
		case move.Stopped != "":
			return fmt.Errorf("move %s of %s stopped: %s", id, move.Keyspace, move.Stopped)
		case move.Phase == "done":
			m.counts.done++
			return nil
		case move.Phase == "rolled back":
			m.counts.back++
			return nil
		case move.Phase == "cancelled":
			m.counts.cancelled++
			return nil
		case move.Phase == "ready" && cancels:
			wish = "cancel"
		case move.Phase == "ready":
			wish = "switch"
		case move.Phase == "switched" && rollsBack && move.CanRollBack:
			wish = "roll back"
		case move.Phase == "switched":
			wish = "finish"
		}
		if wish != "" {
			rest(goesOn, time.Second)
			if err := m.wish(ctx, id, wish); err != nil {
				return err
			}
		}
		rest(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return fmt.Errorf("move %s of %s is %s: waiting %q, error %q", id, move.Keyspace, move.Phase, move.Waiting, move.Error)
		}
	}
}

// wish says what is to become of a move, which may be further by now.
func (m *mover) wish(ctx context.Context, id, wish string) error {
	_, err := m.api.WishMove(ctx, id, wish)
	var refused *api.RequestError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

func rest(ctx context.Context, howLong time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(howLong):
	}
}

// mayBeAskedAgain says whether an answer is one that a client gets only because rows move: it is to begin its transaction again, if it has one of its own, or to define things later.
func mayBeAskedAgain(text string, inBlock bool, got answer) bool {
	switch got.code {
	case "40001":
		return inBlock
	case "55006":
		return definesSomething.MatchString(text)
	default:
		return false
	}
}

var definesSomething = regexp.MustCompile(`(?i)^\s*(create (or replace )?(materialized )?view|drop|alter|truncate|comment|grant|revoke)\s`) //nolint:misspell // it is SQL
