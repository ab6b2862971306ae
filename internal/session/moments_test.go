package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/thorough"
)

// TestATransactionHasOneTime: the current time is the same in all that a transaction does, on whichever shards and in whatever order, and another one in the next.
func TestATransactionHasOneTime(t *testing.T) {
	thorough.Only(t)
	t.Parallel()
	w := newWorld(t, worldConfig{noPlain: true, shards: 3})
	first, second := w.key(t, 1, 0), w.key(t, 2, 0)
	for _, mode := range []string{"transaction", "session"} {
		for name, ask := range map[string]func(*rawClient, string) []string{
			"simple": (*rawClient).query, "extended": byProtocol,
		} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				c := dialRaw(t, w.address, nil)
				defer func() { _ = c.conn.Close() }()
				wantCodes(t, c.query("SET cleave.pool_mode = "+mode), "", "ready I")
				last := ""
				transaction := func(statements ...string) {
					t.Helper()
					wantCodes(t, c.query("DELETE FROM orders; INSERT INTO orders SELECT g FROM generate_series(1, 60) g"), "", "ready I")
					var told []string
					wantCodes(t, ask(c, "BEGIN"), "", "ready T")
					for _, sql := range statements {
						for _, line := range ask(c, sql) {
							if value, isRow := strings.CutPrefix(line, "row "); isRow {
								told = append(told, value)
							} else if strings.HasPrefix(line, "error") {
								t.Errorf("%s: %s", sql, line)
							}
						}
					}
					wantCodes(t, ask(c, "COMMIT"), "", "ready I")
					if told = slices.Compact(told); len(told) != 1 || told[0] <= last {
						t.Errorf("%q tell %q behind %q", statements, told, last)
						return
					}
					last = told[0]
				}
				all, one := "UPDATE orders SET note = now()::text", "UPDATE orders SET note = now()::text WHERE id = %d"
				const stored, now = "SELECT DISTINCT note FROM orders WHERE note IS NOT NULL", "SELECT now()::text"
				transaction(all, now, stored)
				transaction(now, all, stored)
				transaction(fmt.Sprintf(one, first), now, fmt.Sprintf(one, second), stored, now)
				transaction(fmt.Sprintf(one, second), stored, fmt.Sprintf(one, first), all, stored, now)
				transaction("SELECT FROM orders WHERE id < 0", fmt.Sprintf(one, second), fmt.Sprintf(one, first), stored, now)
				transaction("SAVEPOINT a", all, "ROLLBACK TO a", fmt.Sprintf(one, first), fmt.Sprintf(one, second), stored, now)
				transaction("PREPARE p AS "+all, "EXECUTE p", stored, now, "DEALLOCATE p")
				transaction("DECLARE c CURSOR FOR SELECT now()::text FROM orders", "FETCH 3 FROM c", now, all, stored)
				transaction("COPY (SELECT DISTINCT now() FROM orders) TO STDOUT", all, stored, now)

				wantCodes(t, ask(c, "BEGIN"), "", "ready T")
				wantCodes(t, ask(c, all), "", "ready T")
				wantCodes(t, ask(c, "SELECT 1/0"), "22012", "ready E")
				wantCodes(t, ask(c, all), "25P02", "ready E")
				wantCodes(t, ask(c, "ROLLBACK"), "", "ready I")
				transaction(fmt.Sprintf(one, second), all, stored, now)

				for range 3 { // each by itself
					wantCodes(t, ask(c, all), "", "ready I")
					said := c.query(stored)
					if len(said) != 4 || said[1] <= "row "+last {
						t.Errorf("an UPDATE by itself stores %q behind %q", said, last)
					} else {
						last = strings.TrimPrefix(said[1], "row ")
					}
				}
			})
		}
	}
}
