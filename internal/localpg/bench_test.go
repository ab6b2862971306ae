package localpg_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
)

// BenchmarkStart measures from nothing to a server that accepts connections: from the template, as tests do; by initdb, as
// dev does; and four servers at a time.
func BenchmarkStart(b *testing.B) {
	pgtest.Installations(b)
	for _, way := range []struct {
		name   string
		config localpg.Config
	}{
		{"template", localpg.Config{Fast: true, Template: true}},
		{"initdb", localpg.Config{Fast: true}},
		{"durable", localpg.Config{}},
	} {
		for _, count := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/servers=%d", way.name, count), func(b *testing.B) { benchmarkStart(b, way.config, count) })
		}
	}
}

func benchmarkStart(b *testing.B, config localpg.Config, count int) {
	root := folder(b)
	configs := make([]localpg.Config, count)
	for i := range configs {
		configs[i] = config
		configs[i].Dir = filepath.Join(root, strconv.Itoa(i))
	}
	for b.Loop() {
		servers, err := localpg.StartAll(b.Context(), configs)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for _, server := range servers {
			if err := server.StopImmediately(); err != nil {
				b.Fatal(err)
			}
			if err := os.RemoveAll(server.Dir()); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
}
