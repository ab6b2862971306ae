// Package sqltext reads SQL as PostgreSQL's scanner does: token by token, without a grammar, without cgo and without
// allocating, because every statement of every client comes through here.
//
// [Normalized] gives a text's normal form: literals taken out, white space and comments evened out, everything else as it
// stands. It is what plans are cached under. Its promise:
//
//	Two texts with the same normal form have the same tokens, but for the values of their literals.
//
// So a plan that was made for one text holds for the other, as far as it does not depend on a literal's value. The type that
// PostgreSQL gives a literal is part of the normal form: an integer that needs eight bytes is not one that needs four.
// [Normalized.Value] gives back what a literal stands for, where that can be told without PostgreSQL. [Scanner] gives the
// tokens themselves, to those who look for a place in a text.
//
// Names and values that others write into SQL are quoted here, and lists of names taken apart, in the one way that PostgreSQL reads
// them ([QuoteLiteral], [QuoteIdentifier], [SplitNames]).
//
// It does not parse or know what a name means: packages facts and plan do. It does not say that a text is right,
// either. What it finds unsound (a quote that is not closed, junk after a number) PostgreSQL refuses too, but much that
// PostgreSQL refuses passes here. Where versions of PostgreSQL differ, as for 0x1F and 1_000, the form is kept as it stands.
//
// The text must be in UTF-8, or in an encoding in which no byte below 0x80 is ever a part of a longer character; PostgreSQL
// converts before it scans, and this package does not. Nothing here starts goroutines or locks; a Normalized or a Scanner
// belongs to one goroutine at a time.
//
// Begin reading with lexer.token, which is the whole of the lexical rules.
package sqltext
