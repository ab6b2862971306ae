package sqltext

// Token is one token of a text, or one literal.
type Token struct {
	Kind Kind
	// Start and End are its bytes in the text.
	Start, End int
}

// Literal is a token that the normal form leaves out.
type Literal = Token

// Kind is what a token is.
type Kind uint8

// The kinds of tokens. Those of literals come first, see [Kind.IsLiteral].
const (
	// Unsound is no token: the text cannot be read on from there.
	Unsound Kind = iota

	// Integer is a number of digits alone, of any size.
	Integer
	// Float is a number with a decimal point or an exponent.
	Float
	// String is '…' without escapes: what is between the quotes, but for doubled quotes, is the value.
	String
	// EscapeString is E'…', or '…' with a backslash inside where standard_conforming_strings is off.
	EscapeString
	// DollarString is $tag$…$tag$.
	DollarString
	// UnicodeString is U&'…'. A UESCAPE that follows is a token of its own, and so is its string.
	UnicodeString
	// BitString is B'…'.
	BitString
	// HexString is X'…'.
	HexString
	// NationalString is the '…' of N'…'. As in PostgreSQL the N is a [Word] before it, which stands for the type nchar.
	NationalString

	// Word is a keyword or a name without quotes.
	Word
	// QuotedWord is "…" or U&"…".
	QuotedWord
	// Param is $1.
	Param
	// Number is a number that only newer versions of PostgreSQL know: 0x1F, 0o7, 0b1, 1_000.
	Number
	// Operator is one of the characters that operators are made of, or several.
	Operator
	// Punctuation is one of , ( ) [ ] . ; : and the pairs :: := ..
	Punctuation
	// Other is a character that no SQL has outside quotes.
	Other
)

// IsLiteral tells whether the normal form leaves such tokens out.
func (k Kind) IsLiteral() bool { return k >= Integer && k <= NationalString }

func (k Kind) isString() bool { return k >= String && k <= NationalString }
