package sqltext

// IsMinus says whether a piece of text is one minus, with nothing else than parentheses, blanks and comments around it. The grammar makes a
// number and all minuses before it one constant, which begins at the first of them: -(-1) is 1.
func IsMinus(between string) bool {
	minuses := 0
	scanner := NewScanner([]byte(between), true)
	for token, more := scanner.Next(); more; token, more = scanner.Next() {
		switch between[token.Start:token.End] {
		case "-":
			minuses++
		case "(":
		default:
			return false
		}
	}
	return minuses == 1 && scanner.Err() == nil
}
