package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxJobBytes leaves room beside the job in what etcd takes as one request.
const maxJobBytes = 1 << 20

// Job is a durable document about work of the leader. Everyone can read jobs; only a [Leadership] writes them.
type Job struct {
	ID       string          // names it; no slashes
	Kind     string          // what sort of work it is
	State    string          // how far it is; its kind gives it meaning
	Body     json.RawMessage // all else; its kind gives it meaning
	Revision int64           // which write this was: filled in by the store, compared on the next write
}

// jobRecord is a job as stored.
type jobRecord struct {
	ID      string          `json:"id"`
	Kind    string          `json:"kind"`
	State   string          `json:"state"`
	Body    json.RawMessage `json:"body,omitempty"`
	Attempt attempt         `json:"attempt"` // the write that made it, so that a writer whose answer was lost knows its own
}

func (r jobRecord) encode() (string, error) {
	value, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode job %s: %w", r.ID, err)
	}
	if len(value) > maxJobBytes {
		return "", fmt.Errorf("job %s takes %d bytes, at most %d can be stored", r.ID, len(value), maxJobBytes)
	}
	return string(value), nil
}

func decodeJob(kv keyValue) (Job, attempt, error) {
	var r jobRecord
	if err := json.Unmarshal(kv.Value, &r); err != nil {
		return Job{}, attempt{}, fmt.Errorf("read job record %s: %w", kv.Key, err)
	}
	return Job{ID: r.ID, Kind: r.Kind, State: r.State, Body: r.Body, Revision: kv.ModRevision}, r.Attempt, nil
}

// Job reads one job, or fails with [ErrNoJob].
func (s *Store) Job(ctx context.Context, id string) (Job, error) {
	var response *clientv3.GetResponse
	err := s.request(ctx, "read job", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, s.keys.jobs+id)
		return err
	})
	if err != nil {
		return Job{}, err
	}
	if len(response.Kvs) == 0 {
		return Job{}, fmt.Errorf("read job %q: %w", id, ErrNoJob)
	}
	job, _, err := decodeJob(response.Kvs[0])
	return job, err
}

// JobReader reads all jobs again and again: what was not written since the last time does not travel again. It is for one goroutine at a time.
type JobReader struct {
	store *Store
	known map[string]Job
}

// NewJobReader returns a reader that has read nothing yet.
func (s *Store) NewJobReader() *JobReader { return &JobReader{store: s, known: map[string]Job{}} }

// Jobs lists all jobs in the order of their names, each as it was when this was called, or later.
func (r *JobReader) Jobs(ctx context.Context) ([]Job, error) {
	const namesPerRead, jobsPerRead = 10_000, 32
	var names, written []string
	found := map[string]Job{}
	err := r.store.readPages(ctx, "list jobs", r.store.keys.jobs, 0, namesPerRead, func(name string, kv keyValue) error {
		names = append(names, name)
		if job, known := r.known[name]; known && job.Revision == kv.ModRevision {
			found[name] = job
		} else {
			written = append(written, name)
		}
		return nil
	}, clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(written, jobsPerRead) {
		if err := r.store.readJobs(ctx, some, found); err != nil {
			return nil, err
		}
	}
	r.known = found
	jobs := make([]Job, 0, len(names))
	for _, name := range names {
		if job, there := found[name]; there { // or it was deleted meanwhile
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// readJobs reads jobs by their names, but for those that are gone.
func (s *Store) readJobs(ctx context.Context, names []string, into map[string]Job) error {
	gets := make([]clientv3.Op, len(names))
	for i, name := range names {
		gets[i] = clientv3.OpGet(s.keys.jobs + name)
	}
	var response *clientv3.TxnResponse
	err := s.request(ctx, "read jobs", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Txn(ctx).Then(gets...).Commit()
		return err
	})
	if err != nil {
		return err
	}
	for i, name := range names {
		for _, kv := range response.Responses[i].GetResponseRange().Kvs {
			job, _, err := decodeJob(kv)
			if err != nil {
				return err
			}
			into[name] = job
		}
	}
	return nil
}

// AskJob stores a new job, for the leader to see to. Anybody may. It fails with [ErrExists].
func (s *Store) AskJob(ctx context.Context, job Job) (Job, error) {
	if job.ID == "" || strings.Contains(job.ID, "/") {
		return Job{}, fmt.Errorf("ask for a job: id %q is empty or has a slash", job.ID)
	}
	mine := newAttempt()
	value, err := jobRecord{job.ID, job.Kind, job.State, job.Body, mine}.encode()
	if err != nil {
		return Job{}, fmt.Errorf("ask for a job: %w", err)
	}
	key := s.keys.jobs + job.ID
	response, _, err := s.commit(ctx, transaction{
		action: "ask for a job", when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		then: []clientv3.Op{clientv3.OpPut(key, value)}, otherwise: []clientv3.Op{clientv3.OpGet(key)},
	})
	if err != nil {
		return Job{}, err
	}
	if response.Succeeded {
		job.Revision = response.Header.Revision
		return job, nil
	}
	for _, kv := range response.Responses[0].GetResponseRange().Kvs {
		if stored, wrote, err := decodeJob(kv); err == nil && wrote == mine { // an earlier try was applied and its answer lost
			return stored, nil
		}
	}
	return Job{}, fmt.Errorf("ask for job %s: %w", job.ID, ErrExists)
}

// Wish says what somebody wants to become of a job; the leader reads it, and answers in the job. A later wish takes the place of an earlier one. It fails with [ErrNoJob].
func (s *Store) Wish(ctx context.Context, id, wish string) error {
	response, _, err := s.commit(ctx, transaction{
		action: "wish", when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.keys.jobs+id), ">", 0)},
		then: []clientv3.Op{clientv3.OpPut(s.keys.wishes+id, wish)}, otherwise: []clientv3.Op{clientv3.OpGet(s.keys.jobs + id)},
	})
	if err != nil {
		return err
	}
	if !response.Succeeded {
		return fmt.Errorf("job %q: %w", id, ErrNoJob)
	}
	return nil
}

