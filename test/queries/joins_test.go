package queries_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// createShop makes tables for joins: orders and their lines are in one keyspace, customers in another, parts in a third, and nations everywhere. There are
// enough rows of many that it is worth while to ask for those that few are joined with; columns of the same name have other types in both.
const createShop = `
CREATE TABLE o (ok bigint PRIMARY KEY, ck int, total numeric, at date, note text);
CREATE TABLE l (ok bigint, n int, pk int, q int, PRIMARY KEY (ok, n));
CREATE TABLE c (ck int PRIMARY KEY, name text, nat int);
CREATE TABLE p (pk int PRIMARY KEY, size int, k int);
CREATE TABLE r (nat int PRIMARY KEY, nname text);
CREATE TABLE many (id bigint PRIMARY KEY, i int, b bigint, n numeric, f float8, t text, v varchar(20), ch char(12), d date, ts timestamp);
CREATE TABLE few (id int PRIMARY KEY, i smallint, b int, n bigint, f numeric, t varchar, v char(20), ch text, d timestamp, ts date);
`

// declareShop says where their rows are.
var declareShop = []string{
	"SELECT cleave.shard_tables('shop.o(ok), shop.l(ok)', keyspace => 'by_ok')", "SELECT cleave.shard_tables('shop.c(ck)', keyspace => 'by_ck')",
	"SELECT cleave.shard_tables('shop.p(pk)', keyspace => 'by_pk')", "SELECT cleave.reference_table('shop.r')",
	"SELECT cleave.shard_tables('shop.many(id)', keyspace => 'by_ok')", "SELECT cleave.shard_tables('shop.few(id)', keyspace => 'by_pk')",
}

