package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
)

// restartSettings are the settings that are read at a server's start, by the codes of what is found about them.
var restartSettings = []string{"wal_level", "max_prepared_transactions", "max_replication_slots", "max_wal_senders", "max_logical_replication_workers", "max_worker_processes"}

// NeedsRestart says whether mending a finding takes a restart of the server.
func NeedsRestart(f api.Finding) bool { return slices.Contains(restartSettings, f.Code) }

// leastVersion is the oldest PostgreSQL that can be a shard.
const leastVersion = 150000

// roleCodes are what the look at a server finds about the role that looks.
var roleCodes = []string{"privileges", "replication", "subscriptions", "signal_backends"}

// CheckServer says what stands in the way of making the server a shard, and what the role lacks that the cluster's processes log in as. It looks as that role,
// if it may.
func CheckServer(ctx context.Context, conn *pgx.Conn, role string) (*shard.Report, []api.Finding, error) {
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return nil, nil, fmt.Errorf("look at the server: %w", err)
	}
	if version < leastVersion { // it knows nothing of what is asked below
		report, err := shard.Inspect(ctx, conn)
		if err != nil {
			return nil, nil, err
		}
		return report, shard.Check(report, nil, nil), nil
	}
	rights, err := readRights(ctx, conn, role)
	if err != nil {
		return nil, nil, err
	}
	report, asRole, err := inspectAs(ctx, conn, role, rights)
	if err != nil {
		return nil, nil, err
	}
	findings := shard.Check(report, nil, nil)
	findings = slices.DeleteFunc(findings, func(f api.Finding) bool {
		return f.Code == "other_tables" || !asRole && slices.Contains(roleCodes, f.Code)
	})
	return report, append(findings, rights.findings(role, conn.Config().Database, report.Major())...), nil
}

// inspectAs looks at the server as the role; asRole says whether it could.
func inspectAs(ctx context.Context, conn *pgx.Conn, role string, rights *rights) (report *shard.Report, asRole bool, err error) {
	if rights.there && role != conn.Config().User {
		_, err := conn.Exec(ctx, "SET ROLE "+quote(role))
		if err != nil && !isCode(err, codeNoRight) {
			return nil, false, fmt.Errorf("look at the server as role %s: %w", role, err)
		}
		asRole = err == nil
	}
	report, err = shard.Inspect(ctx, conn)
	if asRole {
		_, failure := conn.Exec(ctx, "RESET ROLE")
		err = errors.Join(err, failure)
	}
	return report, asRole || role == conn.Config().User, err
}

// rights of the role that the cluster's processes log in as, beyond what any shard asks for.
type rights struct {
	there, superuser, login    bool
	replicates, readsVerifiers bool
	seesActivity               bool
	// foreign are the owners of tables whose rights it does not have.
	foreign []string
	// outdated are the roles whose passwords are stored in a form that a router cannot check; unknown if they may not be looked at.
	outdated []string
}

// usersSchema is true for a schema n that is neither the system's nor ours.
const usersSchema = "n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'cleave', '" + adoptSchema + "')"

