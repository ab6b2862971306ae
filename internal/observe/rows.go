package observe

import "github.com/prometheus/client_golang/prometheus"

// RowStats are what the statements of a router hold of several shards' rows, to bring them together.
type RowStats struct {
	// Memory and FileBytes are in bytes; Files are those that are open.
	Memory, MemoryLimit, Files, FileBytes int64
	// Spills counts the files that were begun, Refused the statements that would have needed too much.
	Spills, Refused uint64
}

var (
	rowsMemory      = describe("rows_memory_bytes", "Rows of several shards that statements of this process hold in memory.")
	rowsMemoryLimit = describe("rows_memory_limit_bytes", "Most of them that there may be.")
	rowsFiles       = describe("rows_files", "Temporary files with such rows.")
	rowsFileBytes   = describe("rows_file_bytes", "Rows of several shards that are in them.")
	rowsSpills      = describe("rows_spills_total", "Times that rows did not fit into memory, and a file was begun.")
	rowsRefused     = describe("rows_refused_total", "Statements that were refused because they needed more than they may.")
)

// Rows is a collector of what statements of a router hold.
type Rows struct{ stats func() RowStats }

// NewRows returns a collector that takes its figures from the function at the moment of asking.
func NewRows(stats func() RowStats) *Rows { return &Rows{stats} }

// Describe lists the metrics.
func (r *Rows) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rowsMemory, rowsMemoryLimit, rowsFiles, rowsFileBytes, rowsSpills, rowsRefused} {
		to <- d
	}
}

// Collect reports the figures.
func (r *Rows) Collect(to chan<- prometheus.Metric) {
	s := r.stats()
	to <- gauge(rowsMemory, float64(s.Memory))
	to <- gauge(rowsMemoryLimit, float64(s.MemoryLimit))
	to <- gauge(rowsFiles, float64(s.Files))
	to <- gauge(rowsFileBytes, float64(s.FileBytes))
	to <- counter(rowsSpills, s.Spills)
	to <- counter(rowsRefused, s.Refused)
}
