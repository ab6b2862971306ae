// Package failpoint has places in the code where a test lets a process die, stop or sleep: the numbered lines of the crash tables.
//
// In an ordinary build [Hit] is empty and costs nothing, and [Duration] is the default that it is given. Built with the tag "failpoints", they look for an
// order in the folder that the environment variable CLEAVE_FAILPOINTS names; how orders are written is said by package orders, below this one. The
// points are named after what has just happened; each is where a DESIGN.md has a line for it.
//
// Both functions are safe for concurrent use.
package failpoint
