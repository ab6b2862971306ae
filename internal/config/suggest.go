package config

// paths lists what is directly in the section.
func (all entries) paths(section string) []string {
	var paths []string
	for _, e := range all {
		if joinPath(section, e.name()) == e.Path {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// nearest returns the word that was probably meant by one that is not known.
func nearest(unknown string, words []string) (word string, found bool) {
	const typo = 3
	least := typo + 1
	for _, w := range words {
		if d := distance(unknown, w); d < least {
			word, least = w, d
		}
	}
	return word, word != ""
}

// distance counts the letters to insert, delete or replace to make one word of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
