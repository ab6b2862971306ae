package saga

import "testing"

// everywhere are the tests that a plain PostgreSQL and a cluster behind a router have to pass alike.
var everywhere = []struct {
	name string
	run  func(*testing.T, *world)
}{
	{"crashes", testCrashes}, {"the caller dies", testCallerDies}, {"stopped", testStopped}, {"dies again and again", testDiesAgainAndAgain},
}

func TestOnPostgres(t *testing.T) { onPostgres(t).runAll(t) }

func TestBehindARouter(t *testing.T) { behindRouter(t).runAll(t) }

func (w *world) runAll(t *testing.T) {
	t.Helper()
	for _, test := range everywhere {
		t.Run(test.name, func(t *testing.T) { test.run(t, w) })
	}
}
