package store

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// grant takes a lease. One that was granted and whose answer was lost expires by itself.
func (s *Store) grant(ctx context.Context) (clientv3.LeaseID, error) {
	var lease clientv3.LeaseID
	err := s.request(ctx, "take lease", func(ctx context.Context, client *clientv3.Client) error {
		response, err := client.Grant(ctx, int64(s.config.LeaseTTL/time.Second))
		if err == nil {
			lease = response.ID
		}
		return err
	})
	return lease, err
}

// revoke gives a lease up, and with it all that was written under it. A lease that is gone is no error.
func (s *Store) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	err := s.request(ctx, "give lease up", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Revoke(ctx, lease)
		return err
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// keepLease renews the lease until the context ends. The channel has a message for every renewal, and is closed when the lease
// is lost: etcd said so, or did not say otherwise for as long as the lease lasts.
func (s *Store) keepLease(ctx context.Context, lease clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return client.KeepAlive(ctx, lease)
}
