package localpg

import "testing"

func TestLastFailure(t *testing.T) {
	const stamp = "2025-01-02 03:04:05.678 UTC [99] "
	for name, test := range map[string]struct{ log, want string }{
		"the last fatal line, with its hint": {
			stamp + "FATAL:  an older one\n" + stamp + "LOG:  noise\n" + stamp + "FATAL:  no room\n" + stamp + "HINT:  Make some.\n" + stamp + "LOG:  shut down\n",
			"no room; hint: Make some.",
		},
		"a port that is taken": {
			stamp + "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use\n" + stamp + "HINT:  Is another one running?\n" +
				stamp + "FATAL:  could not create any TCP/IP sockets\n",
			"could not create any TCP/IP sockets; could not bind IPv4 address \"127.0.0.1\": Address already in use",
		},
		"refused clients explain nothing": {
			stamp + "PANIC:  broken\n" + stamp + "FATAL:  the database system is starting up\n",
			"broken",
		},
		"no fatal line": {"1\n2\n3\n4\n5\n6\n", "2\n3\n4\n5\n6"},
	} {
		if got := lastFailure(test.log); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
