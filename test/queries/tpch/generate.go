package tpch

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Data are the rows of all tables, each table's in the text format of COPY.
type Data map[string][]byte

// Scale is what the queries' parameters are chosen for: 60,000 lines of orders.
const Scale = 0.01

// Generate makes the rows up. At scale 1 there are six million lines of orders.
func Generate(scale float64, seed uint64) Data {
	g := &generator{
		random:    rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // no secrets
		suppliers: scaled(scale, 10_000), parts: scaled(scale, 200_000), customers: scaled(scale, 150_000), orders: scaled(scale, 1_500_000),
		data: Data{}, days: make([]string, 0, lastDay+200),
	}
	for day := range cap(g.days) {
		g.days = append(g.days, firstDay.AddDate(0, 0, day).Format(time.DateOnly))
	}
	g.makeNations()
	g.makeSuppliers()
	g.makeParts()
	g.makeCustomers()
	g.makeOrders()
	return g.data
}

// scaled is how many rows a table has; a few at least.
func scaled(scale float64, atOne int) int { return max(int(scale*float64(atOne)), 20) }

// Days are counted from the first that an order can be of; lastDay is the last, today what the specification takes for that.
var firstDay = time.Date(1992, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	lastDay = 2405 // 1998-08-02
	today   = 1263 // 1995-06-17
)

type generator struct {
	random                              *rand.Rand
	suppliers, parts, customers, orders int
	data                                Data
	days                                []string
}

// add adds a row to a table.
func (g *generator) add(table string, values ...any) {
	row := g.data[table]
	for i, value := range values {
		if i > 0 {
			row = append(row, '\t')
		}
		switch v := value.(type) {
		case int:
			row = strconv.AppendInt(row, int64(v), 10)
		case cents:
			row = v.append(row)
		case string:
			row = append(row, v...)
		default:
			panic(fmt.Sprintf("a value of type %T", v))
		}
	}
	g.data[table] = append(row, '\n')
}

// cents is an amount of money, or another number with two digits after the point.
type cents int64

func (c cents) append(to []byte) []byte {
	if c < 0 {
		to, c = append(to, '-'), -c
	}
	return fmt.Appendf(to, "%d.%02d", c/100, c%100)
}

// between draws a number from the least to the most.
func (g *generator) between(least, most int) int { return least + g.random.IntN(most-least+1) }

func (g *generator) money(least, most int) cents { return cents(g.between(least, most)) }

func (g *generator) oneOf(list []string) string { return list[g.random.IntN(len(list))] }

// text is a comment of so many characters at most.
func (g *generator) text(most int) string {
	text := g.oneOf(prose)
	for range g.between(1, 6) {
		word := g.oneOf(prose)
		if len(text)+1+len(word) > most {
			break
		}
		text += " " + word
	}
	return text[:min(len(text), most)]
}

func (g *generator) address() string {
	return fmt.Sprintf("%d %s street", g.between(1, 999), g.oneOf(colours))
}

// phone begins with the country's code, which tells the nation.
func (g *generator) phone(nation int) string {
	return fmt.Sprintf("%d-%d-%d-%d", nation+10, g.between(100, 999), g.between(100, 999), g.between(1000, 9999))
}

func (g *generator) balance() cents { return g.money(-999_99, 9999_99) }

func (g *generator) makeNations() {
	for i, name := range regions {
		g.add("region", i, name, g.text(60))
	}
	for i, n := range nations {
		g.add("nation", i, n.name, n.region, g.text(60))
	}
}

func (g *generator) makeSuppliers() {
	complaints, praise := g.between(1, g.suppliers), g.between(1, g.suppliers)
	for key := 1; key <= g.suppliers; key++ {
		comment := g.text(60)
		switch { // one of each at least, and then five in ten thousand, as it should be
		case key == complaints || g.random.IntN(2000) == 0:
			comment += " Customer slow Complaints"
		case key == praise || g.random.IntN(2000) == 0:
			comment += " Customer gladly Recommends"
		}
		nation := g.random.IntN(len(nations))
		g.add("supplier", key, fmt.Sprintf("Supplier#%09d", key), g.address(), nation, g.phone(nation), g.balance(), comment)
	}
}

