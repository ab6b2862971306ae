package observe

import (
	"strings"
	"testing"
)

// TestValuesOfSettingsAreNotKept: literals are question marks already, and these values need not be literals.
func TestValuesOfSettingsAreNotKept(t *testing.T) {
	for sql, want := range map[string]string{
		`SET myapp.token = S3CRET`:                              `SET myapp.token = ?`,
		`SET myapp.token=S3CRET`:                                `SET myapp.token=?`,
		`set local myapp.token to S3CRET`:                       `set local myapp.token to ?`,
		`SET SESSION myapp.token TO "S3CRET"`:                   `SET SESSION myapp.token TO ?`,
		`SET myapp.token = S3CRET, "and more", ?`:               `SET myapp.token = ?`,
		`SET myapp.token=?`:                                     `SET myapp.token=?`,
		`SET "to = me".token = S3CRET`:                          `SET "to = me".token = ?`,
		`SET myapp.token = "S3;CRET"`:                           `SET myapp.token = ?`,
		`BEGIN; SET a.b = S3CRET; SELECT c FROM t WHERE d = e`:  `BEGIN; SET a.b = ?; SELECT c FROM t WHERE d = e`,
		`SET a.b = S3CRET;SET a.c TO S3CRET;`:                   `SET a.b = ?;SET a.c TO ?;`,
		`ALTER ROLE alice SET myapp.token = S3CRET`:             `ALTER ROLE alice SET myapp.token = ?`,
		`ALTER ROLE ALL IN DATABASE d SET a.b TO S3CRET`:        `ALTER ROLE ALL IN DATABASE d SET a.b TO ?`,
		`ALTER DATABASE d SET myapp.token TO S3CRET`:            `ALTER DATABASE d SET myapp.token TO ?`,
		`CREATE FUNCTION f() RETURNS int SET a.b = S3CRET AS ?`: `CREATE FUNCTION f() RETURNS int SET a.b = ?`,

		`SET TIME ZONE UTC`: ``,
		`SET ROLE alice`:    ``,
		`SET TRANSACTION ISOLATION LEVEL SERIALIZABLE`:                          ``,
		`UPDATE t SET a = b WHERE c = ?`:                                        ``,
		`INSERT INTO t VALUES (?) ON CONFLICT DO UPDATE SET a = b`:              ``,
		`WITH x AS (SELECT ?) UPDATE t SET a = b`:                               ``,
		`SELECT ? FROM "set" WHERE a = b`:                                       ``,
		`CREATE TABLE t (a int REFERENCES u ON DELETE SET NULL, CHECK (a = b))`: ``,
		`ALTER TABLE t SET (fillfactor = ?)`:                                    ``,
		`ALTER TABLE t ALTER a SET DEFAULT ?, RENAME TO u`:                      ``,
		`ALTER TABLE t RENAME TO u`:                                             ``,
	} {
		masked, sets := maskSettings(sql)
		if want == "" {
			want = sql
		} else if !sets {
			t.Errorf("%s: it is said to set nothing", sql)
		}
		if masked != want {
			t.Errorf("%s\nbecomes %s\nnot     %s", sql, masked, want)
		}
	}
}

// TestSettingsAreOneStatement: or each value would take the room of a statement, and a row without a difference to be seen.
func TestSettingsAreOneStatement(t *testing.T) {
	s := NewStatements(StatementsConfig{Limit: 2})
	first := s.Entry(1, text("SET a.b = S3CRET"))
	if s.Entry(2, text("SET a.b = OTHER")) != first || s.Entry(1, text("SET a.b = S3CRET")) != first || first.text != "SET a.b = ?" {
		t.Errorf("%q is one of several", first.text)
	}
	if s.known.Load() != 1 {
		t.Errorf("%d statements are told apart", s.known.Load())
	}
	first.Observe(NoShard, 1, 0, 0, false)
	for _, stats := range s.Snapshot() {
		if strings.Contains(stats.Text, "S3CRET") {
			t.Errorf("%+v", stats)
		}
	}
}