// Wish is what somebody has said about a job, and nobody has heard yet.
type Wish struct {
	Text     string
	Revision int64
}

// Wishes returns the last wish for each job, and what was said of how it is to be done, by the names of jobs.
func (s *Store) Wishes(ctx context.Context) (wishes, adjustments map[string]Wish, err error) {
	const wishesPerRead = 1000
	wishes, adjustments = map[string]Wish{}, map[string]Wish{}
	err = s.readPages(ctx, "list wishes", s.keys.wishes, 0, wishesPerRead, func(name string, kv keyValue) error {
		said := Wish{Text: string(kv.Value), Revision: kv.ModRevision}
		if id, adjusts := strings.CutSuffix(name, adjusting); adjusts {
			adjustments[id] = said
		} else {
			wishes[name] = said
		}
		return nil
	})
	return wishes, adjustments, err
}

func (s *Store) readWish(ctx context.Context, key string) (wish string, revision int64, err error) {
	var response *clientv3.GetResponse
	err = s.request(ctx, "read a wish", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, key)
		return err
	})
	if err != nil || len(response.Kvs) == 0 {
		return "", 0, err
	}
	return string(response.Kvs[0].Value), response.Kvs[0].ModRevision, nil
}

// ForgetWish removes a wish that was heard, unless there is a newer one.
func (s *Store) ForgetWish(ctx context.Context, id string, revision int64) error {
	return s.forgetWish(ctx, s.keys.wishes+id, revision)
}

func (s *Store) forgetWish(ctx context.Context, key string, revision int64) error {
	_, _, err := s.commit(ctx, transaction{
		action: "forget a wish", when: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		then: []clientv3.Op{clientv3.OpDelete(key)}, otherwise: []clientv3.Op{clientv3.OpGet(key)},
	})
	return err
}

// Adjust says how somebody wants a job to be done from now on: the change gets what was said before and was not heard yet, empty if there is none, and returns what is to be heard. It fails with [ErrNoJob].
func (s *Store) Adjust(ctx context.Context, id string, change func(before string) (string, error)) error {
	key := s.adjustment(id)
	for {
		before, revision, err := s.readWish(ctx, key)
		if err != nil {
			return err
		}
		next, err := change(before)
		if err != nil {
			return err
		}
		response, _, err := s.commit(ctx, transaction{
			action: "adjust", when: []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.keys.jobs+id), ">", 0), clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
			then: []clientv3.Op{clientv3.OpPut(key, next)}, otherwise: []clientv3.Op{clientv3.OpGet(s.keys.jobs + id)},
		})
		switch {
		case err != nil:
			return err
		case response.Succeeded:
			return nil
		case len(response.Responses[0].GetResponseRange().Kvs) == 0:
			return fmt.Errorf("job %q: %w", id, ErrNoJob)
		}
	}
}

// adjusting ends the key of what [Store.Adjust] says of a job. It is not the one of wishes, of which the last counts.
const adjusting = "/how"

func (s *Store) adjustment(id string) string { return s.keys.wishes + id + adjusting }

// ForgetAdjustment removes one that was heard, unless there is a newer one.
func (s *Store) ForgetAdjustment(ctx context.Context, id string, revision int64) error {
	return s.forgetWish(ctx, s.adjustment(id), revision)
}

