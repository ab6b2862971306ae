package api

import "context"

// DiffSchema compares the tables of the shards with the map and with each other.
func (c *Client) DiffSchema(ctx context.Context) ([]Finding, error) {
	list, err := get[FindingList](ctx, c, "/v1/schema/diff")
	return list.Findings, err
}
