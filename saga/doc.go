// Package saga runs sagas: work in named steps that cannot be one transaction, because some of it happens in other services. Each
// step is done in its turn; if one cannot be done, those that were are compensated, in reverse order. Progress is kept in the
// application's own database, behind a router of Cleave or on a plain PostgreSQL, and any process goes on where another died.
//
// # What it does
//
//   - A [Type] is a name and a list of steps. A [Step] does something, as SQL ([SQL]) or by calling another service ([Outside]), and may say
//     how that is undone.
//   - [Start] begins a saga, in the caller's own transaction if it likes. Started twice with one idempotency key, it is one saga.
//   - A [Runner] takes sagas that are due, whichever shard they are on, and runs their steps. Any number of runners in any number
//     of processes share the work.
//   - [Get] and [List] show sagas; [Retry] and [Abandon] are for those that are stuck; [Purge] removes old ones. [Install] makes the tables.
//
// # What it does not do
//
// Sagas are not isolated: others see what the steps have done so far. It does not make a call to another service happen once: it
// calls at least once, with one idempotency key, and the service has to know it again. It does not undo a step by itself: an action
// without an Undo stays done.
//
// # Guarantees
//
//   - A SQL step is done exactly once: its statements and the saga's progress are one transaction on the saga's home shard.
//   - An outside step is done at least once, each time with the same [Call.IdempotencyKey].
//   - A process that has lost its lease, stopped or cut off as it may have been, writes no progress. Leases go by the clock of the saga's
//     home shard.
//   - A compensation that does not succeed is never passed over: the saga is [Stuck], and shows.
//   - Types and steps that a program does not know, it leaves alone.
//
// DESIGN.md has the reasons, and what is left when somebody dies at each point.
//
// # Concurrency
//
// A [Runner] may be used by several goroutines; its steps' functions run side by side for different sagas. The functions that take a
// [Querier] are as safe as what they are given.
//
// # Where to start reading
//
// saga.go has the words, runner.go finds sagas and shares out places, drive.go takes one saga from step to step, progress.go has every
// statement that writes. example_test.go is an order over three services.
package saga
