package adopt

import (
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/topology"
)

// rails is what a Rails application makes: a bigserial in every table, foreign keys of one column, and lists to look things up in.
const rails = `
	schema_migrations 20: version text pk
	countries 200: id bigserial pk, code text unique, name text
	accounts 5000: id bigserial pk, name text, country_id bigint -> countries.id, owner_id bigint null -> users.id, plan text, created_at timestamptz
	users 20000: id bigserial pk, account_id bigint -> accounts.id, email text unique, created_at timestamptz
	posts 100000: id bigserial pk, account_id bigint -> accounts.id, user_id bigint -> users.id, title text
	comments 900000: id bigserial pk, post_id bigint -> posts.id, user_id bigint null -> users.id, parent_id bigint null -> comments.id, body text
	tags 300: id bigserial pk, name text unique
	taggings 200000: id bigserial pk, tag_id bigint -> tags.id, post_id bigint -> posts.id
	jobs 10: id bigserial pk, handler text
`

func TestRails(t *testing.T) {
	c := databaseOf(t, rails)
	p := propose(t, c, Options{})
	expect(t, "kinds", p.kinds(), `
		accounts sharded by id
		comments sharded by account_id from posts by post_id
		countries reference
		jobs single
		posts sharded by account_id
		schema_migrations single
		taggings sharded by account_id from posts by post_id
		tags reference
		users sharded by account_id`)
	if p.Keyspace != "accounts" || p.Shard != "shard1" || p.KeyType != "bigint" || p.Root != "public.accounts" {
		t.Errorf("the plan is for %s, %s, %s, %s", p.Keyspace, p.Shard, p.KeyType, p.Root)
	}
	expect(t, "obstacles", Assess(c, p, nil).codes(), `
		accounts foreign_key
		comments foreign_key
		comments foreign_key
		comments foreign_key
		comments no_key
		comments unique
		posts foreign_key
		posts unique
		taggings foreign_key
		taggings no_key
		taggings unique
		users unique`)
	mended(t, c, p)
	expect(t, "obstacles of the mended database", Assess(c, p, nil).codes(), "")
	again := propose(t, c, Options{})
	expect(t, "kinds as proposed for the mended database", again.kinds(), p.kinds())
	if left := Assess(c, again, nil); len(left.Obstacles) > 0 {
		t.Errorf("that has obstacles: %s", left.codes())
	}
}

// django is what Django makes: tables of its own for users, groups and rights, with tables between them, and an application's.
const django = `
	django_migrations 60: id bigserial pk, app text, name text
	django_session 4000: session_key text pk, session_data text, expire_date timestamptz
	django_content_type 40: id serial pk, app_label text unique, model text unique
	auth_permission 160: id serial pk, name text, content_type_id integer -> django_content_type.id, codename text
	auth_group 6: id serial pk, name text unique
	auth_group_permissions 300: id bigserial pk, group_id integer -> auth_group.id, permission_id integer -> auth_permission.id
	auth_user 30000: id serial pk, password text, username text unique, email text, is_staff text
	auth_user_groups 40000: id bigserial pk, user_id integer -> auth_user.id, group_id integer -> auth_group.id
	auth_user_user_permissions 500: id bigserial pk, user_id integer -> auth_user.id, permission_id integer -> auth_permission.id
	django_admin_log 9000: id serial pk, object_repr text, content_type_id integer null -> django_content_type.id, user_id integer -> auth_user.id
	blog_entry 200000: id bigserial pk, author_id integer -> auth_user.id, body text
	blog_entry_likes 700000: id bigserial pk, entry_id bigint -> blog_entry.id, user_id integer -> auth_user.id
`

