package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Plan is a proposal that is kept until somebody applies it, which makes jobs of it. What it says may take more than etcd takes at once, and is stored in parts.
type Plan struct {
	ID      string          // names it; no slashes
	Version uint64          // of the map that it was made for: it is applied to no other
	Body    json.RawMessage // what it says; its maker gives it meaning
	// Applied is when somebody has said that it is to be done. From then on it has Jobs, by their names, of which the first Asked are stored.
	Applied time.Time
	Jobs    []string
	Asked   int
	// Settled: nothing is left to be done about it.
	Settled bool

	bytes    int   // how long what it says is
	revision int64 // which write of the record this was
}

// HasAsked says whether all of its jobs are stored.
func (p Plan) HasAsked() bool { return !p.Applied.IsZero() && p.Asked == len(p.Jobs) }

const (
	// maxPlanBytes bounds what one plan says.
	maxPlanBytes = 32 << 20
	// keptPlans is how many plans are kept, and keptPlanBytes how much they say all together; but for those that are being applied.
	keptPlans     = 100
	keptPlanBytes = 64 << 20
)

// ErrNoPlan says that there is no plan of that name.
var ErrNoPlan = errors.New("no such plan")

// PlanTooLargeError is a plan that was not kept because of its size.
type PlanTooLargeError struct{ Bytes, Most int }

func (e *PlanTooLargeError) Error() string {
	return fmt.Sprintf("the plan takes %d bytes, at most %d can be stored", e.Bytes, e.Most)
}

// planRecord is a plan as stored, but for what it says.
type planRecord struct {
	ID      string `json:"id"`
	Version uint64 `json:"map_version"`
	Bytes   int    `json:"bytes"`
	// Ready: all that it says is stored. Until then there is no plan.
	Ready   bool      `json:"ready"`
	Applied time.Time `json:"applied,omitzero"`
	Jobs    []string  `json:"jobs,omitempty"`
	Asked   int       `json:"asked,omitempty"`
	Settled bool      `json:"settled,omitempty"`
	Attempt attempt   `json:"attempt"` // the write that made it, so that a writer whose answer was lost knows its own

	revision, created int64
}

func decodePlan(kv keyValue) (r planRecord, err error) {
	if err := json.Unmarshal(kv.Value, &r); err != nil {
		return r, fmt.Errorf("read plan record %s: %w", kv.Key, err)
	}
	r.revision, r.created = kv.ModRevision, kv.CreateRevision
	return r, nil
}

func (r planRecord) plan(body []byte) Plan {
	return Plan{ID: r.ID, Version: r.Version, Body: body, Applied: r.Applied, Jobs: r.Jobs, Asked: r.Asked, Settled: r.Settled, bytes: r.Bytes, revision: r.revision}
}

// record is the plan as it was read, with its jobs.
func (p Plan) record() planRecord {
	return planRecord{ID: p.ID, Version: p.Version, Bytes: p.bytes, Ready: true, Applied: p.Applied, Jobs: p.Jobs, Asked: p.Asked, Settled: p.Settled, revision: p.revision}
}

func (s *Store) planParts(id string) string { return s.keys.parts + id + "/" }

func (s *Store) planPart(id string, n int) string { return fmt.Sprintf("%s%06d", s.planParts(id), n) }

// KeepPlan stores a plan, and forgets the oldest of too many. It fails with [ErrExists], or with a [PlanTooLargeError].
func (s *Store) KeepPlan(ctx context.Context, plan Plan) error {
	switch {
	case plan.ID == "" || strings.Contains(plan.ID, "/"):
		return fmt.Errorf("keep a plan: id %q is empty or has a slash", plan.ID)
	case len(plan.Body) > maxPlanBytes:
		return &PlanTooLargeError{Bytes: len(plan.Body), Most: maxPlanBytes}
	}
	plan.bytes = len(plan.Body)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := s.keepPlan(ctx, plan)
		if !errors.Is(err, ErrConflict) {
			if err == nil {
				s.forgetPlans(ctx, plan.ID)
			}
			return err
		}
		if !sleep(ctx, jitter(pause)) { // whoever keeps the same plan has time to do so
			return cancelledError(ctx, "keep a plan", false)
		}
	}
}

