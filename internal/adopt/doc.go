// Package adopt takes a PostgreSQL database that is in use, as applications with an object-relational mapper make them, for the first shard of
// a cluster: without copying rows, and without an application that has to stop.
//
// # What it does
//
//   - [Read] reads the catalogue of the database: tables, keys, foreign keys, sequences, triggers, estimates of sizes.
//   - [Propose] makes a [Plan] of it: which table is at the root, which tables are sharded by its key, which ones are reference tables, which
//     stay as they are, each with its reason. A plan is decisions alone, as a file that a person may edit.
//   - [Assess] holds a plan against the catalogue: what stands in the way of each table, also of moving its rows to another shard later,
//     and the [Step]s that mend it while the application goes on. What is done already is not among them.
//   - [Look] does all of this for a database, and asks the declaring code itself ([Verify]) what else it would refuse.
//   - [Mend] runs the steps, one by one. [Door] says who is connected past the routers, and how to close that door.
//
// # What it does not do
//
// It knows no cluster: claiming the database, making the keyspace and declaring the tables is the control plane's, which the command asks.
// It moves no rows. It decides nothing that loses something: a foreign key that cannot be kept is dropped only if the plan says so, and a
// unique constraint that would become weaker stays as it is, held by each shard alone.
//
// # Guarantees
//
//   - Propose and Assess are functions of their arguments.
//   - Nothing but Mend changes the database. No step of its rewrites a table or holds a lock that keeps others from it for longer than a
//     moment: what needs such a lock gives up when it has to wait, and tries again.
//   - Mend can be interrupted at any moment, and goes on where it was: what is left to do is read from the database each time.
//
// Plans, catalogues and assessments are plain values, safe for concurrent use while nobody changes them. Functions that take a connection use it
// alone until they return.
//
// Start reading at plan.go, then propose.go, assess.go and steps.go.
package adopt
