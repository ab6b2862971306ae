package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports that are given out are below those that the system gives to connections: a server that is killed and comes back must find its own one free.
const (
	firstPort = 15000
	lastPort  = 31999
)

// givenPorts are those that this process has given out.
var givenPorts sync.Map

// FreeAddress is one that nobody listens on, and that no connection gets by chance.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// FreePort is the port of such an address.
func FreePort(t testing.TB) int {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return address.Port
}
