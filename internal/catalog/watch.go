package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// fingerprint stands for everything in a catalogue that matters: two that differ are of two states of it.
type fingerprint string

// fingerprintQuery sums up rows by their xmin, which is a new one whenever a row is written; of pg_class, whose rows are also
// written by TRUNCATE, CLUSTER and others, what matters of them. Objects below 16384 are PostgreSQL's own. Temporary
// relations are left out first, because programs make and drop them all the time.
const fingerprintQuery = `
WITH relation AS (
	SELECT oid, relname, relnamespace, relkind, relhasrules, relrowsecurity, CASE relkind WHEN 'v' THEN concat_ws(' ', relowner, reloptions) END AS viewed FROM pg_class
	WHERE oid >= 16384 AND relpersistence <> 't' AND relkind <> 't'),
passing AS (SELECT oid FROM pg_namespace WHERE nspname LIKE 'pg\_temp\_%' OR nspname LIKE 'pg\_toast\_temp\_%')
SELECT concat_ws(' ',
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, relname, relnamespace, relkind, relhasrules, relrowsecurity, viewed), 0)) FROM relation),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((attrelid, attnum, xmin), 0)) FROM pg_attribute
	 WHERE attnum > 0 AND attrelid IN (SELECT oid FROM relation WHERE relkind NOT IN ('i', 'I', 'S'))),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_proc WHERE oid >= 16384 AND pronamespace NOT IN (SELECT oid FROM passing)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_namespace WHERE oid NOT IN (SELECT oid FROM passing)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_rewrite WHERE oid >= 16384 AND ev_class IN (SELECT oid FROM relation)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_policy WHERE polrelid IN (SELECT oid FROM relation)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((inhrelid, inhparent, xmin), 0)) FROM pg_inherits WHERE inhrelid IN (SELECT oid FROM relation)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM relation)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_attrdef WHERE adrelid IN (SELECT oid FROM relation)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_constraint
	 WHERE oid >= 16384 AND contype IN ('c', 'x') AND connamespace NOT IN (SELECT oid FROM passing)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_operator WHERE oid >= 16384 AND oprnamespace NOT IN (SELECT oid FROM passing)),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_cast WHERE oid >= 16384),
	(SELECT count(*) || ':' || bit_xor(hash_record_extended((oid, xmin), 0)) FROM pg_type
	 WHERE oid >= 16384 AND typtype <> 'c' AND typcategory <> 'A' AND typnamespace NOT IN (SELECT oid FROM passing))),
	clock_timestamp() - statement_timestamp()`

// takeFingerprint also returns how long the server took, without the way there and back.
func takeFingerprint(ctx context.Context, conn *pgx.Conn) (now fingerprint, took time.Duration, err error) {
	var text string
	if err := conn.QueryRow(ctx, fingerprintQuery).Scan(&text, &took); err != nil {
		return "", 0, fmt.Errorf("look whether the catalogue changed: %w", err)
	}
	return fingerprint(text), took, nil
}

// restAfter is how many times as long as a look takes the next one is waited for, so that looking takes little of a server's
// time however large its catalogue is.
const restAfter = 100

// poll looks for changes until the context ends.
func (c *Catalog) poll(ctx context.Context) {
	watcher := watcher{catalog: c, lastUse: time.Now()}
	for {
		watcher.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(c.config.Poll, restAfter*watcher.took)):
		}
	}
}

// watcher is what the polling remembers from one look to the next.
type watcher struct {
	catalog *Catalog
	lastUse time.Time
	took    time.Duration // by the server, for the last look
	failing bool          // the last look failed, which was said
}

// look compares the catalogue with what was seen before, or ends the watch if nobody needs it.
func (w *watcher) look(ctx context.Context) {
	c := w.catalog
	if c.used.Swap(false) {
		w.lastUse = time.Now()
	}
	c.mu.Lock()
	seen := c.seen
	if seen != "" && time.Since(w.lastUse) > c.config.pause {
		c.seen = ""
		c.forget()
		seen = ""
	}
	c.mu.Unlock()
	if seen != "" {
		w.report(ctx, w.compare(ctx, seen))
	}
}

func (w *watcher) compare(ctx context.Context, seen fingerprint) error {
	c := w.catalog
	home := Home(c.config.Map())
	if home == nil {
		return noHome()
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return c.connections.Use(ctx, home, func(conn *pgx.Conn) error {
		now, took, err := takeFingerprint(ctx, conn)
		w.took = took
		if err != nil || now == seen {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.seen == seen { // else it is another shard's by now
			c.seen = now
			c.forget()
		}
		return nil
	})
}

// report says when looking began to fail and when it works again.
func (w *watcher) report(ctx context.Context, err error) {
	logger := w.catalog.config.Logger
	switch {
	case ctx.Err() != nil:
	case err != nil && !w.failing:
		w.failing = true
		logger.Warn("the home shard cannot be asked whether its catalogue changed; what is known of it is kept", "error", err)
	case err == nil && w.failing:
		w.failing = false
		logger.Info("the home shard can be asked again whether its catalogue changed")
	}
}
