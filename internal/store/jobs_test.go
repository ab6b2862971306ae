package store

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// TestJobsThatWereReadDoNotTravelAgain: who looks twice a second what there is to do does not read thousands of jobs that wait, with all that they say.
func TestJobsThatWereReadDoNotTravelAgain(t *testing.T) {
	t.Parallel()
	etcd := startMember(t)
	writer := openStore(t, etcd.endpoints())
	const jobs, size = 20, 40_000
	body := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	written := map[string]Job{}
	for i := range jobs {
		job, err := writer.AskJob(testContext(t), Job{ID: fmt.Sprintf("j%02d", i), Kind: "move", State: "asked", Body: body})
		if err != nil {
			t.Fatal(err)
		}
		written[job.ID] = job
	}
	var heard atomic.Int64
	reader := openStore(t, etcd.endpoints(), func(c *Config) {
		c.dialOptions = append(c.dialOptions, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, conn, opts...)
			heard.Add(int64(proto.Size(reply.(proto.Message))))
			return err
		}))
	}).NewJobReader()
	read := func(most int64) {
		t.Helper()
		heard.Store(0)
		got, err := reader.Jobs(testContext(t))
		if err != nil || len(got) != len(written) {
			t.Fatalf("%d jobs were read of %d: %v", len(got), len(written), err)
		}
		for i, job := range got {
			if want := written[job.ID]; !reflect.DeepEqual(job, want) {
				t.Errorf("job %s is at revision %d, not %d", job.ID, job.Revision, want.Revision)
			}
			if i > 0 && got[i-1].ID >= job.ID {
				t.Errorf("job %s comes before %s", got[i-1].ID, job.ID)
			}
		}
		if heard.Load() > most {
			t.Errorf("%d bytes were read, more than %d", heard.Load(), most)
		}
	}
	read(2 * jobs * size)
	read(2 * size)
	changed := written["j07"]
	changed.State = "copying"
	l := campaign(t, writer, "leader")
	changed, err := l.UpdateJob(testContext(t), changed)
	if err != nil {
		t.Fatal(err)
	}
	written[changed.ID] = changed
	if err := l.DeleteJob(testContext(t), written["j13"]); err != nil {
		t.Fatal(err)
	}
	delete(written, "j13")
	read(2 * size)
	again, err := writer.AskJob(testContext(t), Job{ID: "j13", Kind: "move", State: "asked", Body: json.RawMessage(`"another"`)})
	if err != nil {
		t.Fatal(err)
	}
	written[again.ID] = again
	read(2 * size)
}
