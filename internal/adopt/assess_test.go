package adopt

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// TestTheStatements of a table that lacks the key, in the order in which they are run.
func TestTheStatements(t *testing.T) {
	c := databaseOf(t, `
		accounts 100: id bigserial pk, name text, a text, b text, c text
		posts 1000: id bigserial pk, account_id bigint null -> accounts.id
		comments 9000: id bigserial pk, post_id bigint -> posts.id, parent_id bigint null -> comments.id`)
	comments := c.named("comments")
	comments.ForeignKeys[0].OnDelete, comments.ForeignKeys[0].Deferrable, comments.ForeignKeys[0].Deferred = "c", true, true
	comments.ForeignKeys[1].OnDelete = "n"
	var titles, brief, online []string
	for _, step := range Assess(c, propose(t, c, Options{}), nil).Steps {
		titles = append(titles, mustName(step.Table).Name+": "+step.Title)
		brief, online = append(brief, step.Brief...), append(online, step.Online...)
	}
	expect(t, "the order", strings.Join(titles, "\n"), `
		comments: add the column account_id, empty
		comments: let a trigger fill in account_id for applications that do not know it
		posts: see that no row is without account_id, and let none come
		comments: fill in account_id in batches, about 9000 rows
		posts: see that every row has its account_id
		comments: see that every row has its account_id
		posts: make account_id NOT NULL, which the check has proven
		comments: make account_id NOT NULL, which the check has proven
		comments: make a unique index like comments_pkey with account_id, without keeping anybody from the table
		posts: make a unique index like posts_pkey with account_id, without keeping anybody from the table
		comments: add a foreign key like comments_post_id_fkey with account_id, for new rows
		comments: add a foreign key like comments_parent_id_fkey with account_id, for new rows
		comments: see that it holds for all rows
		comments: see that it holds for all rows
		comments: let it take the place of comments_post_id_fkey
		comments: let it take the place of comments_parent_id_fkey
		comments: let that index take the place of comments_pkey
		posts: let that index take the place of posts_pkey`)
	all := strings.Join(append(brief, online...), "\n")
	for _, want := range []string{
		`ALTER TABLE public.comments ADD COLUMN "account_id" bigint`,
		`SELECT p."account_id" INTO NEW."account_id" FROM public.posts p WHERE p."id" = NEW."post_id"`,
		`CREATE TRIGGER fill_shard_key BEFORE INSERT OR UPDATE ON public.comments FOR EACH ROW EXECUTE FUNCTION cleave_adopt."public.comments"()`,
		`ALTER TABLE public.posts ADD CONSTRAINT "posts_account_id_cleave_not_null" CHECK ("account_id" IS NOT NULL) NOT VALID`,
		`CREATE UNIQUE INDEX CONCURRENTLY "comments_pkey_cleave" ON public.comments USING btree (id, "account_id")`,
		`FOREIGN KEY ("account_id", "post_id") REFERENCES public.posts ("account_id", "id") ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED NOT VALID`,
		`FOREIGN KEY ("account_id", "parent_id") REFERENCES public.comments ("account_id", "id") ON UPDATE CASCADE ON DELETE SET NULL ("parent_id") NOT VALID`,
		`ALTER TABLE public.posts DROP CONSTRAINT "posts_pkey", ADD CONSTRAINT "posts_pkey" PRIMARY KEY USING INDEX "posts_pkey_cleave"`,
		`UPDATE public.comments t SET "account_id" = p."account_id" FROM public.posts p WHERE t."account_id" IS NULL AND p."id" = t."post_id" AND (t."id") >= (low_1) AND (t."id") < (high_1)`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no statement has %s", want)
		}
	}
	for _, statement := range brief {
		for _, long := range []string{"VALIDATE", "CREATE UNIQUE INDEX", "UPDATE public", " TYPE "} {
			if strings.Contains(statement, long) {
				t.Errorf("everybody would wait for: %s", statement)
			}
		}
	}
}

