package shardmap

import (
	"reflect"
	"sync/atomic"
	"unsafe"
)

// entry is one key of a map. It is the head of a wordEntry or of a boxEntry;
// all entries of one map are of the same sort. The key never changes. The value
// may be overwritten without a lock, which is why tables share entries instead
// of copying them.
//
// A value can also be unsettled. That says nothing about the key except that
// the shard's lock has to be asked: it may have been deleted, or an operation
// that holds the lock keeps others away from it. Only the holder of the lock
// makes a value unsettled or settles it again, and whoever holds the lock finds
// no unsettled value in the table but the ones it made itself.
type entry[K comparable] struct {
	key K
}

// wordEntry keeps its value in one word. It is for values without pointers, of
// at most eight bytes.
type wordEntry[K comparable] struct {
	entry[K]
	word atomic.Uint64
}

// boxEntry keeps its value behind a pointer. Nil is unsettled.
type boxEntry[K comparable, V any] struct {
	entry[K]
	box atomic.Pointer[V]
}

// firstInside is a boxEntry with space for its first box, so that reading a value
// that was never overwritten touches no other cache line. The space is lost when
// the value is overwritten; it is used only for values without pointers, which
// keep nothing else alive meanwhile.
type firstInside[K comparable, V any] struct {
	boxEntry[K, V]
	first V
}

// maxFirstInside is the size of the biggest value to be kept in a firstInside.
const maxFirstInside = 64

// unsettledWord is the word that says unsettled. A value may happen to have the
// same bits. That is correct, only slower: under the lock, the word of an entry
// in the table is its value.
const unsettledWord = 0x9d5b_e21f_c4a7_3860

// values is how a map keeps its values: in words or in boxes.
type values[K comparable, V any] struct {
	inWords     bool
	firstInside bool
}

func newValues[K comparable, V any]() values[K, V] {
	t := reflect.TypeFor[V]()
	free := pointerFree(t)
	return values[K, V]{
		inWords:     free && t.Size() <= 8,
		firstInside: free && t.Size() > 8 && t.Size() <= maxFirstInside,
	}
}

// pointerFree says whether a type holds nothing that the garbage collector has
// to see.
func pointerFree(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return t.Len() == 0 || pointerFree(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !pointerFree(t.Field(i).Type) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// seen is a value as it was read, to be replaced only if it is still there.
type seen[V any] struct {
	word uint64
	box  *V
}

func (values[K, V]) asWord(e *entry[K]) *wordEntry[K] {
	return (*wordEntry[K])(unsafe.Pointer(e))
}

func (values[K, V]) asBox(e *entry[K]) *boxEntry[K, V] {
	return (*boxEntry[K, V])(unsafe.Pointer(e))
}

// make returns a new entry.
func (vs values[K, V]) make(key K, value V) *entry[K] {
	if vs.inWords {
		e := &wordEntry[K]{entry: entry[K]{key}}
		e.word.Store(wordOf(value))
		return &e.entry
	}
	if vs.firstInside {
		e := &firstInside[K, V]{boxEntry: boxEntry[K, V]{entry: entry[K]{key}}, first: value}
		e.box.Store(&e.first)
		return &e.entry
	}
	e := &boxEntry[K, V]{entry: entry[K]{key}}
	e.box.Store(boxOf(value))
	return &e.entry
}

// makeUnsettled returns a new entry that has no value yet.
func (vs values[K, V]) makeUnsettled(key K) *entry[K] {
	if vs.inWords {
		e := &wordEntry[K]{entry: entry[K]{key}}
		e.word.Store(unsettledWord)
		return &e.entry
	}
	return &(&boxEntry[K, V]{entry: entry[K]{key}}).entry
}

// load reads a value without the lock. It fails if the value is unsettled.
func (vs values[K, V]) load(e *entry[K]) (value V, settled bool) {
	if vs.inWords {
		word := vs.asWord(e).word.Load()
		if word == unsettledWord {
			return value, false
		}
		return valueOf[V](word), true
	}
	box := vs.asBox(e).box.Load()
	if box == nil {
		return value, false
	}
	return *box, true
}

// overwrite replaces a value without the lock. It fails if the value is
// unsettled.
func (vs values[K, V]) overwrite(e *entry[K], value V) bool {
	if vs.inWords {
		return overwriteWord(&vs.asWord(e).word, wordOf(value))
	}
	return overwriteBox(&vs.asBox(e).box, boxOf(value))
}

func overwriteWord(at *atomic.Uint64, word uint64) bool {
	if word == unsettledWord {
		return false
	}
	for {
		old := at.Load()
		if old == unsettledWord {
			return false
		}
		if at.CompareAndSwap(old, word) {
			return true
		}
	}
}

func overwriteBox[V any](at *atomic.Pointer[V], box *V) bool {
	for {
		old := at.Load()
		if old == nil {
			return false
		}
		if at.CompareAndSwap(old, box) {
			return true
		}
	}
}

// peek reads the value of an entry in the table, under the lock.
func (vs values[K, V]) peek(e *entry[K]) (V, seen[V]) {
	if vs.inWords {
		word := vs.asWord(e).word.Load()
		return valueOf[V](word), seen[V]{word: word}
	}
	box := vs.asBox(e).box.Load()
	return *box, seen[V]{box: box}
}

// settle gives an entry a value, whatever it had, under the lock.
func (vs values[K, V]) settle(e *entry[K], value V) {
	if vs.inWords {
		vs.asWord(e).word.Store(wordOf(value))
		return
	}
	vs.asBox(e).box.Store(boxOf(value))
}

// settleIf gives an entry a value if it still has the one that was seen, under
// the lock.
func (vs values[K, V]) settleIf(e *entry[K], old seen[V], value V) bool {
	if vs.inWords {
		return vs.asWord(e).word.CompareAndSwap(old.word, wordOf(value))
	}
	return vs.asBox(e).box.CompareAndSwap(old.box, boxOf(value))
}

// unsettle takes the value away, under the lock. Until it is settled again,
// everybody else has to wait for the lock.
func (vs values[K, V]) unsettle(e *entry[K]) V {
	if vs.inWords {
		return valueOf[V](vs.asWord(e).word.Swap(unsettledWord))
	}
	return *vs.asBox(e).box.Swap(nil)
}

// unsettleIf takes the value away if it is still the one that was seen, under
// the lock.
func (vs values[K, V]) unsettleIf(e *entry[K], old seen[V]) bool {
	if vs.inWords {
		return vs.asWord(e).word.CompareAndSwap(old.word, unsettledWord)
	}
	return vs.asBox(e).box.CompareAndSwap(old.box, nil)
}

// wordOf packs a value of at most eight bytes without pointers.
func wordOf[V any](value V) (word uint64) {
	*(*V)(unsafe.Pointer(&word)) = value
	return word
}

// valueOf is the inverse of wordOf.
func valueOf[V any](word uint64) V {
	return *(*V)(unsafe.Pointer(&word))
}

// boxOf copies a value to the heap. It is a function of its own so that its
// parameter, and not the caller's, is what escapes.
func boxOf[V any](value V) *V { return &value }
