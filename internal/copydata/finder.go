package copydata

import "bytes"

// finder finds the places of one character, going forward, and looks at no byte twice.
type finder struct {
	char byte
	at   int // the last place found, or the data's length; negative if nothing was looked at yet
}

// from returns the first place at or after this one, or the data's length. Places asked for must not go back.
func (f *finder) from(data []byte, place int) int {
	if f.at >= place {
		return f.at
	}
	return f.search(data, place)
}

func (f *finder) search(data []byte, place int) int {
	f.at = len(data)
	if found := bytes.IndexByte(data[place:], f.char); found >= 0 {
		f.at = place + found
	}
	return f.at
}

// grown is told that the data was that long, and has become longer.
func (f *finder) grown(data []byte, length int) {
	if f.at == length {
		f.search(data, length)
	}
}

// shift makes places count from a later beginning.
func (f *finder) shift(by int) { f.at = max(f.at-by, -1) }
