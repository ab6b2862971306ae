package sqltext

// Comments calls see with the inside of every comment of a text, in order, until it returns false. What looks like a comment
// inside a literal or a quoted name is none.
func Comments(text []byte, standardConforming bool, see func(comment []byte) bool) {
	l := lexer{text: text, standardConforming: standardConforming}
	for at := 0; at < len(text) && l.problem == nil; {
		next := l.skip(at)
		if !commentsIn(text[at:next], see) || next == len(text) {
			return
		}
		kind, end := l.token(next)
		if kind == Unsound {
			return
		}
		at = end
	}
}

// commentsIn finds the comments in a stretch of text that has nothing else in it but blanks.
func commentsIn(gap []byte, see func([]byte) bool) bool {
	for i := 0; i+1 < len(gap); {
		l := lexer{text: gap}
		switch {
		case gap[i] == '-' && gap[i+1] == '-':
			end := l.lineEnd(i)
			if !see(gap[i+2 : end]) {
				return false
			}
			i = end
		case gap[i] == '/' && gap[i+1] == '*':
			end := l.commentEnd(i)
			if end < i+4 || end > len(gap) || !see(gap[i+2:end-2]) {
				return false
			}
			i = end
		default:
			i++
		}
	}
	return true
}