// keepPlan tries once. A record that is not ready comes first, so that no part is stored of which nobody knows; one that somebody has left so is taken over, and they fail with [ErrConflict].
func (s *Store) keepPlan(ctx context.Context, plan Plan) error {
	before, _, err := s.readPlan(ctx, plan.ID)
	if err != nil {
		return err
	}
	if before.Ready {
		return fmt.Errorf("keep plan %s: %w", plan.ID, ErrExists)
	}
	record := plan.record()
	record.revision, record.Ready = before.revision, false
	parts := slices.Collect(slices.Chunk([]byte(plan.Body), s.config.limits.bytes/2)) // there is room for the record beside one
	for n, part := range parts[:max(len(parts)-1, 0)] {
		if n == 0 {
			if record, err = s.writePlan(ctx, "keep a plan", record); err != nil {
				return err
			}
		}
		if err := s.writePart(ctx, record, n, part); err != nil {
			return err
		}
	}
	record.Ready = true
	var along []clientv3.Op
	if n := len(parts); n > 0 {
		along = append(along, clientv3.OpPut(s.planPart(plan.ID, n-1), string(parts[n-1])))
	}
	if before.revision > 0 { // what somebody has left of a longer one
		along = append(along, clientv3.OpDelete(s.planPart(plan.ID, len(parts)), clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.planParts(plan.ID)))))
	}
	_, err = s.writePlan(ctx, "keep a plan", record, along...)
	return err
}

// writePart stores a part of what a plan says, if its record is as it was written.
func (s *Store) writePart(ctx context.Context, record planRecord, n int, part []byte) error {
	response, _, err := s.commit(ctx, transaction{
		action: "keep a part of a plan", when: []clientv3.Cmp{s.planIs(record)},
		then: []clientv3.Op{clientv3.OpPut(s.planPart(record.ID, n), string(part))}, otherwise: []clientv3.Op{clientv3.OpGet(s.keys.plans + record.ID)},
	})
	if err == nil && !response.Succeeded {
		err = fmt.Errorf("keep plan %s: %w", record.ID, ErrConflict)
	}
	return err
}

// planIs is the condition that nobody has written a record since it was read; or that there is none, if none was.
func (s *Store) planIs(r planRecord) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.keys.plans+r.ID), "=", r.revision)
}

// writePlan writes the record in the place of the one that was read, and what goes along. It fails with [ErrConflict].
func (s *Store) writePlan(ctx context.Context, action string, r planRecord, along ...clientv3.Op) (planRecord, error) {
	return s.writePlanIf(ctx, action, r, nil, along)
}

// writePlanIf is writePlan, if all else is as it must be.
func (s *Store) writePlanIf(ctx context.Context, action string, r planRecord, must []clientv3.Cmp, along []clientv3.Op) (planRecord, error) {
	r.Attempt = newAttempt()
	value, err := json.Marshal(r)
	if err != nil {
		return r, fmt.Errorf("%s: encode plan %s: %w", action, r.ID, err)
	}
	key := s.keys.plans + r.ID
	response, _, err := s.commit(ctx, transaction{
		action: action, when: append([]clientv3.Cmp{s.planIs(r)}, must...),
		then: append([]clientv3.Op{clientv3.OpPut(key, string(value))}, along...), otherwise: []clientv3.Op{clientv3.OpGet(key)},
	})
	if err != nil {
		return r, err
	}
	if response.Succeeded {
		r.revision = response.Header.Revision
		return r, nil
	}
	for _, kv := range response.Responses[0].GetResponseRange().Kvs {
		stored, err := decodePlan(kv)
		if err == nil && stored.Attempt == r.Attempt { // an earlier try was applied and its answer lost
			return stored, nil
		}
		if err == nil && stored.revision == r.revision {
			return r, fmt.Errorf("%s %s: %w", action, r.ID, errOtherwise)
		}
	}
	return r, fmt.Errorf("%s %s: %w", action, r.ID, ErrConflict)
}

