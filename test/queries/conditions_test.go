package queries_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// condition is what must hold when all transactions are done: the last column says whether it does, the others what was compared. All of it is
// over all shards. The numbers are those of the specification of TPC-C.
type condition struct{ name, sql string }

var conditions = []condition{
	{"1 warehouses have what their districts have", `
		SELECT w_id, w_ytd, sum(d_ytd), w_ytd = sum(d_ytd) FROM warehouse JOIN district ON d_w_id = w_id GROUP BY w_id ORDER BY w_id`},
	{"2 districts know their last order", `
		SELECT d_w_id, d_id, d_next_o_id, (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id), (SELECT coalesce(max(no_o_id), 0) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id),
			d_next_o_id - 1 = (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
			AND coalesce(d_next_o_id - 1 = (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id), true)
		FROM district ORDER BY d_w_id, d_id`},
	{"3 new orders have no gaps", `
		SELECT no_w_id, no_d_id, min(no_o_id), max(no_o_id), count(*), max(no_o_id) - min(no_o_id) + 1 = count(*) FROM new_order GROUP BY no_w_id, no_d_id ORDER BY 1, 2`},
	{"4 orders have as many lines as they say, by district", `
		SELECT o.w, o.d, o.said, l.lines, o.said = l.lines FROM (SELECT o_w_id AS w, o_d_id AS d, sum(o_ol_cnt) AS said FROM orders GROUP BY 1, 2) o
		FULL JOIN (SELECT ol_w_id AS w, ol_d_id AS d, count(*) AS lines FROM order_line GROUP BY 1, 2) l ON o.w = l.w AND o.d = l.d ORDER BY 1, 2`},
	{"5 what has no carrier is a new order", `
		SELECT o_w_id, o_d_id, count(*), count(no_o_id), bool_and((o_carrier_id IS NULL) = (no_o_id IS NOT NULL))
		FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id GROUP BY o_w_id, o_d_id ORDER BY o_w_id, o_d_id`},
	{"6 orders have as many lines as they say", `
		SELECT count(*), bool_and(o_ol_cnt = (SELECT count(*) FROM order_line WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)) FROM orders`},
	{"7 what has a carrier is delivered", `
		SELECT count(*), count(ol_delivery_d), bool_and((ol_delivery_d IS NULL) = (o_carrier_id IS NULL))
		FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id`},
	{"8 warehouses have what was paid", `
		SELECT w_id, w_ytd, paid, w_ytd = paid FROM warehouse, (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY h_w_id) h WHERE h_w_id = w_id ORDER BY w_id`},
	{"9 districts have what was paid", `
		SELECT d_w_id, d_id, d_ytd, sum(h_amount), d_ytd = sum(h_amount) FROM district, history WHERE h_w_id = d_w_id AND h_d_id = d_id GROUP BY d_w_id, d_id, d_ytd ORDER BY d_w_id, d_id`},
	{"10 customers owe what was delivered and not paid", `
		WITH paid AS (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id),
		delivered AS (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders, order_line
			WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id)
		SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid, c_balance = coalesce(delivered, 0) - paid
		FROM customer JOIN paid ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id LEFT JOIN delivered ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id ORDER BY 1, 2, 3`},
	{"10 the same of all, with queries for each row", `
		SELECT sum(c_balance), bool_and(c_balance = coalesce((SELECT sum(ol_amount) FROM orders, order_line
			WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL), 0)
			- (SELECT sum(h_amount) FROM history WHERE h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id)) FROM customer`},
	{"11 all orders are new or delivered", `
		SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM new_order), (SELECT count(*) FROM orders) - (SELECT count(*) FROM new_order) = (SELECT count(*) FROM orders WHERE o_carrier_id IS NOT NULL)`},
	{"12 customers have paid or owe what was delivered", `
		SELECT sum(c_balance), sum(c_ytd_payment), (SELECT sum(ol_amount) FROM order_line WHERE ol_delivery_d IS NOT NULL),
			sum(c_balance + c_ytd_payment) = (SELECT sum(ol_amount) FROM order_line WHERE ol_delivery_d IS NOT NULL) FROM customer`},
	{"what was ordered came from stock", `
		SELECT s_w_id, sum(s_ytd), sum(sold), sum(s_ytd) = sum(sold) FROM stock
		LEFT JOIN (SELECT ol_supply_w_id, ol_i_id, sum(ol_quantity) AS sold FROM order_line GROUP BY 1, 2) l ON ol_supply_w_id = s_w_id AND ol_i_id = s_i_id GROUP BY s_w_id ORDER BY s_w_id`},
	{"what others supplied is counted", `
		SELECT sum(s_remote_cnt), (SELECT count(*) FROM order_line WHERE ol_supply_w_id <> ol_w_id), sum(s_remote_cnt) = (SELECT count(*) FROM order_line WHERE ol_supply_w_id <> ol_w_id) FROM stock`},
	{"customers pay at other warehouses", `
		SELECT count(*), sum(h_amount), count(DISTINCT c_w_id) > 1 FROM history, customer WHERE c_w_id = h_c_w_id AND c_d_id = h_c_d_id AND c_id = h_c_id AND h_w_id <> c_w_id`},
}

// compareCondition asks both whether a condition holds: it must, and they must have compared the same.
func compareCondition(t *testing.T, plain, router *pgx.Conn, sql string, how protocol) {
	t.Helper()
	want, err := ask(t.Context(), plain.PgConn(), how, sql, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.rows) == 0 {
		t.Error("nothing was compared")
	}
	for _, r := range want.rows {
		if last := string(r[len(r)-1]); last != "t" && last != "\x01" {
			t.Errorf("on PostgreSQL it does not hold: %v", r)
		}
	}
	got, err := ask(t.Context(), router.PgConn(), how, sql, nil)
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	if problem := difference(want, got, nil); problem != "" {
		t.Errorf("%s: %s", how, problem)
	}
}