// shopQueries are small queries of the forms that TPC-H is made of, with the turns that it does not take.
var shopQueries = []string{
	// What a condition's query names of the queries around it.
	"SELECT o.ok, s.k FROM o, c, (SELECT 2 AS k) s WHERE o.ck = c.ck AND EXISTS (SELECT FROM l WHERE l.ok = o.ok AND n = k)",
	"SELECT o.ok FROM o, c, (SELECT 2 AS n2) s WHERE o.ck = c.ck AND (SELECT sum(q) FROM l WHERE l.ok = o.ok) > n2",
	"SELECT c.ck FROM c WHERE EXISTS (SELECT FROM o WHERE o.ck = c.ck AND EXISTS (SELECT FROM l WHERE l.ok = o.ok AND l.q = c.nat)) ORDER BY 1",
	"SELECT p.pk, c.name FROM p, c WHERE p.size = c.nat AND EXISTS (SELECT FROM o, l WHERE o.ok = l.ok AND o.ck = c.ck AND l.pk = p.pk)",
	"SELECT o.ok, c.name FROM o, c WHERE o.ck = c.ck AND EXISTS (SELECT FROM l l1, l l2 WHERE l1.ok = l2.ok AND l1.n = l2.n + 1 AND l1.ok = o.ok) ORDER BY 1",
	"SELECT o.ok, c.name FROM o, c WHERE o.ck = c.ck AND (SELECT sum(x.q) FROM (SELECT q FROM l WHERE l.ok = o.ok) x) > 3 ORDER BY 1",
	"SELECT o.ok FROM o, r WHERE o.ck = r.nat AND EXISTS (SELECT FROM l WHERE l.ok = o.ok AND l.q = r.nat) ORDER BY 1",
	"SELECT name, (SELECT nname FROM r WHERE r.nat = c.nat) FROM c WHERE ck IN (SELECT ck FROM o WHERE o.note = c.name OR o.total > 11) ORDER BY 1",
	// Outer joins, whose conditions may not be asked before.
	"SELECT o.ok, c.name FROM o JOIN c ON o.ck = c.ck LEFT JOIN l ON l.ok = o.ok AND l.q > 2 WHERE l.ok IS NULL",
	"SELECT o.ok, c.name FROM o JOIN c ON o.ck = c.ck LEFT JOIN l ON l.ok = o.ok WHERE o.total > 3 AND (l.q > 2 OR l.q IS NULL)",
	"SELECT c.name, r.nname, sum(l.q) FROM c LEFT JOIN r ON r.nat = c.nat AND r.nname <> 'nat2' JOIN o ON o.ck = c.ck JOIN l ON l.ok = o.ok WHERE o.at BETWEEN '2020-01-03' AND '2020-01-20' GROUP BY 1, 2 ORDER BY 1, 2",
	"SELECT c.ck FROM c LEFT JOIN (o JOIN l ON o.ok = l.ok AND l.q = 1) ON o.ck = c.ck WHERE o.ok IS NULL OR o.total > 4 ORDER BY 1",
	"SELECT c.ck, l.n FROM c FULL JOIN (o JOIN l ON o.ok = l.ok) ON o.ck = c.ck AND l.q > 2 ORDER BY 1, 2",
	"SELECT c.ck, x.s FROM c, LATERAL (SELECT sum(q) AS s FROM l WHERE l.ok = c.ck) x ORDER BY 1",
	// Joins by name, and stars.
	"SELECT o.ok, count(*) FROM o JOIN l USING (ok) JOIN c USING (ck) WHERE c.nat = 2 GROUP BY ok",
	"SELECT * FROM o NATURAL JOIN l JOIN c ON c.ck = o.ck WHERE l.q BETWEEN 1 AND 3 ORDER BY 1, 2, 3",
	"SELECT o.* FROM o, c WHERE o.ck = c.ck AND c.nat = 1 AND o.ok = ANY (SELECT ok FROM l WHERE q = 2) ORDER BY 1",
	"SELECT o.ok, c.name FROM o, c WHERE o.ck = c.ck AND o.ok IN (SELECT l1.ok FROM l l1 JOIN l l2 USING (ok) WHERE l1.q < l2.q) ORDER BY 1",
	// Queries for each row, and choices.
	"SELECT c.name FROM c WHERE ck IN (SELECT ck FROM o WHERE EXISTS (SELECT FROM l WHERE l.ok = o.ok AND q > 3)) ORDER BY 1",
	"SELECT c.name FROM c WHERE ck NOT IN (SELECT ck FROM o WHERE NOT EXISTS (SELECT FROM l WHERE l.ok = o.ok)) ORDER BY 1",
	"SELECT p.pk, (SELECT sum(q) FROM l WHERE l.pk = p.pk AND l.q > p.size) FROM p ORDER BY 1",
	"SELECT p.pk FROM p WHERE p.size < (SELECT avg(q) FROM l, o WHERE l.ok = o.ok AND l.pk = p.pk AND o.total > 2) ORDER BY 1",
	"SELECT c.ck, (SELECT count(*) FROM l WHERE l.ok = c.ck) FROM c ORDER BY 1",
	"SELECT o.ok FROM o, c WHERE o.ck = c.ck AND o.total = (SELECT max(total) FROM o o2 WHERE o2.ck = c.ck) ORDER BY 1",
	"SELECT o.ok FROM o, c WHERE o.ck = c.ck AND o.ok = (SELECT max(ok) FROM l WHERE l.ok = o.ok) ORDER BY 1",
	"SELECT c.name, r.nname FROM c JOIN r ON c.nat = r.nat WHERE c.ck < (SELECT count(*) FROM o WHERE o.ck = c.ck) ORDER BY 1",
	"SELECT c.name FROM c WHERE EXISTS (SELECT FROM o JOIN l ON o.ok = l.ok WHERE o.ck = c.ck AND l.pk IN (SELECT pk FROM p WHERE size > 2)) ORDER BY 1",
	"SELECT o1.ok, o2.ok FROM o o1, o o2, c WHERE o1.ok = o2.ok AND o1.ck = c.ck AND c.nat = 1 AND (o1.total > 5 AND c.name > 'name1' OR o2.total < 3 AND c.name < 'name5')",
	"SELECT p.pk, c.ck FROM p JOIN c ON p.size = c.nat WHERE (p.k = 1 AND c.name LIKE 'name1%') OR (p.k = 0 AND c.name LIKE 'name%2') ORDER BY 1, 2",
	"SELECT o.ok, l.q, p.size FROM o, l, p WHERE o.ok = l.ok AND l.pk = p.pk AND o.total + l.q > 4 AND l.q + p.size < 9 AND NOT (o.ok = 3 AND p.k = 1) ORDER BY 1, 2, 3",
	"WITH big AS (SELECT ok FROM o WHERE total > 6) SELECT c.name, count(*) FROM c, o, big WHERE c.ck = o.ck AND o.ok = big.ok AND c.nat BETWEEN SYMMETRIC 3 AND 1 GROUP BY 1 ORDER BY 1",
	// Columns of different types that are equal, and values that are missing.
	"SELECT c.ck, l.n FROM c JOIN l ON l.ok = c.ck ORDER BY 1, 2",
	"SELECT c.name, o.ok FROM c JOIN o ON o.total = c.ck ORDER BY 1, 2",
	"SELECT c.name, o.ok FROM c JOIN o ON o.note = c.name ORDER BY 1, 2",
	"SELECT c.ck, p.pk FROM c JOIN p ON c.nat IS NOT DISTINCT FROM p.size ORDER BY 1, 2",
	"SELECT c.ck, p.pk FROM c LEFT JOIN p ON c.nat = p.size ORDER BY 1, 2",
	// A table with many rows, of which those matter that a small one has values of.
	"SELECT m.id, f.id FROM many m JOIN few f ON m.i = f.i ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.b = f.b ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.n = f.n ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.f = f.f ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.t = f.t ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.v = f.v ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.ch = f.ch ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.d = f.d ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m JOIN few f ON m.ts = f.ts ORDER BY 1, 2",
	"SELECT m.id, f.id FROM many m LEFT JOIN few f ON m.i = f.i AND f.id < 5 WHERE m.id % 100 < 7 ORDER BY 1, 2",
	"SELECT m.id, f.id FROM few f LEFT JOIN many m ON m.i = f.i AND m.id < 50 ORDER BY 1, 2",
	"SELECT f.id FROM few f WHERE NOT EXISTS (SELECT FROM many m WHERE m.i = f.i) ORDER BY 1",
	"SELECT count(*), sum(m.b) FROM few f, few g, many m, c WHERE m.i = f.i AND m.b = g.b AND c.ck = f.b",
	"SELECT f.id, x.n FROM few f JOIN (SELECT i, count(*) AS n FROM many GROUP BY i) x ON x.i = f.i ORDER BY 1",
	"SELECT a.id, b.id FROM many a JOIN few f ON a.i = f.i JOIN many b ON b.b = f.n WHERE f.id < 4 ORDER BY 1, 2",
}

