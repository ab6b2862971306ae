package session

import "testing"

func TestTheCurrentTimeIsFoundInATextByItsWords(t *testing.T) {
	for sql, want := range map[string]string{
		"update t set a = now(), b = 'now()'":                               "update t set a = (M::pg_catalog.timestamptz), b = 'now()'",
		"set a = pg_catalog . Now ( )":                                      "set a = (M::pg_catalog.timestamptz)",
		"set a = mine.now(), b = x.pg_catalog.now()":                        "set a = mine.now(), b = x.pg_catalog.now()",
		"set a = now, b = t.now, now = 1":                                   "set a = now, b = t.now, now = 1",
		"set a = CURRENT_DATE - 1, b = t.current_date":                      "set a = (M::pg_catalog.timestamptz::pg_catalog.date) - 1, b = t.current_date",
		"select 1 as current_date, current_user":                            "select 1 as current_date, current_user",
		"set a = current_timestamp(2), b = localtime ( 0 )":                 "set a = (M::pg_catalog.timestamptz::pg_catalog.timestamptz(2)), b = (M::pg_catalog.timestamptz::pg_catalog.time(0))",
		"set a = localtimestamp(9), b = current_time":                       "set a = (M::pg_catalog.timestamptz::pg_catalog.timestamp), b = (M::pg_catalog.timestamptz::pg_catalog.timetz)",
		"/* now() */ set a = transaction_timestamp() -- now()\n, \"now\"()": "/* now() */ set a = (M::pg_catalog.timestamptz) -- now()\n, \"now\"()",
	} {
		edits, sound := momentWords([]byte(sql), true, "M")
		if got := string(applyEdits([]byte(sql), edits)); got != want || !sound {
			t.Errorf("%s\n is %s\nwant %s", sql, got, want)
		}
	}
}
