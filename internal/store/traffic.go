package store

import (
	"context"
	"encoding/json"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// SetTraffic tells the leader how busy the router's ranges are. It does not wait: the report follows as soon as etcd takes it, and is gone with the router's record. What it means is for
// package traffic to say.
func (r *Registration) SetTraffic(report json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traffic, r.trafficDue = report, true
	poke(r.wake)
}

// writeTraffic writes the report, if it is not stored under this lease yet: after the record, which others wait for and which must not wait for this.
func (r *Registration) writeTraffic(ctx context.Context, lease clientv3.LeaseID) error {
	r.mu.Lock()
	id, report, due := r.router.ID, r.traffic, r.trafficDue
	r.trafficDue = false
	r.mu.Unlock()
	if !due {
		return nil
	}
	err := r.store.request(ctx, "write a report of traffic", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Put(ctx, r.store.keys.traffic+id, string(report), clientv3.WithLease(lease))
		return err
	})
	if err != nil {
		r.mu.Lock()
		r.trafficDue = true // this one, or one that is newer
		r.mu.Unlock()
	}
	return err
}

// Traffic returns the reports of all routers that are thought to be alive and have made one.
func (s *Store) Traffic(ctx context.Context) (reports []json.RawMessage, err error) {
	const reportsPerRead = 20 // each has some 100 kB at most
	err = s.readPages(ctx, "list reports of traffic", s.keys.traffic, 0, reportsPerRead, func(_ string, kv keyValue) error {
		reports = append(reports, kv.Value)
		return nil
	})
	return reports, err
}
