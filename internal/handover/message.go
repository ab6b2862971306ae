//go:build unix && !aix

package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

const (
	version   = 1
	accepting = "accepting"
	released  = "released"

	// maxSockets is what Linux lets through in one message.
	maxSockets = 253
	// maxLine is far above what the addresses of that many sockets need.
	maxLine = 64 << 10
)

// request is the new process's first word.
type request struct {
	Version int `json:"version"`
}

// offer comes with the sockets that listen at the addresses, in this order.
type offer struct {
	Version   int      `json:"version"`
	Addresses []string `json:"addresses"`
}

// progress is what both say at the end.
type progress struct {
	State string `json:"state"`
}

// send sends a line, with the descriptors beside it.
func send(conn *net.UnixConn, message any, descriptors ...int) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	sent, _, err := conn.WriteMsgUnix(line, rights, nil)
	if err != nil {
		return err
	}
	if sent < len(line) { // the descriptors went with the first byte
		_, err = conn.Write(line[sent:])
	}
	return err
}

// receive reads a line, and the descriptors that came with it. They are the caller's, whatever the error.
func receive(conn *net.UnixConn, message any) (descriptors []int, err error) {
	var line []byte
	buffer, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*maxSockets))
	for !bytes.HasSuffix(line, []byte("\n")) {
		n, rightsSize, flags, _, err := conn.ReadMsgUnix(buffer, rights)
		if err != nil {
			return descriptors, err
		}
		line = append(line, buffer[:n]...)
		received, err := descriptorsIn(rights[:rightsSize])
		descriptors = append(descriptors, received...)
		switch {
		case err != nil:
			return descriptors, err
		case flags&unix.MSG_CTRUNC != 0:
			return descriptors, errors.New("not all sockets came through; is the limit of open files reached?")
		case n == 0 && len(line) == 0:
			return descriptors, io.EOF
		case n == 0:
			return descriptors, io.ErrUnexpectedEOF
		case len(line) > maxLine:
			return descriptors, fmt.Errorf("a line of more than %d bytes", maxLine)
		}
	}
	if err := json.Unmarshal(line, message); err != nil {
		return descriptors, fmt.Errorf("understand %.100q: %w", line, err)
	}
	return descriptors, nil
}

func descriptorsIn(rights []byte) (descriptors []int, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		received, err := unix.ParseUnixRights(&messages[i])
		descriptors = append(descriptors, received...)
		if err != nil {
			return descriptors, err
		}
	}
	return descriptors, nil
}

// expect reads a line without descriptors.
func expect(conn *net.UnixConn, message any) error {
	descriptors, err := receive(conn, message)
	closeAll(descriptors)
	return err
}

// expectState reads that the other side has come so far.
func expectState(conn *net.UnixConn, state string) error {
	var p progress
	if err := expect(conn, &p); err != nil {
		return err
	}
	if p.State != state {
		return fmt.Errorf("the other process is %q instead of %q", p.State, state)
	}
	return nil
}

func closeAll(descriptors []int) {
	for _, d := range descriptors {
		_ = unix.Close(d)
	}
}
