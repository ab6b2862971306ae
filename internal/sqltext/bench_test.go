package sqltext

import (
	"strings"
	"testing"
)

const pgbenchSelect = "select abalance from pgbench_accounts where aid = 12345"

// kilobyte is a statement of about 1 kB as an application writes them.
var kilobyte = strings.TrimSpace(`
SELECT o.id, o.customer_id, o.status, o.created_at, o.total_cents, c.name, c.email,
       COALESCE(sum(i.quantity * i.unit_cents), 0) AS items_cents,
       count(*) FILTER (WHERE i.returned_at IS NOT NULL) AS returned -- what came back
FROM orders AS o
JOIN customers AS c ON c.tenant_id = o.tenant_id AND c.id = o.customer_id
LEFT JOIN order_items AS i ON i.tenant_id = o.tenant_id AND i.order_id = o.id
LEFT JOIN "Shipments" AS s ON s.tenant_id = o.tenant_id AND s.order_id = o.id AND s.carrier <> 'nobody''s'
WHERE o.tenant_id = 8123456789 AND o.status IN ('new', 'paid', 'shipped', 'returned')
  AND o.created_at >= '2026-01-01 00:00:00+00' AND o.created_at < now() - interval '5 minutes'
  AND (o.total_cents > 1000.50 OR c.vip /* always shown */ OR o.note ILIKE '%urgent%')
  AND NOT EXISTS (SELECT 1 FROM blocked AS b WHERE b.tenant_id = o.tenant_id AND b.customer_id = c.id)
GROUP BY o.id, o.customer_id, o.status, o.created_at, o.total_cents, c.name, c.email
HAVING count(*) < 500
ORDER BY o.created_at DESC, o.id DESC
LIMIT 50 OFFSET 100
`)

func BenchmarkScan(b *testing.B) {
	for name, text := range map[string]string{"pgbench": pgbenchSelect, "kilobyte": kilobyte} {
		b.Run("statement="+name, func(b *testing.B) {
			raw := []byte(text)
			var n Normalized
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := n.Scan(raw, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFingerprint(b *testing.B) {
	var n Normalized
	if err := n.Scan([]byte(pgbenchSelect), true); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		Fingerprint(n.Text)
	}
}