// errOtherwise says that the plan is as it was, and something else is not as it must be.
var errOtherwise = errors.New("something else has changed")

// readPlan reads a record, and says as of which revision; the zero one, but for its name, if there is none.
func (s *Store) readPlan(ctx context.Context, id string) (r planRecord, revision int64, err error) {
	var response *clientv3.GetResponse
	err = s.request(ctx, "read a plan", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, s.keys.plans+id)
		return err
	})
	if err != nil || len(response.Kvs) == 0 {
		return planRecord{ID: id}, 0, err
	}
	r, err = decodePlan(response.Kvs[0])
	return r, response.Header.Revision, err
}

// Plan reads a plan, or fails with [ErrNoPlan].
func (s *Store) Plan(ctx context.Context, id string) (Plan, error) {
	for range readAfreshLimit {
		record, revision, err := s.readPlan(ctx, id)
		if err != nil {
			return Plan{}, err
		}
		if !record.Ready {
			return Plan{}, fmt.Errorf("read plan %q: %w", id, ErrNoPlan)
		}
		body, err := s.readParts(ctx, record, revision)
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue
		}
		return record.plan(body), err
	}
	return Plan{}, fmt.Errorf("read plan %q: history was compacted during every read", id)
}

// readParts reads what a plan says, as of a revision.
func (s *Store) readParts(ctx context.Context, record planRecord, revision int64) ([]byte, error) {
	const partsPerRead = 8
	body := make([]byte, 0, record.Bytes)
	err := s.readPages(ctx, "read a plan", s.planParts(record.ID), revision, partsPerRead, func(_ string, kv keyValue) error {
		body = append(body, kv.Value...)
		return nil
	})
	if err == nil && len(body) != record.Bytes {
		err = fmt.Errorf("plan %s has %d bytes, and should have %d", record.ID, len(body), record.Bytes)
	}
	return body, err
}

// Plans lists all plans without what they say, the oldest first.
func (s *Store) Plans(ctx context.Context) ([]Plan, error) {
	records, err := s.readPlans(ctx)
	if err != nil {
		return nil, err
	}
	var plans []Plan
	for _, r := range records {
		if r.Ready {
			plans = append(plans, r.plan(nil))
		}
	}
	return plans, nil
}

// readPlans reads all records, the oldest first.
func (s *Store) readPlans(ctx context.Context) (records []planRecord, err error) {
	const recordsPerRead = 32
	err = s.readPages(ctx, "list plans", s.keys.plans, 0, recordsPerRead, func(_ string, kv keyValue) error {
		r, err := decodePlan(kv)
		records = append(records, r)
		return err
	})
	slices.SortFunc(records, func(a, b planRecord) int { return cmp.Compare(a.created, b.created) })
	return records, err
}

// forgetPlans deletes the oldest of too many plans, but for one, and for those that are being applied. What it cannot delete is left to the next one who keeps a plan.
func (s *Store) forgetPlans(ctx context.Context, but string) {
	records, err := s.readPlans(ctx)
	if err != nil {
		s.config.Logger.Debug("old plans are left for the next one who keeps a plan", "cause", err)
		return
	}
	for _, r := range tooMany(records) {
		if r.ID == but {
			continue
		}
		if err := s.dropPlan(ctx, r); err != nil {
			s.config.Logger.Debug("an old plan is left for the next one who keeps a plan", "plan", r.ID, "cause", err)
		}
	}
}

// tooMany are those of some plans, the oldest first, that are above what is kept, and are not being applied.
func tooMany(records []planRecord) (surplus []planRecord) {
	kept, bytes := 0, 0
	for _, r := range slices.Backward(records) {
		kept, bytes = kept+1, bytes+r.Bytes
		isBusy := !r.Applied.IsZero() && !r.Settled
		if (kept > keptPlans || bytes > keptPlanBytes) && !isBusy {
			surplus = append(surplus, r)
		}
	}
	return surplus
}