func TestDjango(t *testing.T) {
	c := databaseOf(t, django)
	p := propose(t, c, Options{})
	expect(t, "kinds", p.kinds(), `
		auth_group reference
		auth_group_permissions single
		auth_permission reference
		auth_user sharded by id
		auth_user_groups sharded by user_id
		auth_user_user_permissions sharded by user_id
		blog_entry sharded by author_id
		blog_entry_likes sharded by user_id
		django_admin_log sharded by user_id
		django_content_type reference
		django_migrations single
		django_session single`)
	// Who likes an entry is not who wrote it, and looking at rows shows that.
	crossings := map[string]Crossing{crossingID(topology.TableName{Schema: "public", Name: "blog_entry_likes"}, "blog_entry_likes_entry_id_fkey"): {Rows: 1000, Differ: 990}}
	a := Assess(c, p, crossings)
	expect(t, "what no step mends", (&Assessment{Obstacles: a.Undecided()}).codes(), "blog_entry_likes foreign_key_crosses !")
	if err := p.DropForeignKey(c.named("blog_entry_likes").ID(), "blog_entry_likes_entry_id_fkey"); err != nil {
		t.Fatal(err)
	}
	if a := Assess(c, p, crossings); len(a.Undecided()) > 0 {
		t.Errorf("with that foreign key given up there is still: %s", a.codes())
	}
	mended(t, c, p)
	expect(t, "obstacles of the mended database", Assess(c, p, nil).codes(), "")
}

// shop has customers with addresses, orders with lines, and products in categories.
const shop = `
	categories 50: id bigserial pk, name text
	products 40000: id bigserial pk, category_id bigint -> categories.id, sku text unique, name text, price text, description text
	addresses 60000: id bigserial pk, street text, city text, zip text, country text
	customers 50000: id bigserial pk, address_id bigint null -> addresses.id, email text unique, name text, since timestamptz
	orders 400000: id bigserial pk, customer_id bigint -> customers.id, number text unique, placed timestamptz
	order_lines 1500000: id bigserial pk, order_id bigint -> orders.id, product_id bigint -> products.id, quantity integer
	reviews 30000: id bigserial pk, product_id bigint -> products.id, customer_id bigint -> customers.id, body text
`

func TestShop(t *testing.T) {
	c := databaseOf(t, shop)
	p := propose(t, c, Options{Shard: "one", Keyspace: "shop", IDs: countedIDs})
	expect(t, "kinds", p.kinds(), `
		addresses reference
		categories reference
		customers sharded by id
		order_lines sharded by customer_id from orders by order_id
		orders sharded by customer_id
		products reference
		reviews sharded by customer_id`)
	if p.Shard != "one" || p.Keyspace != "shop" || p.IDs != countedIDs {
		t.Errorf("the plan has %s, %s, %s", p.Shard, p.Keyspace, p.IDs)
	}
	// The number of an order may come twice once the key is in it, an id that is drawn may not.
	orders := p.table(c.named("orders").ID())
	if orders.Unique["orders_number_key"] != PerShard || orders.Unique["orders_pkey"] != WithKey || !p.UniquePerShard() {
		t.Errorf("constraints of orders: %v", orders.Unique)
	}
	mended(t, c, p)
	expect(t, "obstacles of the mended database", Assess(c, p, nil).codes(), "")
}

// TestWithoutForeignKeys: names of columns tell as much as applications let them.
func TestWithoutForeignKeys(t *testing.T) {
	c := databaseOf(t, `
		companies 100: id bigserial pk, name text
		people 5000: id bigserial pk, company_id bigint null
		notes 90000: id bigserial pk, person_id bigint null, text text
		misc 10: id bigserial pk, other_id bigint`)
	p := propose(t, c, Options{})
	expect(t, "kinds", p.kinds(), `
		companies sharded by id
		misc single
		notes sharded by company_id from people by person_id
		people sharded by company_id`)
	if reason := p.table(c.named("people").ID()).Reason; !strings.Contains(reason, "no foreign key") {
		t.Errorf("the reason is %q", reason)
	}
	mended(t, c, p)
	expect(t, "kinds as proposed for the mended database", propose(t, c, Options{}).kinds(), p.kinds())
}

