package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Automation is the document about what the leader does by itself: package control gives it meaning. There is one, or none yet, which has no revision.
type Automation struct {
	Body     json.RawMessage
	Revision int64 // which write this was: filled in by the store, compared on the next write
}

// automationRecord is the document as stored.
type automationRecord struct {
	Body    json.RawMessage `json:"body"`
	Attempt attempt         `json:"attempt"` // the write that made it, so that a writer whose answer was lost knows its own
}

func decodeAutomation(kv keyValue) (Automation, attempt, error) {
	var r automationRecord
	if err := json.Unmarshal(kv.Value, &r); err != nil {
		return Automation{}, attempt{}, fmt.Errorf("read record %s: %w", kv.Key, err)
	}
	return Automation{Body: r.Body, Revision: kv.ModRevision}, r.Attempt, nil
}

// Automation reads the document. If there is none it has no body and no revision.
func (s *Store) Automation(ctx context.Context) (Automation, error) {
	var response *clientv3.GetResponse
	err := s.request(ctx, "read the automation", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, s.keys.automation)
		return err
	})
	if err != nil || len(response.Kvs) == 0 {
		return Automation{}, err
	}
	document, _, err := decodeAutomation(response.Kvs[0])
	return document, err
}

// SetAutomation replaces the document as it was read: its revision must be the stored one, otherwise it fails with [ErrConflict]. Anybody may.
func (s *Store) SetAutomation(ctx context.Context, document Automation) (Automation, error) {
	return s.setAutomation(ctx, document, nil, nil)
}

// SetAutomation is that of the leader: it fails with [ErrNotLeader] when the leadership is over. New jobs are stored with it, all or nothing; one that is there already is an [ErrConflict].
func (l *Leadership) SetAutomation(ctx context.Context, document Automation, jobs ...Job) (Automation, error) {
	document, err := l.store.setAutomation(ctx, document, l, jobs)
	if errors.Is(err, ErrNotLeader) {
		l.end() // The leader may not have noticed yet.
	}
	return document, err
}

// setAutomation writes the document and jobs, under a leadership if there is one.
func (s *Store) setAutomation(ctx context.Context, document Automation, leadership *Leadership, jobs []Job) (Automation, error) {
	const action = "write the automation"
	mine := newAttempt()
	value, err := json.Marshal(automationRecord{document.Body, mine})
	if err != nil {
		return document, fmt.Errorf("%s: %w", action, err)
	}
	if len(value) > maxJobBytes {
		return document, fmt.Errorf("%s: it takes %d bytes, at most %d can be stored", action, len(value), maxJobBytes)
	}
	t := transaction{
		action: action, when: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.keys.automation), "=", document.Revision)},
		then: []clientv3.Op{clientv3.OpPut(s.keys.automation, string(value))}, otherwise: []clientv3.Op{clientv3.OpGet(s.keys.automation)},
	}
	if leadership != nil {
		t.when = append(t.when, leadership.stillLeads())
		t.otherwise = append(t.otherwise, clientv3.OpGet(leadership.key))
	}
	for _, job := range jobs {
		value, err := jobRecord{job.ID, job.Kind, job.State, job.Body, mine}.encode()
		if err != nil {
			return document, fmt.Errorf("%s: %w", action, err)
		}
		t.when = append(t.when, clientv3.Compare(clientv3.CreateRevision(s.keys.jobs+job.ID), "=", 0))
		t.then = append(t.then, clientv3.OpPut(s.keys.jobs+job.ID, value))
	}
	response, lostAnswer, err := s.commit(ctx, t)
	if err != nil {
		return document, err
	}
	if response.Succeeded {
		document.Revision = response.Header.Revision
		return document, nil
	}
	if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		if stored, wrote, err := decodeAutomation(kvs[0]); err == nil && wrote == mine { // an earlier try was applied and its answer lost
			return stored, nil
		}
	}
	err = ErrConflict
	if leadership != nil && len(response.Responses[1].GetResponseRange().Kvs) == 0 {
		err = ErrNotLeader
	}
	if lostAnswer { // somebody may have written over it since
		return document, fmt.Errorf("%s: %w: %w", action, err, ErrOutcomeUnknown)
	}
	return document, fmt.Errorf("%s: %w", action, err)
}
