package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// MoveRange is a part of a keyspace's order: in one by hash 16 hexadecimal digits, in one by range the key's values. Nothing is the beginning or the end.
type MoveRange struct {
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
}

// StartMove asks for rows to be moved to a shard: ranges, keys, tables that are on one shard alone, or all that a shard owns.
type StartMove struct {
	Keyspace string `json:"keyspace,omitempty"`
	To       string `json:"to"`
	// From is the shard that owns it. With neither ranges nor keys, all that it owns moves.
	From   string      `json:"from,omitempty"`
	Ranges []MoveRange `json:"ranges,omitempty"`
	// Keys are moved one by one, and pinned.
	Keys [][]string `json:"keys,omitempty"`
	// Tables are on one shard alone, and move as a whole, together.
	Tables []string `json:"tables,omitempty"`
	// Streams is how many copies run at once, KeepSeconds how long it can be rolled back after the switch, PauseLimitMS how long statements may be held.
	Streams      int     `json:"streams,omitempty"`
	KeepSeconds  float64 `json:"keep_seconds,omitempty"`
	PauseLimitMS int64   `json:"pause_limit_ms,omitempty"`
	// Manual: it does not switch before it is told to.
	Manual bool `json:"manual,omitempty"`
	// MoveLimits say what slows it down. What is left out is the usual.
	MoveLimits
	SkipVerify bool   `json:"skip_verify,omitempty"`
	Why        string `json:"why,omitempty"`
	// DryRun: it is only said what would move.
	DryRun bool `json:"dry_run,omitempty"`
}

// MoveLimits say what slows a move down.
type MoveLimits struct {
	// Throttle: it gives way to standbys, slots and load. If it is false, MaxRate alone counts.
	Throttle *bool `json:"throttle,omitempty"`
	// MaxRate is how many bytes are copied in a second at most; 0: as many as go.
	MaxRate *int64 `json:"max_rate,omitempty"`
	// MaxLagSeconds is how far standbys of both shards may be behind before nothing is copied or deleted; 0: as far as they like.
	MaxLagSeconds *float64 `json:"max_lag_seconds,omitempty"`
	// MaxLoad is how many times longer than at best a small statement may take on a shard that others use; 0: as long as it likes.
	MaxLoad *float64 `json:"max_load,omitempty"`
	// MaxWAL is how many bytes of WAL a shard may have to keep for a slot.
	MaxWAL *int64 `json:"max_wal,omitempty"`
}

