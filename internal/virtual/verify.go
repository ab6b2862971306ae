package virtual

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/control"
	"github.com/cleavedb/cleave/internal/session"
)

// noticeEvery is how often a client who waits hears how far it is.
const noticeEvery = 2 * time.Second

// listedInNotices is how many strays a client is told of one by one.
const listedInNotices = 20

// verifyRows looks whether rows are where they belong. It is for superusers: it reads all tables, and a repair writes to them.
func verifyRows(ctx context.Context, s *Schema, call session.Call, arguments map[string]*string, _ []*string) (string, error) {
	if err := s.mustBeSuperuser(ctx, call); err != nil {
		return "", err
	}
	request := control.VerifyRequest{Keyspace: text(arguments, "keyspace"), Prefer: text(arguments, "prefer"), Limit: listedInNotices}
	var err error
	if request.Repair, err = truth(arguments, "repair"); err != nil {
		return "", err
	}
	if err := given(arguments, "max_listed", aCount, &request.Limit); err != nil {
		return "", err
	}
	if err := given(arguments, "max_rate", aWhole, &request.MaxRate); err != nil {
		return "", err
	}
	if names := text(arguments, "table_name"); names != "" {
		if request.Tables, err = s.tableNames(ctx, names, call.SearchPath); err != nil {
			return "", err
		}
	}
	if shard := text(arguments, "shard"); shard != "" {
		request.Shards = []string{shard}
	}
	notice := func(string) {}
	if call.Notice != nil {
		notice = call.Notice
	}
	told := time.Now()
	request.Progress = func(p api.VerifyProgress) {
		if time.Since(told) >= noticeEvery {
			told = time.Now()
			notice(fmt.Sprintf("%s: %d rows looked at so far, %d of them on a shard that they do not belong to", p.Doing, p.Rows, p.Strays))
		}
	}
	found, err := s.config.Cluster.Verify(ctx, request)
	if err != nil {
		return "", err
	}
	for _, stray := range found.Strays {
		notice(stray.String())
	}
	for _, f := range found.Findings {
		notice(f.Message)
	}
	return describeVerified(found), nil
}

// describeVerified says in one sentence what was found.
func describeVerified(found api.Verified) string {
	var rows, differing int64
	for _, t := range found.Tables {
		rows += t.Rows
	}
	sentences := []string{fmt.Sprintf("%d rows looked at", rows)}
	if found.StraysFound > 0 {
		sentences = append(sentences, fmt.Sprintf("%d on a shard that they do not belong to, %d of them repaired", found.StraysFound, found.StraysRepaired))
	}
	for _, m := range found.Moves {
		differing += m.Differing
	}
	if differing > 0 {
		sentences = append(sentences, fmt.Sprintf("%d that differ on both sides of a move", differing))
	}
	if len(found.References.Tables) > 0 {
		sentences = append(sentences, describeCopies(found.References))
	}
	if n := len(found.Findings); n > 0 {
		sentences = append(sentences, fmt.Sprintf("what could not be looked at: %d", n))
	}
	if found.Wrong() == 0 {
		sentences = append(sentences, "everything is where it belongs")
	}
	return strings.Join(sentences, "; ")
}
