package queries_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// How much there is of everything.
const (
	warehouses = 16
	districts  = 3  // of a warehouse
	customers  = 30 // of a district
	items      = 100
	// oldOrders of a district are there from the beginning, of which newOrders are not delivered.
	oldOrders, newOrders = 20, 6
	transactions         = 400
)

// createTPCC makes the tables: all that belongs to a warehouse is with it, and items are everywhere.
const createTPCC = `
CREATE TABLE item (i_id int PRIMARY KEY, i_name text NOT NULL, i_price numeric(5,2) NOT NULL);
CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name text NOT NULL, w_tax numeric(4,4) NOT NULL, w_ytd numeric(12,2) NOT NULL);
CREATE TABLE district (
	d_w_id int REFERENCES warehouse, d_id int, d_tax numeric(4,4) NOT NULL, d_ytd numeric(12,2) NOT NULL, d_next_o_id int NOT NULL, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (
	c_w_id int, c_d_id int, c_id int, c_last text NOT NULL, c_credit char(2) NOT NULL, c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL,
	c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL, c_data text NOT NULL,
	PRIMARY KEY (c_w_id, c_d_id, c_id), FOREIGN KEY (c_w_id, c_d_id) REFERENCES district);
CREATE INDEX ON customer (c_w_id, c_d_id, c_last);
CREATE TABLE history (
	h_w_id int NOT NULL, h_d_id int NOT NULL, h_c_w_id int NOT NULL, h_c_d_id int NOT NULL, h_c_id int NOT NULL, h_date timestamptz NOT NULL, h_amount numeric(6,2) NOT NULL,
	FOREIGN KEY (h_w_id, h_d_id) REFERENCES district);
CREATE TABLE orders (
	o_w_id int, o_d_id int, o_id int, o_c_id int NOT NULL, o_entry_d timestamptz NOT NULL, o_carrier_id int, o_ol_cnt int NOT NULL, o_all_local bool NOT NULL,
	PRIMARY KEY (o_w_id, o_d_id, o_id), FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES customer);
CREATE INDEX ON orders (o_w_id, o_d_id, o_c_id, o_id);
CREATE TABLE new_order (
	no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id), FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES orders);
CREATE TABLE order_line (
	ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int NOT NULL REFERENCES item, ol_supply_w_id int NOT NULL, ol_delivery_d timestamptz,
	ol_quantity int NOT NULL, ol_amount numeric(8,2) NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number), FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES orders);
CREATE TABLE stock (
	s_w_id int REFERENCES warehouse, s_i_id int REFERENCES item, s_quantity int NOT NULL, s_ytd int NOT NULL, s_order_cnt int NOT NULL, s_remote_cnt int NOT NULL,
	PRIMARY KEY (s_w_id, s_i_id));
`

// declareTPCC says where their rows are.
var declareTPCC = []string{
	"SELECT cleave.reference_table('tpcc.item')",
	`SELECT cleave.shard_tables('tpcc.warehouse(w_id), tpcc.district(d_w_id), tpcc.customer(c_w_id), tpcc.history(h_w_id), tpcc.orders(o_w_id),
		tpcc.new_order(no_w_id), tpcc.order_line(ol_w_id), tpcc.stock(s_w_id)', keyspace => 'by_warehouse')`,
}

// tpccTables are in the order in which they can be filled, each with its key.
var tpccTables = []struct{ name, key string }{
	{"item", "i_id"}, {"warehouse", "w_id"}, {"district", "d_w_id, d_id"}, {"customer", "c_w_id, c_d_id, c_id"}, {"history", "h_date, h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_amount"},
	{"orders", "o_w_id, o_d_id, o_id"}, {"new_order", "no_w_id, no_d_id, no_o_id"}, {"order_line", "ol_w_id, ol_d_id, ol_o_id, ol_number"}, {"stock", "s_w_id, s_i_id"},
}

