//go:build !linux

package localpg

import (
	"io"
	"os"
)

func copyContent(to, from *os.File) error {
	_, err := io.Copy(to, from)
	return err
}