// fillShop makes the rows; some values are NULL.
func fillShop() map[string]*bytes.Buffer {
	data := map[string]*bytes.Buffer{}
	for _, table := range []string{"o", "l", "c", "p", "r", "many", "few"} {
		data[table] = &bytes.Buffer{}
	}
	for i := range 60 {
		fmt.Fprintf(data["o"], "%d\t%d\t%d.5\t2020-01-%02d\tname%d\n", i, i%17, i%13, 1+i%28, i%3)
		for j := range i % 4 {
			fmt.Fprintf(data["l"], "%d\t%d\t%d\t%d\n", i, j, (i*7+j)%23, j+i%5)
		}
	}
	for i := range 4 {
		fmt.Fprintf(data["o"], "%d\t%d\t%d\t\\N\t\\N\n", 100+i, i, i)
	}
	for i := range 20 {
		fmt.Fprintf(data["c"], "%d\tname%d\t%d\n", i, i, i%4)
	}
	data["c"].WriteString("20\tname20\t\\N\n21\t\\N\t\\N\n")
	for i := range 25 {
		fmt.Fprintf(data["p"], "%d\t%d\t%d\n", i, i%6, i%2)
	}
	data["p"].WriteString("25\t\\N\t0\n")
	for i := range 5 {
		fmt.Fprintf(data["r"], "%d\tnat%d\n", i, i)
	}
	for i := range 3000 {
		fmt.Fprintf(data["many"], "%d\t%d\t%d\t%d.00\t%d\tword%d\tword%d \tword%d\t2020-02-%02d\t2020-03-%02d 00:00:0%d\n", i, i%500, i%700, i%900, i%800, i%600, i%650, i%750, 1+i%29, 1+i%30, i%2)
	}
	for i := range 20 {
		fmt.Fprintf(data["few"], "%d\t%d\t%d\t%d\t%d.0\tword%d\tword%d\tword%d\t2020-02-%02d 00:00:0%d\t2020-03-%02d\n", i, i*3, i*5, i*7, i*11, i*2, i*13, i*17, 1+i, i%2, 1+i)
	}
	for _, table := range []string{"many", "few"} {
		data[table].WriteString("5000" + strings.Repeat("\t\\N", 9) + "\n")
	}
	return data
}

// testJoins runs queries across keyspaces on both.
func testJoins(t *testing.T, s servers) {
	s.both(t, "CREATE SCHEMA shop", "SET search_path = shop; "+createShop)
	s.keyspace(t, "by_ok", "bigint")
	s.keyspace(t, "by_ck", "integer")
	s.keyspace(t, "by_pk", "integer")
	s.declare(t, declareShop...)
	for table, rows := range fillShop() {
		s.load(t, "shop."+table, rows.Bytes())
	}
	s.both(t, "ANALYZE")
	plain, router := s.dialIn(t, "shop")
	for _, sql := range shopQueries {
		for _, how := range protocols {
			want, err := ask(t.Context(), plain.PgConn(), how, sql, nil)
			if err != nil || len(want.rows) == 0 {
				t.Fatalf("%s: %d rows, %v", sql, len(want.rows), err)
			}
			got, err := ask(t.Context(), router.PgConn(), how, sql, nil)
			if err != nil {
				t.Errorf("%s, %s: %v", sql, how, err)
			} else if problem := difference(want, got, nil); problem != "" {
				t.Errorf("%s, %s: %s", sql, how, problem)
			}
		}
	}
}