// testTPCC runs a sequence of transactions on both, compares all that they read, and then what they have left.
func testTPCC(t *testing.T, s servers) {
	s.both(t, "CREATE SCHEMA tpcc", "SET search_path = tpcc; "+createTPCC)
	s.keyspace(t, "by_warehouse", "integer")
	s.declare(t, declareTPCC...)
	s.mustSpread(t)
	data := fillTPCC()
	for _, table := range tpccTables {
		s.load(t, "tpcc."+table.name, data[table.name].Bytes())
	}
	plain, router := s.dialIn(t, "tpcc")
	want, got := play(t, plain), play(t, router)
	for i := range want {
		if !slices.Equal(want[i], got[i]) {
			t.Fatalf("transaction %d reads something else: %s", i+1, firstUnequal(want[i], got[i]))
		}
	}
	for _, c := range conditions {
		t.Run(c.name, func(t *testing.T) {
			for _, how := range protocols {
				compareCondition(t, plain, router, c.sql, how)
			}
		})
	}
	for _, table := range tpccTables {
		t.Run("all rows of "+table.name, func(t *testing.T) {
			sql := "SELECT * FROM " + table.name + " ORDER BY " + table.key
			want, err := ask(t.Context(), plain.PgConn(), binary, sql, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ask(t.Context(), router.PgConn(), binary, sql, nil)
			if err != nil {
				t.Fatal(err)
			}
			if problem := difference(want, got, nil); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// mustSpread makes sure that every shard has a warehouse.
func (s servers) mustSpread(t *testing.T) {
	t.Helper()
	conn, shards := dial(t, s.router), map[string]bool{}
	for w := 1; w <= warehouses; w++ {
		var shard string
		if err := conn.QueryRow(t.Context(), fmt.Sprintf("SELECT cleave.shard_of('tpcc.warehouse', %d)", w)).Scan(&shard); err != nil {
			t.Fatal(err)
		}
		shards[shard] = true
	}
	if len(shards) != shardCount {
		t.Fatalf("only %d shards have warehouses", len(shards))
	}
}

// lasts are the customers' last names.
var lasts = []string{"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI"}

const initialPayment = 10

// fillTPCC makes the rows that are there from the beginning.
func fillTPCC() map[string]*bytes.Buffer {
	random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // no secrets
	data := map[string]*bytes.Buffer{}
	for _, table := range tpccTables {
		data[table.name] = &bytes.Buffer{}
	}
	add := func(table string, values ...any) {
		for i, v := range values {
			if i > 0 {
				data[table].WriteByte('\t')
			}
			fmt.Fprint(data[table], v)
		}
		data[table].WriteByte('\n')
	}
	for i := 1; i <= items; i++ {
		add("item", i, fmt.Sprint("item ", i), fmt.Sprintf("%d.%02d", 1+random.IntN(99), random.IntN(100)))
	}
	sold := map[[2]int]int{}
	for w := 1; w <= warehouses; w++ {
		add("warehouse", w, fmt.Sprint("warehouse ", w), fmt.Sprintf("0.%04d", random.IntN(2000)), districts*customers*initialPayment)
		for d := 1; d <= districts; d++ {
			add("district", w, d, fmt.Sprintf("0.%04d", random.IntN(2000)), customers*initialPayment, oldOrders+1)
			for c := 1; c <= customers; c++ {
				credit := []string{"GC", "GC", "GC", "BC"}[random.IntN(4)]
				add("customer", w, d, c, lasts[c%len(lasts)], credit, fmt.Sprintf("0.%04d", random.IntN(5000)), -initialPayment, initialPayment, 1, 0, "made")
				add("history", w, d, w, d, c, moment(0).Format(time.RFC3339), initialPayment)
			}
			for o := 1; o <= oldOrders; o++ {
				isNew := o > oldOrders-newOrders
				carrier, delivered := any(1+random.IntN(10)), moment(0).Format(time.RFC3339)
				if isNew {
					carrier, delivered = `\N`, `\N`
					add("new_order", w, d, o)
				}
				lines := 2 + random.IntN(5)
				add("orders", w, d, o, 1+random.IntN(customers), moment(0).Format(time.RFC3339), carrier, lines, true)
				for line := 1; line <= lines; line++ {
					item, amount := 1+random.IntN(items), "0.00" // what was delivered before is paid
					if isNew {
						amount = fmt.Sprintf("%d.%02d", random.IntN(1000), random.IntN(100))
					}
					sold[[2]int{w, item}] += 5
					add("order_line", w, d, o, line, item, w, delivered, 5, amount)
				}
			}
		}
	}
	for w := 1; w <= warehouses; w++ {
		for i := 1; i <= items; i++ {
			add("stock", w, i, 10+random.IntN(91), sold[[2]int{w, i}], 0, 0)
		}
	}
	return data
}

// moment is the time of a transaction: they have none of their own, since both servers are to have the same.
func moment(transaction int) time.Time {
	return time.Date(2020, time.January, 1, 0, 0, transaction, 0, time.UTC)
}

// terminal runs transactions. What it draws does not depend on what it reads.
type terminal struct {
	ctx    context.Context
	conn   *pgx.Conn
	random *rand.Rand
	number int // of the transaction
	tx     pgx.Tx
	read   []string
}

// play runs the whole sequence on one server, and returns what each transaction has read.
func play(t *testing.T, conn *pgx.Conn) [][]string {
	t.Helper()
	terminal := &terminal{ctx: t.Context(), conn: conn, random: rand.New(rand.NewPCG(seed, 3))} //nolint:gosec // no secrets
	var read [][]string
	for i := range transactions {
		terminal.number, terminal.read = i+1, nil
		kind, do := terminal.draw()
		if err := terminal.run(do); err != nil {
			t.Fatalf("transaction %d, %s: %v", i+1, kind, err)
		}
		read = append(read, terminal.read)
	}
	return read
}

// draw chooses a transaction, nearly in the specification's proportions.
func (w *terminal) draw() (kind string, do func() error) {
	switch n := w.random.IntN(100); {
	case n < 44:
		return "new order", w.newOrder
	case n < 86:
		return "payment", w.payment
	case n < 91:
		return "order status", w.orderStatus
	case n < 96:
		return "delivery", w.delivery
	default:
		return "stock level", w.stockLevel
	}
}

// run runs one transaction; it is rolled back if it wants that.
func (w *terminal) run(do func() error) (err error) {
	if w.tx, err = w.conn.Begin(w.ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = w.tx.Rollback(w.ctx)
		}
	}()
	if err := do(); err != nil {
		return err
	}
	if w.tx.Conn() == nil || w.tx.Conn().PgConn().TxStatus() == 'I' { // it has ended itself
		return nil
	}
	return w.tx.Commit(w.ctx)
}

// rows runs a statement, notes what it gives and returns it.
func (w *terminal) rows(sql string, arguments ...any) ([][]any, error) {
	rows, err := w.tx.Query(w.ctx, sql, arguments...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all [][]any
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		all = append(all, values)
		w.read = append(w.read, sql+": "+row(rows.RawValues()).String())
	}
	rows.Close()
	w.read = append(w.read, rows.CommandTag().String())
	if rows.Err() != nil {
		return nil, fmt.Errorf("%s: %w", sql, rows.Err())
	}
	return all, nil
}

// one runs a statement that gives one row, or changes one.
func (w *terminal) one(sql string, arguments ...any) ([]any, error) {
	all, err := w.rows(sql, arguments...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

func (w *terminal) between(least, most int) int { return least + w.random.IntN(most-least+1) }

// otherWarehouse is one of the others.
func (w *terminal) otherWarehouse(than int) int {
	return (than+w.random.IntN(warehouses-1))%warehouses + 1
}

// newOrder orders some items, one in ten of them from another warehouse's stock. One order in fifty names an item that there is not, and is taken back.
func (w *terminal) newOrder() error {
	type line struct{ item, supply, quantity int }
	warehouse, district, customer := w.between(1, warehouses), w.between(1, districts), w.between(1, customers)
	wrong := w.random.IntN(50) == 0
	var lines []line
	local := true
	for range w.between(2, 8) {
		l := line{w.between(1, items), warehouse, w.between(1, 10)}
		if w.random.IntN(10) == 0 {
			l.supply, local = w.otherWarehouse(warehouse), false
		}
		lines = append(lines, l)
	}
	if wrong {
		lines[len(lines)-1].item = items + 1
	}
	if _, err := w.one("SELECT w_tax FROM warehouse WHERE w_id = $1", warehouse); err != nil {
		return err
	}
	next, err := w.one("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 RETURNING d_next_o_id - 1, d_tax", warehouse, district)
	if err != nil {
		return err
	}
	order := next[0]
	if _, err := w.one("SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3", warehouse, district, customer); err != nil {
		return err
	}
	if _, err := w.one("INSERT INTO orders VALUES ($1, $2, $3, $4, $5, NULL, $6, $7)", warehouse, district, order, customer, moment(w.number), len(lines), local); err != nil {
		return err
	}
	if _, err := w.one("INSERT INTO new_order VALUES ($1, $2, $3)", warehouse, district, order); err != nil {
		return err
	}
	for i, l := range lines {
		item, err := w.one("SELECT i_name, i_price FROM item WHERE i_id = $1", l.item)
		if err != nil {
			return err
		}
		if item == nil {
			return w.tx.Rollback(w.ctx)
		}
		if _, err := w.one("SELECT s_quantity FROM stock WHERE s_w_id = $1 AND s_i_id = $2 FOR UPDATE", l.supply, l.item); err != nil {
			return err
		}
		_, err = w.one(`UPDATE stock SET s_quantity = CASE WHEN s_quantity >= $3::int + 10 THEN s_quantity - $3 ELSE s_quantity - $3 + 91 END, s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1,
			s_remote_cnt = s_remote_cnt + $4 WHERE s_w_id = $1 AND s_i_id = $2 RETURNING s_quantity`, l.supply, l.item, l.quantity, remote(l.supply != warehouse))
		if err != nil {
			return err
		}
		_, err = w.one("INSERT INTO order_line VALUES ($1, $2, $3, $4, $5, $6, NULL, $7, $7::int * $8::numeric) RETURNING ol_amount", warehouse, district, order, i+1, l.item, l.supply, l.quantity, item[1])
		if err != nil {
			return err
		}
	}
	return nil
}

func remote(is bool) int {
	if is {
		return 1
	}
	return 0
}

// someCustomer is one by its number, or by its last name: the one in the middle of those that have it.
func (w *terminal) someCustomer(warehouse, district int, last string, number int) (customer any, err error) {
	const columns = "SELECT c_id, c_last, c_balance, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND "
	if last == "" {
		_, err := w.one(columns+"c_id = $3", warehouse, district, number)
		return number, err
	}
	all, err := w.rows(columns+"c_last = $3 ORDER BY c_id", warehouse, district, last)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[len(all)/2][0], nil
}

// drawName is a last name, or none: then the number counts.
func (w *terminal) drawName() string {
	name := lasts[w.random.IntN(len(lasts))]
	if w.random.IntN(100) < 40 {
		return ""
	}
	return name
}

// payment takes a customer's money, of whom one in four belongs to another warehouse.
func (w *terminal) payment() error {
	warehouse, district := w.between(1, warehouses), w.between(1, districts)
	theirs, theirDistrict, name, number := warehouse, w.between(1, districts), w.drawName(), w.between(1, customers)
	amount := fmt.Sprintf("%d.%02d", w.between(1, 4999), w.random.IntN(100))
	if w.random.IntN(4) == 0 {
		theirs = w.otherWarehouse(warehouse)
	}
	if _, err := w.one("UPDATE warehouse SET w_ytd = w_ytd + $2::numeric WHERE w_id = $1 RETURNING w_name, w_ytd", warehouse, amount); err != nil {
		return err
	}
	if _, err := w.one("UPDATE district SET d_ytd = d_ytd + $3::numeric WHERE d_w_id = $1 AND d_id = $2 RETURNING d_ytd", warehouse, district, amount); err != nil {
		return err
	}
	customer, err := w.someCustomer(theirs, theirDistrict, name, number)
	if err != nil {
		return err
	}
	_, err = w.one(`UPDATE customer SET c_balance = c_balance - $4::numeric, c_ytd_payment = c_ytd_payment + $4::numeric, c_payment_cnt = c_payment_cnt + 1,
		c_data = CASE c_credit WHEN 'BC' THEN left($4 || ' to ' || $5::int || ', ' || c_data, 60) ELSE c_data END
		WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 RETURNING c_balance, c_data`, theirs, theirDistrict, customer, amount, warehouse)
	if err != nil {
		return err
	}
	_, err = w.one("INSERT INTO history VALUES ($1, $2, $3, $4, $5, $6, $7::numeric)", warehouse, district, theirs, theirDistrict, customer, moment(w.number), amount)
	return err
}

// orderStatus asks for a customer's last order.
func (w *terminal) orderStatus() error {
	warehouse, district := w.between(1, warehouses), w.between(1, districts)
	customer, err := w.someCustomer(warehouse, district, w.drawName(), w.between(1, customers))
	if err != nil {
		return err
	}
	order, err := w.one("SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1", warehouse, district, customer)
	if err != nil || order == nil {
		return err
	}
	_, err = w.rows("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3 ORDER BY ol_number", warehouse, district, order[0])
	return err
}

// delivery delivers the oldest order of each district.
func (w *terminal) delivery() error {
	warehouse, carrier := w.between(1, warehouses), w.between(1, 10)
	for district := 1; district <= districts; district++ {
		oldest, err := w.one("DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = (SELECT min(no_o_id) FROM new_order WHERE no_w_id = $1 AND no_d_id = $2) RETURNING no_o_id", warehouse, district)
		if err != nil {
			return err
		}
		if oldest == nil {
			continue
		}
		customer, err := w.one("UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id", warehouse, district, oldest[0], carrier)
		if err != nil {
			return err
		}
		if _, err := w.rows("UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3", warehouse, district, oldest[0], moment(w.number)); err != nil {
			return err
		}
		_, err = w.one(`UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1, c_balance = c_balance + (SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $4)
			WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 RETURNING c_balance`, warehouse, district, customer[0], oldest[0])
		if err != nil {
			return err
		}
	}
	return nil
}

// stockLevel counts the items of the last orders that are getting rare.
func (w *terminal) stockLevel() error {
	warehouse, district, threshold := w.between(1, warehouses), w.between(1, districts), w.between(10, 40)
	_, err := w.one(`SELECT count(DISTINCT s_i_id) FROM district, order_line, stock WHERE d_w_id = $1 AND d_id = $2 AND ol_w_id = d_w_id AND ol_d_id = d_id AND ol_o_id >= d_next_o_id - 20
		AND s_w_id = d_w_id AND s_i_id = ol_i_id AND s_quantity < $3`, warehouse, district, threshold)
	return err
}
