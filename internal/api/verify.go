package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Verify asks whether every row is where it belongs, and whether rows that are on several shards are equal.
type Verify struct {
	// Keyspace is the one whose tables are looked at. Default: all, and reference tables.
	Keyspace string `json:"keyspace,omitempty"`
	// Tables are names as in [TableKey]; none: all that are sharded, and reference tables.
	Tables []string `json:"tables,omitempty"`
	// Shards are those on which rows are looked for; none: all.
	Shards []string `json:"shards,omitempty"`
	// Repair brings rows to the shard that owns them, deletes those that it has already, and makes copies of reference tables equal to the home shard's.
	Repair bool `json:"repair,omitempty"`
	// Prefer says which row counts if the owner has another one with the same primary key: the owner's, or the stray. Default: neither is touched.
	Prefer string `json:"prefer,omitempty"`
	// Limit is how many strays, and how many keys of each table that differs between the sides of a move, are listed. All are counted. Default: 100.
	Limit int `json:"limit,omitempty"`
	// MaxRate is how many bytes are read in a second on each shard at most. Default: as many as go, with pauses.
	MaxRate int64 `json:"max_rate,omitempty"`
}

// What [Verify.Prefer] can be.
const (
	PreferOwner = "owner"
	PreferStray = "stray"
)

// Verified is what was found.
type Verified struct {
	// MapVersion is the version of the map by which rows were last judged.
	MapVersion uint64 `json:"map_version"`
	// Tables are those that were looked at, each on each shard.
	Tables []VerifiedTable `json:"tables"`
	// StraysFound counts rows on shards that neither own them nor have a copy for a move, StraysRepaired those of them that are mended.
	StraysFound    int64 `json:"strays_found"`
	StraysRepaired int64 `json:"strays_repaired"`
	// Strays are the first of them.
	Strays []Stray `json:"strays"`
	// Moves are comparisons of both sides of moves that keep a copy up to date, table by table.
	Moves []VerifiedMove `json:"moves"`
	// References is about reference tables.
	References CopiesChecked `json:"references"`
	// Findings are about what could not be looked at.
	Findings []Finding `json:"findings,omitempty"`
}

// VerifiedTable is what was found of a table on a shard.
type VerifiedTable struct {
	Table    string `json:"table"`
	Shard    string `json:"shard"`
	Rows     int64  `json:"rows"`
	Strays   int64  `json:"strays"`
	Repaired int64  `json:"repaired"`
}

// Stray is a row on a shard that it does not belong to.
type Stray struct {
	Table string `json:"table"`
	// Shard is where it is, Owner where it belongs; none: a part of its key is null.
	Shard string `json:"shard"`
	Owner string `json:"owner,omitempty"`
	// Key is its shard key, PrimaryKey its primary key if the table has one.
	Key        []string `json:"key"`
	PrimaryKey []string `json:"primary_key"`
	// AtOwner is what the owner has: absent, equal, differs, or taken, which is another row with that primary key.
	AtOwner string `json:"at_owner,omitempty"`
	// Repaired is what was done: brought to its owner, deleted where it was, or taken in place of the owner's. None: nothing was.
	Repaired string `json:"repaired,omitempty"`
	// Reason says why nothing was done, if something was to be, or why nobody owns it.
	Reason string `json:"reason,omitempty"`
}

// String is the stray for people, in one line.
func (s Stray) String() string {
	text := fmt.Sprintf("%s on shard %s", s.Table, s.Shard)
	if len(s.Key) > 0 {
		text += fmt.Sprintf(", key (%s)", strings.Join(s.Key, ", "))
	}
	if len(s.PrimaryKey) > 0 {
		text += fmt.Sprintf(", primary key (%s)", strings.Join(s.PrimaryKey, ", "))
	}
	switch s.AtOwner {
	case "":
		return text + ": it belongs nowhere: " + s.Reason
	case "absent":
		text += fmt.Sprintf(": it belongs to shard %s, which does not have it", s.Owner)
	case "equal":
		text += fmt.Sprintf(": it belongs to shard %s, which has it too", s.Owner)
	case "differs":
		text += fmt.Sprintf(": it belongs to shard %s, which has it with other values", s.Owner)
	default:
		text += fmt.Sprintf(": it belongs to shard %s, which has another row with its primary key", s.Owner)
	}
	switch s.Repaired {
	case Brought:
		text += "; brought there"
	case Deleted:
		text += "; deleted here"
	case Replaced:
		text += "; put in the place of that"
	}
	if s.Reason != "" {
		text += "; not repaired: " + s.Reason
	}
	return text
}

// What [Stray.Repaired] can be.
const (
	Brought  = "brought"
	Deleted  = "deleted"
	Replaced = "replaced"
)

// VerifiedMove is a comparison of a table on both sides of a move.
type VerifiedMove struct {
	Move  string `json:"move"`
	Table string `json:"table"`
	// Owner has the rows, and Copy those that should be equal to them.
	Owner     string `json:"owner"`
	Copy      string `json:"copy"`
	Rows      int64  `json:"rows"`
	Differing int64  `json:"differing"`
	// Keys are the first of the rows that differ.
	Keys []string `json:"keys"`
}

// Wrong counts what is not as it should be after all: rows, copies, and what could not be looked at.
func (v Verified) Wrong() int64 {
	wrong := v.StraysFound - v.StraysRepaired + int64(len(v.Findings)+len(v.References.Findings))
	for _, m := range v.Moves {
		wrong += m.Differing
	}
	for _, d := range v.References.Differences {
		if !d.Repaired {
			wrong += d.Missing + d.Extra + d.Changed
		}
	}
	return wrong
}

// VerifyProgress is how far a verification is.
type VerifyProgress struct {
	// Doing is what is being done, for people.
	Doing string `json:"doing"`
	// Rows were looked at so far, and so many Strays found.
	Rows   int64 `json:"rows"`
	Strays int64 `json:"strays"`
}

// VerifyEvent is a line of the answer to who wants to hear how far it is. One of them is there.
type VerifyEvent struct {
	Progress *VerifyProgress `json:"progress,omitempty"`
	Result   *Verified       `json:"result,omitempty"`
	Error    *Error          `json:"error,omitempty"`
}

// EventStream is the media type of an answer that is one JSON document in each line.
const EventStream = "application/x-ndjson"

// Verify looks whether rows are where they belong, and says how far it is if somebody hears it.
func (c *Client) Verify(ctx context.Context, request Verify, hear func(VerifyProgress)) (Verified, error) {
	if hear == nil {
		return send[Verified](ctx, c, http.MethodPost, "/v1/verify", request)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return Verified{}, fmt.Errorf("encode the request: %w", err)
	}
	response, err := c.open(ctx, http.Header{"Accept": {EventStream}}, http.MethodPost, "/v1/verify", body)
	if err != nil {
		return Verified{}, err
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return Verified{}, fmt.Errorf("read the answer of %s: %w", c.baseURL(), err)
		}
		var event VerifyEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return Verified{}, fmt.Errorf("read the answer of %s: %w", c.baseURL(), err)
		}
		switch {
		case event.Result != nil:
			return *event.Result, nil
		case event.Error != nil:
			return Verified{}, &RequestError{Status: http.StatusOK, Answer: *event.Error}
		case event.Progress != nil:
			hear(*event.Progress)
		default:
			return Verified{}, errors.New("read the answer of " + c.baseURL() + ": a line of it says nothing")
		}
	}
}