func TestAKeyThatIsChosen(t *testing.T) {
	choose := func(table, column string) KeyChoice {
		return KeyChoice{Table: topology.TableName{Schema: "public", Name: table}, Column: column}
	}
	c := databaseOf(t, rails)
	p := propose(t, c, Options{Keys: []KeyChoice{choose("users", "id")}})
	if p.Root != "public.users" || p.Keyspace != "users" || p.kind(c.named("posts").ID()) != topology.Sharded || p.table(c.named("posts").ID()).Key != "user_id" {
		t.Errorf("with users at the root: %s", p.kinds())
	}
	// The account is no part of its owner, who need not be there; it is a part of nothing then.
	p = propose(t, c, Options{Keys: []KeyChoice{choose("posts", "account_id")}})
	if p.Root != "public.accounts" || p.table(c.named("posts").ID()).Reason != "as was asked" {
		t.Errorf("with the key of one table: %s", p.kinds())
	}
	for _, wrong := range []struct {
		keys []KeyChoice
		want string
	}{
		{[]KeyChoice{choose("nothing", "id")}, "there is no table public.nothing"},
		{[]KeyChoice{choose("posts", "nothing")}, "has no column nothing"},
		{[]KeyChoice{choose("posts", "id"), choose("users", "id")}, "both named as the root"},
		{[]KeyChoice{choose("users", "id"), choose("tags", "name")}, "keys of one type"},
	} {
		if _, _, err := Propose(c, Options{Keys: wrong.keys}); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%v: %v, wanted %q", wrong.keys, err, wrong.want)
		}
	}
	if _, _, err := Propose(databaseOf(t, "a 1: id json pk"), Options{Keys: []KeyChoice{choose("a", "id")}}); err == nil || !strings.Contains(err.Error(), "cannot be a shard key") {
		t.Errorf("a key of a type that cannot be one: %v", err)
	}
}

// TestWaysToTheKey: a column that some rows lack leads nowhere, one that may lack is worse than a longer way, and a name that is taken is not taken again.
func TestWaysToTheKey(t *testing.T) {
	c := databaseOf(t, `
		users 1000: id bigserial pk, name text, email text, since timestamptz, more text
		threads 5000: id bigserial pk, user_id bigint -> users.id
		replies 90000: id bigserial pk, thread_id bigint -> threads.id, user_id bigint null -> users.id
		audits 400: id bigserial pk, user_id bigint nulls -> users.id`)
	p := propose(t, c, Options{})
	expect(t, "kinds", p.kinds(), `
		audits single
		replies sharded by shard_key from threads by thread_id
		threads sharded by user_id
		users sharded by id`)
	a := Assess(c, p, nil)
	expect(t, "what no step mends", (&Assessment{Obstacles: a.Undecided()}).codes(), `
		audits foreign_key !
		replies foreign_key !`)
	if reason := p.table(c.named("audits").ID()).Reason; !strings.Contains(reason, "some rows have none") {
		t.Errorf("the reason is %q", reason)
	}
}

// TestLargeTablesAreNotCopied without being asked.
func TestLargeTablesAreNotCopied(t *testing.T) {
	c := databaseOf(t, `
		customers 1000000: id bigserial pk, name text, a text, b text, c text
		products 90000000: id bigserial pk, sku text
		orders 9000000: id bigserial pk, customer_id bigint -> customers.id, product_id bigint -> products.id`)
	p := propose(t, c, Options{Keys: []KeyChoice{{Table: c.named("customers").ID(), Column: "id"}}})
	if p.kind(c.named("products").ID()) != topology.Single {
		t.Error("it becomes a reference table")
	}
	if undecided := Assess(c, p, nil).Undecided(); len(undecided) != 1 || !strings.Contains(undecided[0].Hint, "a reference table in the plan") {
		t.Errorf("what is to be decided: %+v", undecided)
	}
	p.table(c.named("products").ID()).Kind = topology.Reference
	if undecided := Assess(c, p, nil).Undecided(); len(undecided) > 0 {
		t.Errorf("as a reference table it is in the way: %+v", undecided)
	}
}

func TestADatabaseWithoutARoot(t *testing.T) {
	p := propose(t, databaseOf(t, "a 10: id bigserial pk\nb 10: id bigserial pk"), Options{})
	if len(p.Sharded())+len(p.References()) > 0 || p.Keyspace != "adopted" {
		t.Errorf("the plan is %s in %s", p.kinds(), p.Keyspace)
	}
}
