package localpg

// For tests that look for processes that should be gone, and for what a replica needs.
var (
	Alive      = alive
	Children   = children
	Basebackup = Installation.basebackup
)