// retailPrice is that of a part.
func retailPrice(part int) cents { return cents(90000 + part/10%20001 + 100*(part%1000)) }

// suppliersOfPart is how many suppliers sell a part.
const suppliersOfPart = 4

// supplierOf is one of the suppliers of a part: each is of another quarter of all, and parts have different ones together.
func (g *generator) supplierOf(part, which int) int {
	quarter := g.suppliers / suppliersOfPart
	return which*quarter + (part+which*(part/quarter))%quarter + 1
}

func (g *generator) makeParts() {
	for key := 1; key <= g.parts; key++ {
		maker := g.between(1, 5)
		g.add("part", key, g.partName(), fmt.Sprintf("Manufacturer#%d", maker), fmt.Sprintf("Brand#%d%d", maker, g.between(1, 5)),
			g.oneOf(typeSyllables[0])+" "+g.oneOf(typeSyllables[1])+" "+g.oneOf(typeSyllables[2]), g.between(1, 50),
			g.oneOf(containerSyllables[0])+" "+g.oneOf(containerSyllables[1]), retailPrice(key), g.text(23))
		for which := range suppliersOfPart {
			g.add("partsupp", key, g.supplierOf(key, which), g.between(1, 9999), g.money(1_00, 1000_00), g.text(120))
		}
	}
}

// partName is five colours, all different.
func (g *generator) partName() string {
	const words = 5
	drawn := make([]string, words)
	for i, at := range g.random.Perm(len(colours))[:words] {
		drawn[i] = colours[at]
	}
	return strings.Join(drawn, " ")
}

func (g *generator) makeCustomers() {
	for key := 1; key <= g.customers; key++ {
		nation := g.random.IntN(len(nations))
		g.add("customer", key, fmt.Sprintf("Customer#%09d", key), g.address(), nation, g.phone(nation), g.balance(), g.oneOf(segments), g.text(100))
	}
}

// customerWithOrders draws one: every third customer has no orders.
func (g *generator) customerWithOrders() int {
	for {
		if key := g.between(1, g.customers); key%3 != 0 {
			return key
		}
	}
}

func (g *generator) makeOrders() {
	for i := range g.orders {
		key := i/8*32 + i%8 + 1 // a quarter of the keys is used
		day := g.random.IntN(lastDay + 1)
		total, status := g.makeLines(key, day)
		comment := g.text(50)
		if g.random.IntN(50) == 0 {
			comment += " special packages requests"
		}
		g.add("orders", key, g.customerWithOrders(), status, total, g.days[day], g.oneOf(priorities), fmt.Sprintf("Clerk#%09d", g.between(1, max(1, g.orders/1500))), 0, comment)
	}
}

// makeLines makes the lines of an order; its total and its status follow from them.
func (g *generator) makeLines(order, day int) (total cents, status string) {
	lines, open := g.between(1, 7), 0
	for line := range lines {
		part := g.between(1, g.parts)
		quantity, discount, tax := g.between(1, 50), g.between(0, 10), g.between(0, 8)
		price := cents(quantity) * retailPrice(part)
		total += price * cents(100+tax) * cents(100-discount) / 10_000
		shipped := day + g.between(1, 121)
		received := shipped + g.between(1, 30)
		returned, lineStatus := "N", "F"
		if received <= today {
			returned = g.oneOf([]string{"R", "A"})
		}
		if shipped > today {
			lineStatus = "O"
			open++
		}
		g.add("lineitem", order, part, g.supplierOf(part, g.random.IntN(suppliersOfPart)), line+1, quantity, price, cents(discount), cents(tax), returned, lineStatus,
			g.days[shipped], g.days[day+g.between(30, 90)], g.days[received], g.oneOf(instructions), g.oneOf(modes), g.text(44))
	}
	switch open {
	case 0:
		return total, "F"
	case lines:
		return total, "O"
	default:
		return total, "P"
	}
}