func readRights(ctx context.Context, conn *pgx.Conn, role string) (*rights, error) {
	r := &rights{there: true}
	err := conn.QueryRow(ctx, `
		SELECT r.rolsuper, r.rolcanlogin, has_parameter_privilege(r.oid, 'session_replication_role', 'SET'), has_table_privilege(r.oid, 'pg_catalog.pg_authid', 'SELECT'), pg_has_role(r.oid, 'pg_read_all_stats', 'USAGE'),
			ARRAY(SELECT DISTINCT pg_get_userbyid(c.relowner)::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND `+usersSchema+` AND NOT pg_has_role(r.oid, c.relowner, 'USAGE') ORDER BY 1)
		FROM pg_roles r WHERE r.rolname = $1`, role).Scan(&r.superuser, &r.login, &r.replicates, &r.readsVerifiers, &r.seesActivity, &r.foreign)
	if errors.Is(err, pgx.ErrNoRows) {
		r.there = false
		err = conn.QueryRow(ctx, `SELECT ARRAY(SELECT DISTINCT pg_get_userbyid(c.relowner)::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND `+usersSchema+` ORDER BY 1)`).Scan(&r.foreign)
	}
	if err != nil {
		return nil, fmt.Errorf("look at role %s: %w", role, err)
	}
	rows, err := conn.Query(ctx, "SELECT rolname::text FROM pg_authid WHERE rolcanlogin AND rolpassword LIKE 'md5%' ORDER BY 1")
	if err == nil {
		r.outdated, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil && !isCode(err, codeNoRight) {
		return nil, fmt.Errorf("look at the roles' passwords: %w", err)
	}
	return r, nil
}

// findings say what the role lacks, with the statements that give it to a server of this version.
func (r *rights) findings(role, database string, major int) []api.Finding {
	var found []api.Finding
	add := func(severity api.Severity, code, message, hint string) {
		found = append(found, api.Finding{Severity: severity, Code: code, Message: message, Hint: hint})
	}
	name := quote(role)
	if !r.there {
		add(api.Problem, "role", fmt.Sprintf("there is no role %s, which the cluster's processes log in as (or name another with --user)", role), r.making(name, quote(database), major))
	}
	if !r.there && major < subscribersSince {
		add(api.Warning, "subscriptions", fmt.Sprintf("moves make subscriptions, which before PostgreSQL %d only superusers may: role %s has to be one by the time that there is a second shard", subscribersSince, role),
			fmt.Sprintf("ALTER ROLE %s SUPERUSER;", name))
	}
	if r.there && !r.login {
		add(api.Problem, "role", fmt.Sprintf("role %s may not log in", role), fmt.Sprintf("ALTER ROLE %s LOGIN;", name))
	}
	if r.there && !r.superuser {
		r.lacking(add, role, name)
	}
	if len(r.outdated) > 0 {
		add(api.Warning, "md5_passwords", fmt.Sprintf("the password of %s is stored as MD5, with which nobody gets through a router", someOf(r.outdated)),
			"SET password_encryption = 'scram-sha-256'; then set each password anew: \\password "+r.outdated[0])
	}
	return found
}

// subscribersSince is the version of PostgreSQL from which on roles that are no superusers may be allowed to make subscriptions.
const subscribersSince = 16

// making are the statements that make the role.
func (r *rights) making(name, database string, major int) string {
	roles := "pg_signal_backend, pg_read_all_stats"
	if major >= subscribersSince {
		roles += ", pg_create_subscription"
	}
	grants := []string{"CREATE ON DATABASE " + database, "SELECT ON pg_catalog.pg_authid", roles, "SET ON PARAMETER session_replication_role"}
	if len(r.foreign) > 0 {
		grants = append(grants, quoteAll(r.foreign))
	}
	statements := []string{"CREATE ROLE " + name + " LOGIN REPLICATION PASSWORD '…';"}
	for _, grant := range grants {
		statements = append(statements, "GRANT "+grant+" TO "+name+";")
	}
	return strings.Join(statements, " ")
}

// lacking is what a role that is no superuser has to be given.
func (r *rights) lacking(add func(severity api.Severity, code, message, hint string), role, name string) {
	if len(r.foreign) > 0 {
		add(api.Problem, "ownership", fmt.Sprintf("role %s does not have the rights of %s, who owns tables: it could put no guard on them", role, someOf(r.foreign)),
			fmt.Sprintf("GRANT %s TO %s;", quoteAll(r.foreign), name))
	}
	if !r.replicates {
		add(api.Problem, "session_replication_role", fmt.Sprintf("role %s may not set session_replication_role, so it could not declare tables", role),
			fmt.Sprintf("GRANT SET ON PARAMETER session_replication_role TO %s;", name))
	}
	if !r.readsVerifiers {
		add(api.Warning, "verifiers", fmt.Sprintf("role %s may not read pg_authid, so routers do not know the passwords of clients, unless auth.users_file has them", role),
			fmt.Sprintf("GRANT SELECT ON pg_catalog.pg_authid TO %s;", name))
	}
	if !r.seesActivity {
		add(api.Warning, "activity", fmt.Sprintf("role %s does not see what other sessions do, so deadlocks over several shards are not found", role),
			fmt.Sprintf("GRANT pg_read_all_stats TO %s;", name))
	}
}
