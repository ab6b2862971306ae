package apps_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/test/cluster"

	"github.com/cleavedb/cleave/internal/thorough"
)

// How the application's tables are declared, when it has rows in all of them. What a user does and has is sharded by user; what is read along
// with it is on every shard: users, rights, and the archive itself, which is written seldom and read by everybody. All else, such as
// sessions, queues, tags and attachments, stays where it is. Ids count on each shard by themselves and cannot collide, so it is enough if each
// shard sees to it that they are unique; names of users are unique because all users are on all shards.
const (
	mailmanReference = "django_content_type, auth_permission, auth_group, auth_group_permissions, auth_user, " +
		"hyperkitty_mailinglist, hyperkitty_threadcategory, hyperkitty_sender, hyperkitty_thread, hyperkitty_email"
	mailmanSharded = "auth_user_groups(user_id), auth_user_user_permissions(user_id), django_admin_log(user_id), django_mailman3_profile(user_id), " +
		"hyperkitty_profile(user_id), hyperkitty_favorite(user_id), hyperkitty_lastview(user_id), hyperkitty_vote(user_id)" //nolint:misspell // that is the table's name
)

// TestMailman moves the web application of the Mailman suite in: its archive of mailing lists (HyperKitty), its administration (Postorius)
// and what they stand on, 37 tables in all.
func TestMailman(t *testing.T) {
	thorough.Only(t)
	needsPython(t, "hyperkitty", "postorius", "django_mailman3", "psycopg2")
	dev := cluster.Start(t, "--data", cluster.Folder(t), "--shards", "3")
	a := &mailman{django: django{folder: "mailman"}, plain: plainTarget(t), router: routerTarget(dev)}
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"its migrations make the same schema", func(t *testing.T) {
			a.manage(t, "migrate")
			a.sameSchema(t, func(string) bool { return false })
		}},
		{"its commands and its ORM load it", func(t *testing.T) { a.drive(t, "load") }},
		{"tables with rows are declared", func(t *testing.T) { a.declare(t) }},
		{"its pages are the same", func(t *testing.T) { a.drive(t, "use") }},
		{"what is new is the same", func(t *testing.T) { a.drive(t, "grow") }},
		{"its migrations go back and forth", func(t *testing.T) {
			a.manage(t, "migrate", "hyperkitty", "0020")
			a.manage(t, "migrate", "hyperkitty")
		}},
		{"an app is added, its table sharded and changed", func(t *testing.T) { a.addNotes(t, dev) }},
		{"its migrations have made the same of the schema", func(t *testing.T) { a.sameSchema(t, isOfSequence) }},
		{"and take the app away again", func(t *testing.T) {
			a.manage(t, "migrate", "notes", "zero")
			a.shardsAgree(t, dev)
		}},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
	}
}

// mailman is the application on a plain server and on a router.
type mailman struct {
	django
	plain, router target
}

// manage runs a command of Django's on both, and wants them to say the same.
func (a *mailman) manage(t *testing.T, arguments ...string) {
	t.Helper()
	plain, router := a.both(t, func(to target) (string, error) {
		return a.run(t.Context(), to, append([]string{"-m", "django"}, arguments...)...)
	})
	if diff := cmp.Diff(plain, router); diff != "" {
		t.Fatalf("%q says something else on PostgreSQL (-) and on the router (+):\n%s", arguments, diff)
	}
}

// drive runs a phase of drive.py on both, and wants the same of both. Nothing may be refused, not even what the application catches.
func (a *mailman) drive(t *testing.T, phase string) {
	t.Helper()
	plain, router := a.both(t, func(to target) (string, error) { return a.run(t.Context(), to, "drive.py", phase) })
	want, got := parseAccounts(plain), parseAccounts(router)
	if len(want) != len(got) {
		t.Fatalf("%d accounts on PostgreSQL, %d on the router", len(want), len(got))
	}
	for i := range want {
		for _, refusal := range got[i].refused {
			t.Errorf("%s is refused: %s", got[i].name, refusal)
		}
		if want[i].name != got[i].name {
			t.Fatalf("%q on PostgreSQL, %q on the router", want[i].name, got[i].name)
		}
		if diff := cmp.Diff(want[i].said, got[i].said); diff != "" {
			t.Errorf("%s: PostgreSQL (-) and the router (+) differ:\n%s", want[i].name, diff)
		}
	}
	t.Logf("%d accounts are the same", len(want))
}

