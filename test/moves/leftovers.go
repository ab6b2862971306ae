package moves

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/test/faults"
)

// leftoversQuery finds what moves make on servers and have to remove.
const leftoversQuery = `
	SELECT 'slot ' || slot_name FROM pg_replication_slots WHERE slot_type = 'logical' UNION ALL SELECT 'subscription ' || subname FROM pg_subscription UNION ALL SELECT 'publication ' || pubname FROM pg_publication
	UNION ALL SELECT 'origin ' || roname FROM pg_replication_origin UNION ALL SELECT 'view ' || relname FROM pg_class WHERE relkind = 'v' AND relname ~ '^owned_' AND relnamespace = 'cleave'::regnamespace
	UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE proname ~ '^owns_' AND pronamespace = 'cleave'::regnamespace UNION ALL SELECT 'mark ' || move || ' ' || mark FROM cleave.marks
	UNION ALL SELECT 'note ' || move || ' ' || note FROM cleave.move_notes
	UNION ALL SELECT 'replica identity of ' || oid::regclass FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace AND relreplident <> 'd'
	UNION ALL SELECT 'trigger ' || tgname || ' on ' || tgrelid::regclass FROM pg_trigger WHERE tgname IN ('cleave_guard_delete', 'cleave_moves') AND tgparentid = 0
	UNION ALL SELECT 'function ' || proname FROM pg_proc p WHERE proname ~ '^guard_' AND pronamespace = 'cleave'::regnamespace AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = p.oid)
	UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts`

// Leftovers are what is left on servers that should not be, when no move is under way; and rows on shards that do not own them.
func Leftovers(ctx context.Context, c *faults.Cluster) ([]string, error) {
	var left []string
	err := c.EachShard(ctx, func(i int, conn *pgx.Conn) error {
		found, err := LeftOn(ctx, conn)
		for _, one := range found {
			left = append(left, fmt.Sprintf("shard %d: %s", i+1, one))
		}
		return err
	})
	return left, err
}

// LeftOn is what is left on one server.
func LeftOn(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, leftoversQuery)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Strays looks at what the shards have, past the routers: each row must be on one shard alone. Whether that is the right one is asked for otherwise.
func Strays(ctx context.Context, c *faults.Cluster) ([]string, error) {
	seen := map[string]int{}
	var strays []string
	err := c.EachShard(ctx, func(i int, conn *pgx.Conn) error {
		for _, query := range []string{"SELECT 'fixed ' || id FROM fixed", "SELECT 'accounts ' || id FROM accounts", "SELECT 'entries ' || account_id FROM entries", "SELECT 'events ' || account_id FROM events", "SELECT 'tokens ' || id FROM tokens", "SELECT 'token ' || n FROM tokens"} {
			rows, err := conn.Query(ctx, query)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			for _, row := range found {
				if other, twice := seen[row]; twice {
					strays = append(strays, fmt.Sprintf("%s is on shards %d and %d", row, other, i+1))
				}
				seen[row] = i + 1
			}
		}
		return nil
	})
	return strays, err
}
