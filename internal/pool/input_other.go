//go:build !unix

package pool

// HasInput cannot tell on this system: it says that there is nothing, and whoever reads finds out.
func (b *Backend) HasInput() bool { return false }