// both does something on the plain server and on the router, side by side.
func (a *mailman) both(t *testing.T, do func(to target) (string, error)) (plain, router string) {
	t.Helper()
	type result struct {
		text string
		err  error
	}
	beside := make(chan result)
	go func() {
		text, err := do(a.plain)
		beside <- result{text, err}
	}()
	router, err := do(a.router)
	other := <-beside
	if other.err != nil {
		t.Fatalf("on PostgreSQL: %v", other.err)
	}
	if err != nil {
		t.Fatalf("on the router: %v", err)
	}
	return other.text, router
}

// sameSchema compares what pg_dump says, but for some lines.
func (a *mailman) sameSchema(t *testing.T, but func(line string) bool) {
	t.Helper()
	plain, router := a.both(t, func(to target) (string, error) { return to.dumpSchema(t.Context()) })
	lines := func(dump string) []string { return slices.DeleteFunc(strings.Split(dump, "\n"), but) }
	if diff := cmp.Diff(lines(plain), lines(router)); diff != "" {
		t.Errorf("the schemas of PostgreSQL (-) and of the router (+) differ:\n%s", diff)
	}
	if tables := strings.Count(plain, "CREATE TABLE "); tables < 37 {
		t.Errorf("there are only %d tables", tables)
	}
}

// isOfSequence says whether a line of a dump is about the numbers that a sequence has: shards count apart.
func isOfSequence(line string) bool {
	line = strings.TrimPrefix(strings.TrimSpace(line), "NO ")
	return strings.HasPrefix(line, "START WITH") || strings.HasPrefix(line, "MINVALUE") || strings.HasPrefix(line, "MAXVALUE")
}

func (a *mailman) declare(t *testing.T) {
	t.Helper()
	conn := a.router.connect(t)
	for _, sql := range []string{
		fmt.Sprintf("SELECT cleave.reference_table('%s')", mailmanReference),
		fmt.Sprintf("SELECT cleave.shard_tables('%s', uniqueness => 'per shard')", mailmanSharded),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	const spread = `SELECT count(DISTINCT table_name) FROM (
		SELECT table_name FROM cleave.table_sizes WHERE kind = 'sharded' AND estimated_rows > 0 GROUP BY 1 HAVING count(*) = 3) AS t`
	var tables int
	if err := conn.QueryRow(t.Context(), spread).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if tables != 7 { // nobody has used the administration yet
		t.Errorf("%d tables have rows on all shards", tables)
	}
}

// addNotes adds an app, shards its table with the rows that it has, and lets its next migration change it.
func (a *mailman) addNotes(t *testing.T, dev *cluster.Dev) {
	t.Helper()
	a.environment = []string{"WITH_NOTES=1"}
	a.manage(t, "migrate", "notes", "0001")
	a.drive(t, "note")
	conn := a.router.connect(t)
	if _, err := conn.Exec(t.Context(), "SELECT cleave.shard_table('notes_note', 'user_id', uniqueness => 'per shard')"); err != nil {
		t.Fatal(err)
	}
	a.manage(t, "migrate", "notes")
	a.drive(t, "notes")
	a.shardsAgree(t, dev)
}

// shardsAgree wants no difference between the shards' schemas.
func (a *mailman) shardsAgree(t *testing.T, dev *cluster.Dev) {
	t.Helper()
	findings, err := dev.API.DiffSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Errorf("the shards differ: %s", f.Message)
	}
}

// account is what drive.py says of one thing that it tried.
type account struct {
	name    string
	said    []string
	refused []string
}

func parseAccounts(output string) []account {
	all := []account{{name: "at first"}}
	for line := range strings.Lines(output) {
		line = strings.TrimSuffix(line, "\n")
		last := &all[len(all)-1]
		if name, begins := strings.CutPrefix(line, "== "); begins {
			all = append(all, account{name: name})
		} else if refusal, is := strings.CutPrefix(line, "refused: "); is {
			last.refused = append(last.refused, refusal)
		} else {
			last.said = append(last.said, line)
		}
	}
	return all
}
