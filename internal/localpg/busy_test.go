package localpg

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// TestUnfinishedDataAreRemovedUnderWhoeverStillWritesThem has a writer that ends only after a while, as the children of a
// killed initdb do.
func TestUnfinishedDataAreRemovedUnderWhoeverStillWritesThem(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data.new-1", "base")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 { // so that removing takes a moment
		if err := os.WriteFile(filepath.Join(folder, "old"+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop, started := make(chan struct{}), make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if os.MkdirAll(folder, 0o700) == nil {
				_ = os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), nil, 0o600)
			}
			if i == 0 {
				close(started)
			}
			if i == 20_000 {
				return
			}
		}
	})
	<-started
	err := removeBusy(filepath.Dir(folder))
	close(stop)
	writing.Wait()
	if err != nil {
		t.Error(err)
	}
}
