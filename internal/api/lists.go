package api

// ErrorBody is the whole body of an answer that is an error.
type ErrorBody struct {
	Error Error `json:"error"`
}

// Codes of errors.
const (
	CodeInvalid         = "invalid"
	CodeUnauthenticated = "unauthenticated"
	CodeForbidden       = "forbidden"
	CodeNotFound        = "not_found"
	CodeMethod          = "method_not_allowed"
	CodeExists          = "exists"
	CodeInUse           = "in_use"
	CodeConflict        = "conflict"
	CodeNoMap           = "no_map"
	CodeNewerSchema     = "newer_schema"
	CodeTooLarge        = "too_large"
	CodeMediaType       = "unsupported_media_type"
	CodeRefused         = "refused"
	CodeInternal        = "internal"
	CodeUnavailable     = "unavailable"
	CodeTimeout         = "timeout"
)

// Health is the answer of a process that is asked whether it lives or is ready.
type Health struct {
	// Status is ok.
	Status string `json:"status"`
}

// ShardList has all shards, in the order of their numbers.
type ShardList struct {
	Shards []ShardStatus `json:"shards"`
}

// KeyspaceList has all keyspaces of one version of the map, in the order of their names.
type KeyspaceList struct {
	MapVersion uint64     `json:"map_version"`
	Keyspaces  []Keyspace `json:"keyspaces"`
}

// TableList has all tables of one version of the map, in the order of their names.
type TableList struct {
	MapVersion uint64  `json:"map_version"`
	Tables     []Table `json:"tables"`
}

// RouterList has the live processes of the cluster.
type RouterList struct {
	Routers []Router `json:"routers"`
}

// FindingList is what a check has found; nothing if all is in order.
type FindingList struct {
	Findings []Finding `json:"findings"`
}
