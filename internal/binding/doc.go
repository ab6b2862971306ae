// Package binding finds the value of a shard key in a statement: what PostgreSQL will store in the key column, or compare it
// with, given the literal or the parameter that the client sent. Rows are routed by that, not by what was sent: 'abc  ' is
// stored in a varchar(3) as abc, and 2.5 in a bigint as 3.
//
// [Value] does it without a server where the answer is certain, which is nearly always, and then without allocating. Where
// only PostgreSQL can say, since it depends on a setting, on a rounding rule or on a spelling that is not worth a second
// implementation, the outcome is [Ask]: [AskSQL] writes the SELECT that any shard can run in the client's session, and [Answer]
// reads its result. A comparison that could match more than one key, such as that of a bigint with a large float8, is [Refused], and so is a
// date or time that means another one each time it is read, such as 'today'.
// What it promises:
//
//   - a value that is [Bound] is what PostgreSQL stores, or the only one that the comparison can match;
//   - where it says [AnyShard], every shard gives the same answer: the same error, or no row.
//
// It does not find out which operand belongs to which key column; package plan does. It does not ask, nor does it know the
// session's settings but for those in [Session]; package session does. All of it is pure and safe for concurrent use, except
// that a value of text or bytes shares the memory of what was bound: [key.Value.Clone] gives one its own.
//
// Begin reading with Value.
package binding
