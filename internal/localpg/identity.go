package localpg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

const controlFile = "global/pg_control"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newIdentifier makes a system identifier as initdb does: the seconds of now, then what tells two servers of one second
// apart, here by chance. SQL shows it as a signed number, and it is positive.
func newIdentifier() uint64 {
	return uint64(time.Now().Unix())<<32&^(1<<63) | uint64(rand.Uint32())
}

// setIdentifier gives copied data of a server that was stopped in order a system identifier of their own. Replicas and
// moves take servers with the same identifier for one.
//
// No tool of PostgreSQL sets it. It stands at the beginning of the control file, which ends with a checksum, and in the
// header of every segment of the write-ahead log, which has none; a server whose two differ does not start. Both places
// have been the same in all versions for many years, and both are checked here before anything is written. What is not
// made new is the nonce with which the server pretends to know users it does not know: data that are meant to last
// are not made this way.
func setIdentifier(data string, identifier uint64) error {
	control := filepath.Join(data, controlFile)
	content, err := os.ReadFile(control)
	if err != nil {
		return fmt.Errorf("read the control file: %w", err)
	}
	end, err := controlEnd(content)
	if err != nil {
		return err
	}
	old := binary.NativeEndian.Uint64(content)
	if err := relabelLog(filepath.Join(data, "pg_wal"), old, identifier); err != nil {
		return err
	}
	binary.NativeEndian.PutUint64(content, identifier)
	binary.NativeEndian.PutUint32(content[end:], crc32.Checksum(content[:end], castagnoli))
	if err := overwrite(control, content, 0); err != nil {
		return fmt.Errorf("write the control file: %w", err)
	}
	return nil
}

// controlEnd finds the checksum, whose place differs between versions: where the checksum of all before it stands.
func controlEnd(content []byte) (int, error) {
	const leastSize = 128 // of what comes before it, in any version; no short stretch may pass by chance
	for end := leastSize; end+4 <= len(content); end += 4 {
		if crc32.Checksum(content[:end], castagnoli) == binary.NativeEndian.Uint32(content[end:]) {
			return end, nil
		}
	}
	return 0, errors.New("the control file has no valid checksum")
}

var segmentName = regexp.MustCompile(`^[0-9A-F]{24}$`)

// relabelLog changes the identifier in every segment of the write-ahead log.
func relabelLog(folder string, old, identifier uint64) error {
	const place = 24 // after magic number, flags, timeline, address, remaining length and padding
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("read the write-ahead log: %w", err)
	}
	segments := 0
	for _, entry := range entries {
		if !segmentName.MatchString(entry.Name()) {
			continue
		}
		segments++
		if err := replaceNumber(filepath.Join(folder, entry.Name()), place, old, identifier); err != nil {
			return fmt.Errorf("relabel the write-ahead log: %w", err)
		}
	}
	if segments == 0 {
		return errors.New("the write-ahead log has no segment")
	}
	return nil
}

func replaceNumber(path string, place int64, old, identifier uint64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var number [8]byte
	if _, err := file.ReadAt(number[:], place); err != nil {
		return err
	}
	switch found := binary.NativeEndian.Uint64(number[:]); found {
	case old:
	case 0: // a segment that was made ahead of its use
		return nil
	default:
		return fmt.Errorf("%s has the identifier %d where %d was expected", path, found, old)
	}
	binary.NativeEndian.PutUint64(number[:], identifier)
	return overwrite(path, number[:], place)
}

func overwrite(path string, content []byte, place int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, place)
	return errors.Join(err, file.Close())
}
