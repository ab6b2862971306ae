package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/topology"
)

// DefaultAddress is where a cluster on this machine answers.
const DefaultAddress = "http://127.0.0.1:8432"

// maxAnswer bounds what is read of an answer: far above the largest map that can be imported.
const maxAnswer = 512 << 20

// Client calls the HTTP API of a cluster. The context of a call limits it; there is no other time limit, because some
// changes take long. The zero value asks a cluster on this machine. Safe for concurrent use, as long as its fields stay.
type Client struct {
	// BaseURL is where the API answers. Default: DefaultAddress.
	BaseURL string
	// Token is sent with every request, if there is one. Default: none.
	Token string
	// HTTP sends the requests. Default: http.DefaultClient.
	HTTP *http.Client
}

// RequestError is the API's own word that it did not do what was asked.
type RequestError struct {
	// Status is the status of HTTP.
	Status int
	// Answer says why.
	Answer Error
}

func (e *RequestError) Error() string {
	if e.Answer.Detail == "" {
		return e.Answer.Message
	}
	return e.Answer.Message + ": " + e.Answer.Detail
}

// UnreachableError says that nothing could be connected to.
type UnreachableError struct {
	BaseURL string
	Cause   error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no cluster answers at %s: %v", e.BaseURL, e.Cause)
}

func (e *UnreachableError) Unwrap() error { return e.Cause }

// Status asks for the state of the cluster.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, "/v1/status")
}

// Routers lists the live processes of the cluster.
func (c *Client) Routers(ctx context.Context) ([]Router, error) {
	list, err := get[RouterList](ctx, c, "/v1/routers")
	return list.Routers, err
}

// MapDocument returns the shard map as it was sent: the text to keep as a backup.
func (c *Client) MapDocument(ctx context.Context) ([]byte, error) {
	return c.call(ctx, http.MethodGet, "/v1/map", nil)
}

// Map returns the shard map.
func (c *Client) Map(ctx context.Context) (*topology.Map, error) {
	document, err := c.MapDocument(ctx)
	if err != nil {
		return nil, err
	}
	return topology.Decode(document)
}

// CreateMap makes the first map of a new cluster.
func (c *Client) CreateMap(ctx context.Context) (MapChanged, error) {
	return send[MapChanged](ctx, c, http.MethodPost, "/v1/map", struct{}{})
}

// ImportMap puts a map in force, or tells what that would change.
func (c *Client) ImportMap(ctx context.Context, request ImportMap) (MapChanged, error) {
	var compact bytes.Buffer // the blanks that people need would count against the limit
	if err := json.Compact(&compact, request.Document); err != nil {
		return MapChanged{}, fmt.Errorf("read the shard map: %w", err)
	}
	parameters := url.Values{}
	if request.DryRun {
		parameters.Set("dry_run", "true")
	}
	if request.Force {
		parameters.Set("force", "true")
	}
	path := "/v1/map"
	if len(parameters) > 0 {
		path += "?" + parameters.Encode()
	}
	var header http.Header
	if request.IfVersion > 0 {
		header = http.Header{"If-Match": {VersionTag(request.IfVersion)}}
	}
	content, err := c.callWith(ctx, header, http.MethodPut, path, compact.Bytes())
	return readAnswer[MapChanged](c, content, err)
}

// VersionTag is the ETag of a version of the map.
func VersionTag(version uint64) string { return `"` + strconv.FormatUint(version, 10) + `"` }

// RebuildMap makes the map anew from what the shards have recorded.
func (c *Client) RebuildMap(ctx context.Context, request RebuildMap) (RebuiltMap, error) {
	return send[RebuiltMap](ctx, c, http.MethodPost, "/v1/map/rebuild", request)
}

// CheckMap holds the map against what the shards have recorded.
func (c *Client) CheckMap(ctx context.Context) ([]Finding, error) {
	list, err := get[FindingList](ctx, c, "/v1/map/check")
	return list.Findings, err
}

// Shards lists the shards and how they are.
func (c *Client) Shards(ctx context.Context) ([]ShardStatus, error) {
	list, err := get[ShardList](ctx, c, "/v1/shards")
	return list.Shards, err
}

// Shard returns one shard and how it is.
func (c *Client) Shard(ctx context.Context, name string) (ShardStatus, error) {
	return get[ShardStatus](ctx, c, "/v1/shards/"+url.PathEscape(name))
}

// AddShard adds a shard.
func (c *Client) AddShard(ctx context.Context, request AddShard) (ShardChanged, error) {
	return send[ShardChanged](ctx, c, http.MethodPost, "/v1/shards", request)
}

// UpdateShard changes some of a shard's properties.
func (c *Client) UpdateShard(ctx context.Context, name string, request UpdateShard) (ShardChanged, error) {
	return send[ShardChanged](ctx, c, http.MethodPatch, "/v1/shards/"+url.PathEscape(name), request)
}

// RemoveShard removes a shard that has nothing.
func (c *Client) RemoveShard(ctx context.Context, name string) (ShardChanged, error) {
	return sendBytes[ShardChanged](ctx, c, http.MethodDelete, "/v1/shards/"+url.PathEscape(name), nil)
}

