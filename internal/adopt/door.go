package adopt

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Door is who comes to the database past the routers.
type Door struct {
	// Visitors are connected directly now.
	Visitors []Visitor `json:"visitors"`
	// Routers are the addresses that the cluster's processes are connected from.
	Routers []string `json:"routers"`
	// Fillings are the tables whose trigger fills in the shard key.
	Fillings []Filling `json:"fillings"`
	// Database and Role, which the cluster's processes log in as, are for [Door.Closing].
	Database string `json:"database"`
	Role     string `json:"role"`
	// Users are the roles that may connect to it.
	Users []string `json:"users"`
}

// Visitor is a group of connections.
type Visitor struct {
	User        string `json:"user"`
	Application string `json:"application"`
	// Address is empty of a connection over a Unix socket.
	Address     string    `json:"address"`
	Connections int       `json:"connections"`
	Since       time.Time `json:"since"` // the oldest one's start
}

// Filling is a table whose trigger fills in the shard key for who leaves it out.
type Filling struct {
	Table string `json:"table"`
	// Last is when it had to; zero if it never had.
	Last time.Time `json:"last,omitzero"`
}

// LookAtDoor asks the server who is connected. The role is the one that the cluster's processes log in as.
func LookAtDoor(ctx context.Context, conn *pgx.Conn, role string) (*Door, error) {
	d := &Door{Visitors: []Visitor{}, Routers: []string{}, Fillings: []Filling{}, Database: conn.Config().Database, Role: role}
	noted, err := notedBackends(ctx, conn)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `
		SELECT usename::text, coalesce(application_name, ''), coalesce(host(client_addr), ''), pid, coalesce(backend_start, now())
		FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> 'cleave/adopt' ORDER BY 1, 2, 3, 5`)
	if err != nil {
		return nil, fmt.Errorf("see who is connected: %w", err)
	}
	var v Visitor
	var pid int32
	_, err = pgx.ForEachRow(rows, []any{&v.User, &v.Application, &v.Address, &pid, &v.Since}, func() error {
		d.add(v, noted[pid] || strings.HasPrefix(v.Application, "cleave/"))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("see who is connected: %w", err)
	}
	if d.Users, err = readUsers(ctx, conn); err != nil {
		return nil, err
	}
	d.Fillings, err = readFillings(ctx, conn)
	return d, err
}

// readUsers are the roles that may connect. Superusers always may.
func readUsers(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, err := conn.Query(ctx, "SELECT rolname::text FROM pg_roles WHERE rolcanlogin AND NOT rolsuper AND has_database_privilege(oid, current_database(), 'CONNECT') ORDER BY 1")
	if err != nil {
		return nil, fmt.Errorf("see who may connect: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// notedBackends are the processes that serve routers. Before the database is claimed there are none, and who may not ask takes everybody for a visitor.
func notedBackends(ctx context.Context, conn *pgx.Conn) (map[int32]bool, error) {
	noted := map[int32]bool{}
	var may bool
	if err := conn.QueryRow(ctx, "SELECT coalesce(has_table_privilege(to_regclass('cleave.backends'), 'SELECT'), false)").Scan(&may); err != nil || !may {
		return noted, err
	}
	rows, err := conn.Query(ctx, "SELECT b.pid FROM cleave.backends b JOIN pg_stat_activity a ON a.pid = b.pid AND a.backend_start = b.start")
	if err != nil {
		return nil, fmt.Errorf("see who serves routers: %w", err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	for _, pid := range pids {
		noted[pid] = true
	}
	return noted, err
}

func (d *Door) add(v Visitor, isRouter bool) {
	if isRouter {
		if v.Address != "" && !slices.Contains(d.Routers, v.Address) {
			d.Routers = append(d.Routers, v.Address)
		}
		return
	}
	at := slices.IndexFunc(d.Visitors, func(known Visitor) bool {
		return known.User == v.User && known.Application == v.Application && known.Address == v.Address
	})
	if at < 0 {
		at = len(d.Visitors)
		d.Visitors = append(d.Visitors, v)
	}
	d.Visitors[at].Connections++
}

// readFillings reads when triggers had to fill in a key last. Each has a sequence with that second.
func readFillings(ctx context.Context, conn *pgx.Conn) ([]Filling, error) {
	rows, err := conn.Query(ctx, `
		SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), coalesce(to_timestamp(pg_sequence_last_value(d.refobjid)::double precision), 'epoch')
		FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_proc p ON p.oid = t.tgfoid
		JOIN pg_namespace pn ON pn.oid = p.pronamespace AND pn.nspname = '`+adoptSchema+`'
		LEFT JOIN LATERAL (SELECT s.oid AS refobjid FROM pg_class s WHERE s.relnamespace = pn.oid AND s.relname = p.proname AND s.relkind = 'S' AND has_sequence_privilege(s.oid, 'SELECT')) AS d ON true
		WHERE t.tgname = '`+fillTrigger+`' ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("see which rows came without their key: %w", err)
	}
	fillings := []Filling{}
	var f Filling
	_, err = pgx.ForEachRow(rows, []any{&f.Table, &f.Last}, func() error {
		if f.Last.Unix() <= 0 {
			f.Last = time.Time{}
		}
		fillings = append(fillings, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("see which rows came without their key: %w", err)
	}
	return fillings, nil
}

// Closing is what closes the door, as lines for pg_hba.conf and statements. Roles keep their right to connect: a router logs in to the shard as its client.
func (d *Door) Closing() (lines, statements []string) {
	routers := d.Routers
	if len(routers) == 0 {
		routers = []string{"ROUTER_ADDRESS"}
	}
	for _, address := range routers {
		lines = append(lines, fmt.Sprintf("host    %-15s all    %-22s scram-sha-256", hbaName(d.Database), prefix(address)))
	}
	lines = append(lines, fmt.Sprintf("host    %-15s all    %-22s reject", hbaName(d.Database), "all"))
	users := make([]string, 0, len(d.Users)+1)
	for _, u := range append(slices.Clone(d.Users), d.Role) {
		if q := quote(u); !slices.Contains(users, q) {
			users = append(users, q)
		}
	}
	return lines, []string{
		"SELECT pg_reload_conf();",
		fmt.Sprintf("REVOKE CONNECT ON DATABASE %s FROM PUBLIC;", quote(d.Database)),
		fmt.Sprintf("GRANT CONNECT ON DATABASE %s TO %s;", quote(d.Database), strings.Join(users, ", ")),
	}
}

// hbaName is a name as pg_hba.conf takes it: some words mean something there.
func hbaName(name string) string {
	if slices.Contains([]string{"all", "sameuser", "samerole", "samegroup", "replication"}, name) || strings.ContainsAny(name, " ,\"#") {
		return `"` + name + `"`
	}
	return name
}

// prefix is one address as a range of addresses.
func prefix(address string) string {
	parsed, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return address + "/32"
	case parsed.Is4():
		return address + "/32"
	default:
		return address + "/128"
	}
}
