package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/topology"
)

// keyValue is one record as etcd returns it.
type keyValue = *mvccpb.KeyValue

// attempt names one try at writing the head, so that a writer whose answer was lost finds out whether it wrote.
type attempt [16]byte

func newAttempt() (a attempt) {
	_, _ = rand.Read(a[:]) // Never fails: it ends the process instead.
	return a
}

// keptAttempts is how many attempts a head remembers: how far others may run ahead of a writer that waits for its answer.
const keptAttempts = 64

// lineage is the attempts that led to a record, the newest first and no more than keptAttempts.
type lineage []attempt

// extended is the lineage of what the attempt writes over this one.
func (l lineage) extended(a attempt) lineage {
	return append(lineage{a}, l[:min(len(l), keptAttempts-1)]...)
}

// remembers tells whether the attempt is among those that led here.
func (l lineage) remembers(a attempt) bool { return slices.Contains(l, a) }

// follows tells whether this lineage surely knows every attempt since the earlier one.
func (l lineage) follows(earlier lineage) bool {
	if len(earlier) == 0 {
		return len(l) < keptAttempts
	}
	return l.remembers(earlier[0])
}

// headFormat is the first byte of a stored head. Another format gets another number, and old binaries say that they are old.
const headFormat = 1

// head is the one record that makes a map current: whatever it names is the map, whatever it does not name is garbage. The
// zero head stands for none.
type head struct {
	revision int64   // etcd's revision of its last write: what a writer compares
	attempts lineage // those that wrote it
	data     []byte  // the manifest, as stored
	manifest *topology.Manifest
}

func (h head) exists() bool { return h.revision != 0 }

// pieces returns the set of pieces that the head names.
func (h head) pieces() map[topology.PieceID]bool {
	set := map[topology.PieceID]bool{}
	if h.exists() {
		for _, id := range h.manifest.Pieces() {
			set[id] = true
		}
	}
	return set
}

// names tells whether the head is that of the map. Another version of this program may have written the head with other words,
// or with more than is understood here: then the map that it makes counts.
func (h head) names(m *topology.Map) bool {
	manifest := m.Manifest()
	if bytes.Equal(h.data, manifest) {
		return true
	}
	read, err := h.manifest.Assemble(m, func([]topology.PieceID) (map[topology.PieceID][]byte, error) {
		return nil, errors.New("a piece is not of that map")
	})
	return err == nil && bytes.Equal(read.Manifest(), manifest)
}

// encode returns what to store: format, number of attempts, attempts, manifest.
func (h head) encode() []byte {
	value := make([]byte, 0, 2+len(h.attempts)*len(attempt{})+len(h.data))
	value = append(value, headFormat, byte(len(h.attempts)))
	for _, a := range h.attempts {
		value = append(value, a[:]...)
	}
	return append(value, h.data...)
}

func decodeHead(kv keyValue) (head, error) {
	if len(kv.Value) < 2 {
		return head{}, errors.New("stored map head is cut short")
	}
	if format := kv.Value[0]; format != headFormat {
		return head{}, fmt.Errorf("stored map head has format %d, this version reads format %d", format, headFormat)
	}
	attempts, rest := make(lineage, kv.Value[1]), kv.Value[2:]
	if len(rest) < len(attempts)*len(attempt{}) {
		return head{}, errors.New("stored map head is cut short")
	}
	for i := range attempts {
		rest = rest[copy(attempts[i][:], rest):]
	}
	manifest, err := topology.ParseManifest(rest)
	if err != nil {
		return head{}, fmt.Errorf("stored map head: %w", err)
	}
	return head{revision: kv.ModRevision, attempts: attempts, data: rest, manifest: manifest}, nil
}

// readHead returns the head, and the revision as of which it was read. Without one it returns the zero head.
func (s *Store) readHead(ctx context.Context) (head, int64, error) {
	var response *clientv3.GetResponse
	err := s.request(ctx, "read map head", func(ctx context.Context, client *clientv3.Client) (err error) {
		response, err = client.Get(ctx, s.keys.head)
		return err
	})
	if err != nil {
		return head{}, 0, err
	}
	if len(response.Kvs) == 0 {
		return head{}, response.Header.Revision, nil
	}
	h, err := decodeHead(response.Kvs[0])
	return h, response.Header.Revision, err
}

// movedError is the head having changed since the writer read it. It stays within the package.
type movedError struct{ current head }

func (*movedError) Error() string { return "the map's head has changed" }

// writeHead replaces the head that was read by one with the given manifest, together with the other operations, if nobody has
// written it since and all else is as it must be; otherwise it fails with a [movedError]. It returns the head as it is now, which may be a later one still
// if the answer was lost and others have gone on from ours.
func (s *Store) writeHead(ctx context.Context, from head, manifest []byte, with []clientv3.Op, must ...clientv3.Cmp) (head, error) {
	mine := newAttempt()
	next := head{data: manifest, attempts: from.attempts.extended(mine)}
	response, lostAnswer, err := s.commit(ctx, transaction{
		action:    "write map head",
		when:      append(must, s.headIs(from)),
		then:      append([]clientv3.Op{clientv3.OpPut(s.keys.head, string(next.encode()))}, with...),
		otherwise: []clientv3.Op{clientv3.OpGet(s.keys.head)},
	})
	if err != nil {
		return head{}, err
	}
	if response.Succeeded {
		next.revision = response.Header.Revision
		next.manifest, err = s.sameManifest(from, manifest)
		return next, err
	}
	current, err := headOf(response)
	switch {
	case err != nil:
		return head{}, err
	case lostAnswer && current.attempts.remembers(mine):
		return current, nil
	case lostAnswer && !current.attempts.follows(from.attempts):
		return head{}, fmt.Errorf("write map head: answer lost, and too many others have written since: %w", ErrOutcomeUnknown)
	default:
		return head{}, &movedError{current}
	}
}

// sameManifest parses a manifest that was just written, unless it is the one there was.
func (s *Store) sameManifest(from head, manifest []byte) (*topology.Manifest, error) {
	if from.exists() && bytes.Equal(from.data, manifest) {
		return from.manifest, nil
	}
	return topology.ParseManifest(manifest)
}

// headIs is the condition that nobody has written the head since it was read.
func (s *Store) headIs(h head) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.keys.head), "=", h.revision)
}

// headOf reads the head from a refused transaction that asked for it.
func headOf(response *clientv3.TxnResponse) (head, error) {
	kvs := response.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return head{}, nil
	}
	return decodeHead(kvs[0])
}
