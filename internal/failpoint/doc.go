// Package failpoint has places in the code where a test lets a process die, stop or sleep: the numbered lines of the crash tables.
//
// In an ordinary build [Hit] is empty and costs nothing. Built with the tag "failpoints", it looks for an order in the folder that the environment variable
// CLEAVE_FAILPOINTS names. The points are named after what has just happened; each is where a DESIGN.md has a line for it.
//
// Hit is safe for concurrent use.
package failpoint