// CreateJob stores a new job and returns it with its revision. It fails with [ErrExists], or with [ErrNotLeader].
func (l *Leadership) CreateJob(ctx context.Context, job Job) (Job, error) {
	if job.ID == "" || strings.Contains(job.ID, "/") {
		return Job{}, fmt.Errorf("create job: id %q is empty or has a slash", job.ID)
	}
	job.Revision = 0 // which is what a key that is not there compares equal to
	job, err := l.putJob(ctx, "create job", job)
	if errors.Is(err, ErrConflict) {
		return Job{}, fmt.Errorf("create job %s: %w", job.ID, ErrExists)
	}
	return job, err
}

// UpdateJob replaces the job as it was read: its revision must be the stored one, otherwise it fails with [ErrConflict], or with
// [ErrNoJob] when the job is gone. It fails with [ErrNotLeader] when the leadership is over. It returns the job with its new
// revision.
func (l *Leadership) UpdateJob(ctx context.Context, job Job) (Job, error) {
	if job.Revision == 0 {
		return Job{}, fmt.Errorf("update job %s: it was never read: it has no revision", job.ID)
	}
	return l.putJob(ctx, "update job", job)
}

// putJob writes the job if its revision is the stored one.
func (l *Leadership) putJob(ctx context.Context, action string, job Job) (Job, error) {
	mine := newAttempt()
	value, err := jobRecord{job.ID, job.Kind, job.State, job.Body, mine}.encode()
	if err != nil {
		return job, fmt.Errorf("%s: %w", action, err)
	}
	key := l.store.keys.jobs + job.ID
	result, err := l.write(ctx, action, key, job.Revision, clientv3.OpPut(key, value))
	if err != nil {
		return job, err
	}
	if result.applied {
		job.Revision = result.revision
		return job, nil
	}
	if result.stored != nil {
		stored, wrote, err := decodeJob(result.stored)
		if err == nil && wrote == mine { // An earlier try was applied and its answer lost.
			return stored, nil
		}
	}
	return job, result.refusal(action, job)
}

// DeleteJob deletes the job as it was read, and what somebody wished for it that nobody has heard. It fails as [Leadership.UpdateJob] does.
func (l *Leadership) DeleteJob(ctx context.Context, job Job) error {
	if job.Revision == 0 {
		return fmt.Errorf("delete job %s: it was never read: it has no revision", job.ID)
	}
	key := l.store.keys.jobs + job.ID
	result, err := l.write(ctx, "delete job", key, job.Revision, clientv3.OpDelete(key), clientv3.OpDelete(l.store.keys.wishes+job.ID), clientv3.OpDelete(l.store.adjustment(job.ID)))
	if err != nil || result.applied {
		return err
	}
	if result.stored == nil && result.lostAnswer { // An earlier try was applied and its answer lost, or it is gone anyway.
		return nil
	}
	return result.refusal("delete job", job)
}

// fencedResult is what became of a fenced write.
type fencedResult struct {
	applied    bool
	revision   int64
	leads      bool     // whether the writer still leads; filled in when not applied
	stored     keyValue // what there is instead, or nil; filled in when not applied
	lostAnswer bool
}

// write applies operations if the leadership holds and the key is at the revision.
func (l *Leadership) write(ctx context.Context, action, key string, revision int64, operations ...clientv3.Op) (fencedResult, error) {
	response, lostAnswer, err := l.store.commit(ctx, transaction{
		action:    action,
		when:      []clientv3.Cmp{l.stillLeads(), clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		then:      operations,
		otherwise: []clientv3.Op{clientv3.OpGet(l.key), clientv3.OpGet(key)},
	})
	if err != nil {
		return fencedResult{}, err
	}
	if response.Succeeded {
		return fencedResult{applied: true, revision: response.Header.Revision}, nil
	}
	result := fencedResult{leads: createRevision(response) == l.token, lostAnswer: lostAnswer}
	if kvs := response.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		result.stored = kvs[0]
	}
	if !result.leads {
		l.end() // The leader may not have noticed yet.
	}
	return result, nil
}

// refusal says why a write was not applied, and whether that is certain.
func (r fencedResult) refusal(action string, job Job) error {
	err := ErrConflict
	switch {
	case !r.leads:
		err = ErrNotLeader
	case r.stored == nil:
		err = ErrNoJob
	}
	if r.lostAnswer && (r.stored == nil || r.stored.ModRevision != job.Revision) {
		return fmt.Errorf("%s %s: %w: %w", action, job.ID, err, ErrOutcomeUnknown)
	}
	return fmt.Errorf("%s %s: %w", action, job.ID, err)
}