// Keyspaces lists the keyspaces.
func (c *Client) Keyspaces(ctx context.Context) (KeyspaceList, error) {
	return get[KeyspaceList](ctx, c, "/v1/keyspaces")
}

// Keyspace returns one keyspace, with its ranges or without.
func (c *Client) Keyspace(ctx context.Context, name string, withRanges bool) (Keyspace, error) {
	path := "/v1/keyspaces/" + url.PathEscape(name)
	if withRanges {
		path += "?ranges=true"
	}
	return get[Keyspace](ctx, c, path)
}

// CreateKeyspace makes a keyspace.
func (c *Client) CreateKeyspace(ctx context.Context, request CreateKeyspace) (KeyspaceChanged, error) {
	return send[KeyspaceChanged](ctx, c, http.MethodPost, "/v1/keyspaces", request)
}

// DropKeyspace removes a keyspace that nothing uses.
func (c *Client) DropKeyspace(ctx context.Context, name string) (MapChanged, error) {
	return sendBytes[MapChanged](ctx, c, http.MethodDelete, "/v1/keyspaces/"+url.PathEscape(name), nil)
}

// Tables lists the tables.
func (c *Client) Tables(ctx context.Context) (TableList, error) {
	return get[TableList](ctx, c, "/v1/tables")
}

// DeclareTables makes tables sharded, or reference tables.
func (c *Client) DeclareTables(ctx context.Context, request DeclareTables) (TablesChanged, error) {
	return send[TablesChanged](ctx, c, http.MethodPost, "/v1/tables", request)
}

// UndistributeTables lets tables be on the home shard alone again.
func (c *Client) UndistributeTables(ctx context.Context, request UndistributeTables) (TablesChanged, error) {
	return send[TablesChanged](ctx, c, http.MethodPost, "/v1/tables/undistribute", request)
}

// CheckCopies compares the copies of reference tables, and repairs them.
func (c *Client) CheckCopies(ctx context.Context, request CheckCopies) (CopiesChecked, error) {
	return send[CopiesChecked](ctx, c, http.MethodPost, "/v1/tables/check-copies", request)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return sendBytes[T](ctx, c, http.MethodGet, path, nil)
}

func send[T any](ctx context.Context, c *Client, method, path string, request any) (T, error) {
	body, err := json.Marshal(request)
	if err != nil {
		var none T
		return none, fmt.Errorf("encode the request: %w", err)
	}
	return sendBytes[T](ctx, c, method, path, body)
}

func sendBytes[T any](ctx context.Context, c *Client, method, path string, body []byte) (T, error) {
	content, err := c.call(ctx, method, path, body)
	return readAnswer[T](c, content, err)
}

// readAnswer decodes what a call gave, unless it failed.
func readAnswer[T any](c *Client, content []byte, err error) (T, error) {
	var answer T
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return answer, fmt.Errorf("read the answer of %s: %w", c.baseURL(), err)
	}
	return answer, nil
}

// call sends a request and returns the body of the answer, or the error that it is.
func (c *Client) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	return c.callWith(ctx, nil, method, path, body)
}

// callWith is call with more in the head of the request.
func (c *Client) callWith(ctx context.Context, header http.Header, method, path string, body []byte) ([]byte, error) {
	response, err := c.open(ctx, header, method, path, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return c.content(response)
}

// open sends a request and returns the answer, whose body is to be read and closed, or the error that it is.
func (c *Client) open(ctx context.Context, header http.Header, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.baseURL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.baseURL(), err)
	}
	request.Header.Set("Accept", "application/json")
	maps.Copy(request.Header, header)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.http().Do(request)
	if err != nil {
		return nil, c.explain(err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	content, err := c.content(response)
	if err != nil {
		return nil, err
	}
	return nil, c.refusal(response, content)
}

func (c *Client) content(response *http.Response) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.baseURL(), err)
	}
	return content, nil
}

func (c *Client) baseURL() string {
	if c.BaseURL == "" {
		return DefaultAddress
	}
	return strings.TrimRight(c.BaseURL, "/")
}

func (c *Client) http() *http.Client {
	if c.HTTP == nil {
		return http.DefaultClient
	}
	return c.HTTP
}

// explain tells nobody listening apart from everything else that can go wrong on the way.
func (c *Client) explain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // it repeats method and address
	}
	var operation *net.OpError
	if errors.As(err, &operation) && operation.Op == "dial" {
		return &UnreachableError{BaseURL: c.baseURL(), Cause: err}
	}
	return fmt.Errorf("ask %s: %w", c.baseURL(), err)
}

// refusal reads the API's word, or says that it was not the API that answered.
func (c *Client) refusal(response *http.Response, content []byte) error {
	var body ErrorBody
	if err := json.Unmarshal(content, &body); err != nil || body.Error.Code == "" {
		return fmt.Errorf("what answers at %s is not the API of Cleave: it said %s", c.baseURL(), response.Status)
	}
	return &RequestError{Status: response.StatusCode, Answer: body.Error}
}
