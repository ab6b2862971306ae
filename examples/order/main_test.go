package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// printed is what docs/sagas.md shows.
const printed = `order 1, to Vienna
  stock: reserve kettle
  payment: busy
  payment: charge kettle
  shipping: ship kettle
  the saga is completed, the order confirmed
order 2, to the Moon
  stock: reserve kettle
  payment: charge kettle
  shipping: refused
  payment: refund kettle
  stock: release kettle
  the saga is compensated, the order cancelled: step ship failed: shipping: we do not ship to the Moon
`

// TestThePageShowsWhatIsPrinted.
func TestThePageShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/sagas.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), printed) {
		t.Error("docs/sagas.md shows something else than is printed")
	}
}

func TestTheOrders(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	server := pgtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // once more, with the tables there
		var out strings.Builder
		if err := run(ctx, server.DSN("postgres"), &out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(printed, out.String()); diff != "" {
			t.Errorf("expected (-), printed (+):\n%s", diff)
		}
	}
}
