package sqltext

// number reads a number that begins with a digit, or with a point and a digit.
func (l *lexer) number(start int) (Kind, int) {
	end := l.digits(start)
	switch next := l.at(end); {
	case next != '.' && class[next]&isWordStart == 0 && end > start:
		return Integer, end // nearly always
	case end == start+1 && l.text[start] == '0' && radixDigits(next|0x20) != "":
		return l.radixNumber(start)
	}
	return l.decimal(start)
}

// decimal reads a number with all that may belong to it: underscores between digits, a fraction, an exponent.
func (l *lexer) decimal(start int) (Kind, int) {
	kind, end, underscores := Integer, start, false
	part := start // since the last point or sign
	if l.text[start] != '.' {
		end, underscores = l.grouped(start)
	}
	if l.at(end) == '.' && l.at(end+1) != '.' {
		kind, end, part = Float, end+1, end+1
		if l.is(end, isDigit) {
			var more bool
			end, more = l.grouped(end)
			underscores = underscores || more
		}
	}
	if exponent := l.exponent(end); exponent > 0 {
		var more bool
		if kind = Float; exponent > end+1 {
			part = exponent
		}
		end, more = l.grouped(exponent)
		underscores = underscores || more
	}
	if l.junk(part, end) {
		return l.unsound(start, errNumber)
	}
	if underscores {
		kind = Number
	}
	return kind, end
}

// exponent returns where the digits of an exponent begin, 0 if there is none at i.
func (l *lexer) exponent(i int) int {
	if l.at(i)|0x20 != 'e' {
		return 0
	}
	if i++; l.at(i) == '+' || l.at(i) == '-' {
		i++
	}
	if !l.is(i, isDigit) {
		return 0
	}
	return i
}

// grouped returns the end of digits that may have single underscores between them, and whether there is one.
func (l *lexer) grouped(i int) (end int, underscores bool) {
	for end = l.digits(i); l.at(end) == '_' && l.is(end+1, isDigit); end = l.digits(end + 1) {
		underscores = true
	}
	return end, underscores
}

// radixDigits returns the digits that may follow a 0 and this letter.
func radixDigits(letter byte) string {
	switch letter {
	case 'x':
		return "0123456789abcdef"
	case 'o':
		return "01234567"
	case 'b':
		return "01"
	}
	return ""
}

func (l *lexer) radixNumber(start int) (Kind, int) {
	digits, end := radixDigits(l.text[start+1]|0x20), start+2
	for {
		next := end
		if l.at(next) == '_' {
			next++
		}
		if !isOneOf(l.at(next), digits) {
			break
		}
		end = next + 1
	}
	if end == start+2 || l.junk(start, end) {
		return l.unsound(start, errNumber)
	}
	return Number, end
}

func isOneOf(c byte, digits string) bool {
	for i := range len(digits) {
		if c == digits[i] || c >= 'A' && c|0x20 == digits[i] {
			return true
		}
	}
	return false
}

// junk tells whether PostgreSQL would read more than a number there: the longest match wins, and one of its rules takes a
// number and a word that follows at once. If the number's last part looks like such a word itself, as in 1e5 or 1_0, then
// everything that can go on a word can go on it.
func (l *lexer) junk(part, end int) bool {
	if l.is(end, isWordStart) {
		return true
	}
	for i := part; i < end; i++ {
		if l.is(i, isWordStart) {
			return l.is(end, isWordPart)
		}
	}
	return false
}

// integerMark says which type PostgreSQL gives an integer: i for integer, l for bigint, n for numeric. It is decided before
// a minus is looked at; PostgreSQL looks again after, and so does whoever binds the value.
func integerMark(digits []byte) byte {
	const surely = 9 // digits fit into an integer
	if len(digits) <= surely {
		return 'i'
	}
	for len(digits) > 1 && digits[0] == '0' {
		digits = digits[1:]
	}
	switch {
	case !exceeds(digits, "2147483647"):
		return 'i'
	case !exceeds(digits, "9223372036854775807"):
		return 'l'
	}
	return 'n'
}

// exceeds compares two numbers without leading zeros.
func exceeds(digits []byte, limit string) bool {
	if len(digits) != len(limit) {
		return len(digits) > len(limit)
	}
	return string(digits) > limit
}