// Move is a move of rows from one shard to another.
type Move struct {
	ID       string      `json:"id"`
	Keyspace string      `json:"keyspace"`
	From     string      `json:"from"`
	To       string      `json:"to"`
	Ranges   []MoveRange `json:"ranges"`
	Keys     [][]string  `json:"keys"`
	// Whole are tables that move as a whole; then there is no keyspace.
	Whole []string `json:"whole"`
	// Phase is asked, checking, preparing, announcing, copying, catching up, verifying, ready, switching, switched, cleaning, cancelling, rolling back, done, cancelled or rolled back.
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`
	Asked time.Time `json:"asked"`
	Ended time.Time `json:"ended,omitzero"`
	// Paused: it waits for somebody to resume it. Stopped is why it does not go on by itself, Waiting what it waits for, Error what failed last.
	Paused  bool   `json:"paused,omitempty"`
	Stopped string `json:"stopped,omitempty"`
	Waiting string `json:"waiting,omitempty"`
	Error   string `json:"error,omitempty"`
	// Rows and Bytes were copied; Share is which part of what has to be read was, from 0 to 1; SecondsLeft is how long the copy will take at that pace, 0 if that cannot be told.
	Rows        int64   `json:"rows"`
	Bytes       int64   `json:"bytes"`
	Share       float64 `json:"share"`
	SecondsLeft float64 `json:"seconds_left"`
	// LagBytes is how far the target is behind.
	LagBytes int64       `json:"lag_bytes"`
	Verified string      `json:"verified,omitempty"`
	Cleaned  int64       `json:"cleaned"`
	Tables   []MoveTable `json:"tables"`
	// Switches are the attempts to switch.
	Switches []MoveSwitch `json:"switches"`
	// CanRollBack: it was switched, and changes are carried back.
	CanRollBack bool `json:"can_roll_back,omitempty"`
	// Limits say what slows it down.
	Limits MoveLimits `json:"limits"`
	Why    string     `json:"why,omitempty"`
}

// What says what moves.
func (m Move) What() string {
	if len(m.Whole) > 0 {
		return m.Parts()
	}
	return m.Parts() + " of keyspace " + m.Keyspace
}

// Parts says the same without the keyspace.
func (m Move) Parts() string {
	if len(m.Whole) == 1 {
		return "table " + m.Whole[0]
	}
	var parts []string
	for _, some := range []struct {
		count int
		thing string
	}{{len(m.Whole), "table"}, {len(m.Ranges), "range"}, {len(m.Keys), "key"}} {
		switch some.count {
		case 0:
		case 1:
			parts = append(parts, "1 "+some.thing)
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", some.count, some.thing))
		}
	}
	return strings.Join(parts, " and ")
}

// MoveTable is how far a table is.
type MoveTable struct {
	Name  string  `json:"name"`
	Rows  int64   `json:"rows"`
	Bytes int64   `json:"bytes"`
	Share float64 `json:"share"`
}

// MoveSwitch is an attempt to switch: how long statements were held for it, in milliseconds, and why it was taken back, if it was.
type MoveSwitch struct {
	At     time.Time  `json:"at"`
	HeldMS float64    `json:"held_ms"`
	Failed string     `json:"failed,omitempty"`
	Steps  []MoveStep `json:"steps"`
}

// MoveStep is one step of a switch.
type MoveStep struct {
	Name   string  `json:"name"`
	TookMS float64 `json:"took_ms"`
}

// MoveList is some moves.
type MoveList struct {
	Moves []Move `json:"moves"`
	// Warnings are what somebody who asked for moves should know.
	Warnings []string `json:"warnings,omitempty"`
}

// WishMove says what is to become of a move: pause, resume, cancel, switch, roll back or finish.
type WishMove struct {
	Wish string `json:"wish"`
}

// ParsePoint reads a key, or where a range begins, as people write it: one value as it is, those of several columns as a JSON list. An empty text is no point.
func ParsePoint(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.HasPrefix(text, "[") {
		return []string{text}, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var values []any
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("%q is not a JSON list: %w", text, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%q goes on behind the JSON list", text)
	}
	point := make([]string, len(values))
	for i, value := range values {
		point[i] = fmt.Sprint(value)
	}
	return point, nil
}

// Moves lists all moves, the newest first.
func (c *Client) Moves(ctx context.Context) (MoveList, error) {
	return get[MoveList](ctx, c, "/v1/moves")
}

// Move reads one move.
func (c *Client) Move(ctx context.Context, id string) (Move, error) {
	return get[Move](ctx, c, "/v1/moves/"+url.PathEscape(id))
}

// StartMoves asks for moves.
func (c *Client) StartMoves(ctx context.Context, request StartMove) (MoveList, error) {
	return send[MoveList](ctx, c, http.MethodPost, "/v1/moves", request)
}

// WishMove says what is to become of a move.
func (c *Client) WishMove(ctx context.Context, id, wish string) (Move, error) {
	return send[Move](ctx, c, http.MethodPost, "/v1/moves/"+url.PathEscape(id)+"/wish", WishMove{Wish: wish})
}

// ThrottleMove changes what slows a move down. What is left out stays as it is.
func (c *Client) ThrottleMove(ctx context.Context, id string, limits MoveLimits) (Move, error) {
	return send[Move](ctx, c, http.MethodPost, "/v1/moves/"+url.PathEscape(id)+"/throttle", limits)
}

// SplitRanges divides ranges of a keyspace, at points, around a key, or in the middle. No row moves.
type SplitRanges struct {
	// At are points: in a keyspace by hash 16 hexadecimal digits, in one by range the key's values.
	At [][]string `json:"at,omitempty"`
	// Key is one that gets a range of its own, in a keyspace by hash with all that have the same hash.
	Key []string `json:"key,omitempty"`
	// Middle divides the range in which Of lies in two equal parts: of the hashes, or of the rows in a keyspace by range.
	Middle bool     `json:"middle,omitempty"`
	Of     []string `json:"of,omitempty"`
	// BySize divides every range that has more bytes than that, into parts that have fewer.
	BySize int64 `json:"by_size,omitempty"`
}

// MergeRanges puts ranges together that follow each other and are the same shard's, between two points.
type MergeRanges struct {
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
}

// SplitRanges divides ranges.
func (c *Client) SplitRanges(ctx context.Context, keyspace string, request SplitRanges) (KeyspaceChanged, error) {
	return send[KeyspaceChanged](ctx, c, http.MethodPost, "/v1/keyspaces/"+url.PathEscape(keyspace)+"/split", request)
}

// MergeRanges puts ranges together.
func (c *Client) MergeRanges(ctx context.Context, keyspace string, request MergeRanges) (KeyspaceChanged, error) {
	return send[KeyspaceChanged](ctx, c, http.MethodPost, "/v1/keyspaces/"+url.PathEscape(keyspace)+"/merge", request)
}