// TestWhatWasInterrupted goes on: an index that is not valid is made anew, a constraint that is not validated is validated.
func TestWhatWasInterrupted(t *testing.T) {
	c := databaseOf(t, `
		accounts 100: id bigserial pk, name text, a text, b text, c text
		posts 1000: id bigserial pk, account_id bigint -> accounts.id, tag text unique
		comments 9000: id bigserial pk, account_id bigint, post_id bigint -> posts.id`)
	p := propose(t, c, Options{Keys: []KeyChoice{{c.named("accounts").ID(), "id"}}})
	posts, comments := c.named("posts"), c.named("comments")
	posts.addUnique("posts_pkey_cleave", "", "id")
	posts.Uniques[len(posts.Uniques)-1].Valid = false
	half := comments.ForeignKeys[0]
	half.Name, half.Valid = replacement(half.Name), false
	half.Columns, half.TargetColumns = []string{"account_id", "post_id"}, []string{"account_id", "id"}
	comments.ForeignKeys = append(comments.ForeignKeys, half)
	a := Assess(c, p, nil)
	var text strings.Builder
	for _, step := range a.Steps {
		text.WriteString(step.SQL())
	}
	for _, want := range []string{`DROP INDEX CONCURRENTLY "public"."posts_pkey_cleave"`, `VALIDATE CONSTRAINT "comments_post_id_fkey_cleave"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no statement has %s in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "ADD CONSTRAINT \"comments_post_id_fkey_cleave\"") {
		t.Error("the foreign key is added again")
	}
}

// TestAnIndexLikeAnother: whatever it is made of comes along, and the key comes last.
func TestAnIndexLikeAnother(t *testing.T) {
	for definition, want := range map[string]string{
		`CREATE UNIQUE INDEX i ON public.t USING btree (a, b)`:                                                `ON public.t USING btree (a, b, "k")`,
		`CREATE UNIQUE INDEX i ON public.t USING btree (lower((a)::text)) WHERE (b > 0)`:                      `ON public.t USING btree (lower((a)::text), "k") WHERE (b > 0)`,
		`CREATE UNIQUE INDEX i ON public.t USING btree (a) INCLUDE (c) NULLS NOT DISTINCT`:                    `ON public.t USING btree (a, "k") INCLUDE (c) NULLS NOT DISTINCT`,
		`CREATE UNIQUE INDEX i ON public."t (odd" USING btree (((a || ')'::text)), b) WITH (fillfactor='70')`: `ON public."t (odd" USING btree (((a || ')'::text)), b, "k") WITH (fillfactor='70')`,
	} {
		if got := withKey(Unique{Index: "i", Definition: definition}, "n", "k"); got != `CREATE UNIQUE INDEX CONCURRENTLY "n" `+want {
			t.Errorf("%s becomes\n%s", definition, got)
		}
	}
}

// TestUniqueConstraints get the key where that loses nothing.
func TestUniqueConstraints(t *testing.T) {
	c := databaseOf(t, `
		users 100: id bigserial pk, name text, a text, b text, c text
		lists 1000: id uuid pk, user_id bigint -> users.id unique, slug text unique
		items 9000: id bigserial pk, list_id uuid -> lists.id, code text unique`)
	c.named("items").addUnique("items_place", "u", "list_id")
	c.named("items").addUnique("items_place", "u", "code")
	p := propose(t, c, Options{})
	lists, items := p.table(c.named("lists").ID()), p.table(c.named("items").ID())
	for name, got := range map[string][2]Handling{
		"drawn as a UUID":            {lists.Unique["lists_pkey"], WithKey},
		"an address of its own":      {lists.Unique["lists_slug_key"], PerShard},
		"with a row that tells":      {items.Unique["items_place"], WithKey},
		"drawn from a sequence":      {items.Unique["items_pkey"], WithKey},
		"given by somebody":          {items.Unique["items_code_key"], PerShard},
		"with the key itself in it":  {lists.Unique["lists_user_id_key"], ""},
		"of a table that is no part": {p.table(c.named("users").ID()).Unique["users_pkey"], ""},
	} {
		if got[0] != got[1] {
			t.Errorf("what is %s: %q, wanted %q", name, got[0], got[1])
		}
	}
	a := Assess(c, p, nil)
	warned := 0
	for _, w := range a.Warnings {
		if w.Code == "unique_per_shard" {
			warned++
		}
	}
	if warned != 2 {
		t.Errorf("%d constraints are told to hold on each shard alone", warned)
	}
	lists.Unique["lists_slug_key"], items.Unique["items_code_key"] = WithKey, WithKey
	mended(t, c, p)
	if p.UniquePerShard() || len(Assess(c, p, nil).Warnings) > 1 {
		t.Errorf("after all of them got the key: %+v", Assess(c, p, nil).Warnings)
	}
}

// TestTwoWaysToTheRoot: of two references to the root one is the key, and the other cannot be checked any more.
func TestTwoWaysToTheRoot(t *testing.T) {
	c := databaseOf(t, `
		users 100: id bigserial pk, name text, a text, b text, c text
		messages 1000: id bigserial pk, sender_id bigint -> users.id, receiver_id bigint -> users.id`)
	p := propose(t, c, Options{})
	if key := p.table(c.named("messages").ID()).Key; key != "sender_id" {
		t.Errorf("the key is %s", key)
	}
	undecided := Assess(c, p, nil).Undecided()
	if len(undecided) != 1 || !strings.Contains(undecided[0].Hint, "--drop-foreign-key messages.messages_receiver_id_fkey") {
		t.Fatalf("what is to be decided: %+v", undecided)
	}
	if err := p.DropForeignKey(c.named("messages").ID(), "nothing"); err == nil {
		t.Error("a foreign key that is not there is given up")
	}
	if err := p.DropForeignKey(c.named("messages").ID(), "messages_receiver_id_fkey"); err != nil {
		t.Fatal(err)
	}
	mended(t, c, p)
	if len(c.named("messages").ForeignKeys) != 1 {
		t.Errorf("left are %+v", c.named("messages").ForeignKeys)
	}
}

// TestTablesThatAreLeft: who leaves a table that is blocked leaves those that cannot be declared without it.
func TestTablesThatAreLeft(t *testing.T) {
	c := databaseOf(t, `
		users 100: id bigserial pk, name text, a text, b text, c text
		posts 1000: id bigserial pk, user_id bigint -> users.id
		visits 5000: id smallserial pk, user_id bigint
		tags 10: id bigserial pk, name text
		taggings 9000: id bigserial pk, post_id bigint -> posts.id, tag_id bigint -> tags.id`)
	p := &Proposal{Catalogue: c, Plan: propose(t, c, Options{})}
	p.Assessment = Assess(c, p.Plan, nil)
	mended(t, c, p.Plan)
	p.Assessment = Assess(c, p.Plan, nil)
	expect(t, "obstacles", p.Assessment.codes(), "visits small_serial !")
	plan, left := p.WithoutBlocked()
	expect(t, "left", strings.Join(left, "\n"), "public.visits")
	if len(Assess(c, plan, nil).Obstacles) > 0 || len(plan.Sharded()) != 3 {
		t.Errorf("the rest is %s", plan.kinds())
	}
	// A foreign key of the table that is left ties the root to it.
	c.named("visits").ForeignKeys = append(c.named("visits").ForeignKeys, ForeignKey{Name: "f", Columns: []string{"user_id"}, TargetSchema: "public", TargetTable: "users", TargetColumns: []string{"id"}, Valid: true})
	p.Assessment = Assess(c, p.Plan, nil)
	plan, _ = p.WithoutBlocked()
	if len(plan.Sharded()) > 0 || len(Assess(c, plan, nil).Obstacles) > 0 {
		t.Errorf("what is left is %s: %s", plan.kinds(), Assess(c, plan, nil).codes())
	}
	if len(p.Plan.Sharded()) != 4 {
		t.Error("the plan itself was changed")
	}
}

// TestTablesWhoseRowsCouldNotBeMoved are given a primary key of what tells their rows apart, or of what a person names.
func TestTablesWhoseRowsCouldNotBeMoved(t *testing.T) {
	c := databaseOf(t, `
		users 100: id bigserial pk, name text, a text, b text, c text
		posts 1000: id bigserial pk, user_id bigint -> users.id
		taggings 9000: post_id bigint -> posts.id, tag text null
		stars 400: user_id bigint -> users.id, place bigint
		notes 50: user_id bigint -> users.id, text text
		turns 10: id bigint pk, user_id bigint -> users.id
		logs 10: text text`)
	c.named("taggings").addUnique("by_tag", "", "post_id")
	c.named("taggings").addUnique("by_tag", "", "tag")
	c.named("stars").addUnique("stars_once", "u", "user_id")
	c.named("stars").addUnique("stars_once", "u", "place")
	c.named("turns").Uniques[0].Deferrable = true
	for _, name := range []string{"taggings", "stars", "notes", "logs"} {
		c.hinder(name, shard.NoPrimaryKey)
	}
	c.hinder("turns", shard.DeferrablePrimaryKey)
	c.hinder("posts", shard.Unlogged)
	p := propose(t, c, Options{})
	a := Assess(c, p, nil)
	expect(t, "obstacles", a.codes(), `
		notes no_primary_key !
		posts unique
		posts unlogged !
		stars no_primary_key
		taggings foreign_key
		taggings no_key
		taggings no_primary_key
		taggings unique
		turns deferrable_primary_key !`)
	if tied := a.Warnings[0]; tied.Code != "tied" || !strings.Contains(tied.Message, "logs (no primary key)") {
		t.Errorf("of what stays it says %+v", tied)
	}
	for _, o := range a.Undecided() {
		if o.Code != string(shard.Unlogged) && !strings.Contains(o.Hint, "--primary-key "+mustName(o.Table).Name+".") {
			t.Errorf("the hint for %s is %q", o.Table, o.Hint)
		}
	}
	if err := p.SetPrimaryKey(c.named("logs").ID(), []string{"text"}); err == nil {
		t.Error("a table that stays is given a primary key")
	}
	for table, columns := range map[string][]string{"notes": {"row_id"}, "turns": {"id"}} {
		if err := p.SetPrimaryKey(c.named(table).ID(), columns); err != nil {
			t.Fatal(err)
		}
	}
	c.named("posts").Hindrances = nil // it was made a logged one
	mended(t, c, p)
	expect(t, "obstacles of the mended database", Assess(c, p, nil).codes(), "")
	for table, want := range map[string]string{"taggings": "by_tag (post_id, tag, user_id)", "stars": "stars_pkey_cleave (user_id, place)", "notes": "notes_pkey_cleave (row_id, user_id)", "turns": "turns_pkey_cleave (id)"} {
		if u := c.named(table).primaryKey(); u == nil || u.Index+" ("+strings.Join(u.Columns, ", ")+")" != want {
			t.Errorf("the primary key of %s is %+v, wanted %s", table, u, want)
		}
	}
}

// TestPrimaryKeysThatCannotBeMade as they were asked for: a person hears why.
func TestPrimaryKeysThatCannotBeMade(t *testing.T) {
	for name, one := range map[string]struct {
		columns []string
		change  func(*Table)
		want    string
	}{
		"two columns that are not there":  {[]string{"one", "two"}, func(*Table) {}, "does not have all"},
		"partitioned":                     {[]string{"place"}, func(t *Table) { t.Partitioned = true }, "quiet hour"},
		"declared":                        {[]string{"place"}, func(t *Table) { t.Triggers = []string{"cleave_guard"} }, "Through a router"},
		"other columns than a deferrable": {[]string{"place"}, func(t *Table) { t.addUnique("notes_pkey", "p", "text"); t.Uniques[0].Deferrable = true }, "--primary-key notes.text"},
		"a column that is generated":      {[]string{"place"}, func(t *Table) { t.Column("place").Generated = true }, "place is generated"},
		"what is generated is unique":     {nil, func(t *Table) { t.addUnique("places", "u", "place"); t.Column("place").Generated = true }, "Say which columns"},
	} {
		c := databaseOf(t, "users 100: id bigserial pk, name text, a text, b text, c text\nnotes 50: user_id bigint -> users.id, place bigint, text text")
		c.hinder("notes", shard.NoPrimaryKey)
		one.change(c.named("notes"))
		p := propose(t, c, Options{})
		if len(one.columns) > 0 {
			if err := p.SetPrimaryKey(c.named("notes").ID(), one.columns); err != nil {
				t.Fatal(err)
			}
		}
		undecided := Assess(c, p, nil).Undecided()
		if len(undecided) != 1 || !strings.Contains(undecided[0].Hint, one.want) {
			t.Errorf("%s: %+v", name, undecided)
		}
	}
}

func TestWhatOnlyAPersonCanMend(t *testing.T) {
	c := databaseOf(t, `
		users 100: id bigserial pk, name text, a text, b text, c text
		posts 1000: id bigserial pk, user_id integer -> users.id
		countries 20: id serial pk, code text unique
		homes 200: id bigserial pk, user_id bigint -> users.id, country_id integer -> countries.id`)
	touch := Function{Identity: "public.touch()", Source: "BEGIN NEW.updated_at := now(); RETURN NEW; END", Trigger: true}
	audit := Function{Identity: "public.audit()", Source: "BEGIN INSERT INTO audits VALUES (NEW.id); RETURN NEW; END", Trigger: true}
	c.named("homes").Functions, c.named("countries").Functions = []Function{touch, audit}, []Function{touch}
	c.named("homes").Column("id").SequenceOwned = false
	p := propose(t, c, Options{})
	expect(t, "obstacles", Assess(c, p, nil).codes(), `
		countries function !
		homes function
		homes function !
		homes sequence
		homes unique
		posts too_narrow !
		posts unique`)
}

// TestHarmlessFunctions are those whose text has nothing that reads a table.
func TestHarmlessFunctions(t *testing.T) {
	for source, want := range map[string]bool{
		"BEGIN NEW.updated_at := now(); RETURN NEW; END":                                          true,
		"begin if TG_OP = 'UPDATE' then NEW.n := coalesce(NEW.n, 0) + 1; end if; return NEW; end": true,
		"BEGIN -- select nothing\n NEW.t := to_tsvector('english', NEW.body); RETURN NEW; END":    true,
		"BEGIN SELECT x INTO NEW.x FROM t; RETURN NEW; END":                                       false,
		"BEGIN UPDATE posts SET n = n + 1 WHERE id = NEW.post_id; RETURN NEW; END":                false,
		"BEGIN NEW.x := my_function(NEW.y); RETURN NEW; END":                                      false,
		"BEGIN PERFORM pg_notify('x', NEW.id::text); RETURN NEW; END":                             false,
		"BEGIN EXECUTE 'SELECT 1'; RETURN NEW; END":                                               false,
	} {
		if got := (Function{Source: source, Trigger: true}).isHarmless(); got != want {
			t.Errorf("%s: harmless %v", source, got)
		}
	}
}

// TestAPlanIsKept as it is written, and what is wrong with one is said.
func TestAPlanIsKept(t *testing.T) {
	c := databaseOf(t, rails)
	p := propose(t, c, Options{})
	var written bytes.Buffer
	if err := p.Write(&written); err != nil {
		t.Fatal(err)
	}
	text := written.String()
	read, err := ReadPlan(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "kinds", read.kinds(), p.kinds())
	if err := read.For(c); err != nil {
		t.Error(err)
	}
	other := *c
	other.SystemIdentifier = "2"
	if err := read.For(&other); err == nil {
		t.Error("it is taken for another server")
	}
	for change, want := range map[[2]string]string{
		{`"format": 1`, `"format": 2`}:                                 "format is 2",
		{`"kind": "sharded"`, `"kind": "round"`}:                       `kind "round"`,
		{`"key": "account_id",`, ``}:                                   "has no key",
		{`"keyspace": "accounts"`, `"keyspaces": "accounts"`}:          "unknown field",
		{`"with key"`, `"with luck"`}:                                  "with luck",
		{`"table": "public.users"`, `"table": "public.posts"`}:         "twice",
		{`"ids": "keyed"`, `"ids": "dense"`}:                           "dense",
		{`"key_type": "bigint"`, `"key_type": "money"`}:                "key_type",
		{`"shard": "shard1"`, `"shard": ""`}:                           "no shard",
		{`"table": "public.users"`, `"table": "a.b.c.d"`}:              "table name",
		{`"kind": "single"`, `"kind": "single", "key": "a"`}:           "has a key",
		{`"kind": "single"`, `"kind": "single", "primary_key": ["a"]`}: "has a key",
	} {
		_, err := ReadPlan(strings.NewReader(strings.Replace(text, change[0], change[1], 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v, wanted %q", change[1], err, want)
		}
	}
}

func TestNamesThatAreTooLong(t *testing.T) {
	long := strings.Repeat("ä", 31)
	a, b := replacement(long+"a"), replacement(long+"b")
	if len(a) > nameLimit || a == b || !strings.HasSuffix(a, "_cleave") {
		t.Errorf("names become %s and %s", a, b)
	}
}

// TestTheDoor says how to let nobody in but routers.
func TestTheDoor(t *testing.T) {
	d := &Door{Database: "shop", Role: "cleave", Routers: []string{"10.0.0.5", "fd00::1"}, Users: []string{"app"}}
	lines, statements := d.Closing()
	text := strings.Join(append(lines, statements...), "\n")
	for _, want := range []string{"10.0.0.5/32", "fd00::1/128", "reject", `REVOKE CONNECT ON DATABASE "shop" FROM PUBLIC`, `TO "app", "cleave"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// TestTheImaginedMap takes every plan that is proposed.
func TestTheImaginedMap(t *testing.T) {
	for _, text := range []string{rails, django, shop, "a 10: id bigserial pk"} {
		p := propose(t, databaseOf(t, text), Options{})
		m, err := p.imagined()
		if err != nil {
			t.Fatal(err)
		}
		if m.TableCount() != len(p.Sharded())+len(p.References()) || m.ShardCount() != 1 {
			t.Errorf("the map has %d tables", m.TableCount())
		}
		for _, planned := range p.Sharded() {
			if declared := m.Table(planned.Name().Schema, planned.Name().Name); declared.Kind() != topology.Sharded || declared.KeyColumns()[0] != planned.Key {
				t.Errorf("table %s is %v", planned.Table, declared.Spec())
			}
		}
	}
}