// DropPlan deletes a plan as it was read. It fails with [ErrConflict] if it was changed since.
func (s *Store) DropPlan(ctx context.Context, plan Plan) error { return s.dropPlan(ctx, plan.record()) }

func (s *Store) dropPlan(ctx context.Context, r planRecord) error {
	key := s.keys.plans + r.ID
	response, lostAnswer, err := s.commit(ctx, transaction{
		action: "drop a plan", when: []clientv3.Cmp{s.planIs(r)},
		then: []clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete(s.planParts(r.ID), clientv3.WithPrefix())}, otherwise: []clientv3.Op{clientv3.OpGet(key)},
	})
	if err != nil || response.Succeeded {
		return err
	}
	if lostAnswer && len(response.Responses[0].GetResponseRange().Kvs) == 0 {
		return nil // an earlier try was applied and its answer lost, or it is gone anyway
	}
	return fmt.Errorf("drop plan %s: %w", r.ID, ErrConflict)
}

// AskPlanned stores the next jobs of a plan as it was read, as many as etcd takes at once, and notes that in the same transaction; so whoever goes on asks for none of them again. Jobs are all of the plan's. The first
// time the plan becomes them, and the map must be the one that it was made for. It fails with [ErrConflict] if the plan or the map is another by now, and with [ErrExists] if there is a job of one of the names: the names of jobs
// that are not stored yet may be others then.
func (s *Store) AskPlanned(ctx context.Context, plan Plan, jobs []Job) (Plan, error) {
	const action = "ask for the jobs of plan"
	next := plan.record()
	next.Jobs = make([]string, len(jobs))
	for i, job := range jobs {
		next.Jobs[i] = job.ID
	}
	var must []clientv3.Cmp
	if plan.Applied.IsZero() {
		h, _, err := s.readHead(ctx)
		if err != nil {
			return plan, err
		}
		if !h.exists() || h.manifest.Version() != plan.Version {
			return plan, fmt.Errorf("%s %s: the map has changed: %w", action, plan.ID, ErrConflict)
		}
		must, next.Applied = append(must, s.headIs(h)), time.Now().UTC()
	}
	names, puts, err := s.nextJobs(jobs[plan.Asked:], len(must)+1)
	if err != nil {
		return plan, fmt.Errorf("%s %s: %w", action, plan.ID, err)
	}
	next.Asked += len(puts)
	written, err := s.writePlanIf(ctx, action, next, append(must, names...), puts)
	if errors.Is(err, errOtherwise) {
		err = fmt.Errorf("%s %s: %w", action, plan.ID, ErrExists)
		if plan.Applied.IsZero() { // or it was the map
			err = fmt.Errorf("%s %s: %w", action, plan.ID, ErrConflict)
		}
	}
	if err != nil {
		return plan, err
	}
	return written.plan(plan.Body), nil
}

// nextJobs are the first of some jobs, as many as fit into a transaction beside so many other operations: that nobody has their names, and what writes them.
func (s *Store) nextJobs(jobs []Job, beside int) (free []clientv3.Cmp, puts []clientv3.Op, err error) {
	mine, size := newAttempt(), 0
	for _, job := range jobs {
		value, err := jobRecord{job.ID, job.Kind, job.State, job.Body, mine}.encode()
		if err != nil {
			return nil, nil, err
		}
		if size += len(value); len(puts) > 0 && (len(puts)+beside >= s.config.limits.ops || size > s.config.limits.bytes) {
			break
		}
		key := s.keys.jobs + job.ID
		free, puts = append(free, clientv3.Compare(clientv3.CreateRevision(key), "=", 0)), append(puts, clientv3.OpPut(key, value))
	}
	return free, puts, nil
}

// SettlePlan notes that nothing is left to be done about a plan as it was read. It fails with [ErrConflict] if it was changed since.
func (s *Store) SettlePlan(ctx context.Context, plan Plan) error {
	record := plan.record()
	record.Settled = true
	_, err := s.writePlan(ctx, "settle plan", record)
	return err
}
