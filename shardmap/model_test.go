package shardmap

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The map must do what a plain Go map does, whatever the order of operations.
// Keys are few, so that they collide; the tables start small, so that they grow
// and shrink; and one of the hashers is as bad as can be.

func TestModelOfWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkModel(t, rapid.Uint64Range(0, 40), rapid.OneOf(rapid.Uint64Range(0, 5), rapid.Just(uint64(unsettledWord))))
	})
}

func TestModelOfStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkModel(t, rapid.StringMatching(`[a-d]{0,3}`), rapid.StringN(0, 3, -1))
	})
}

func FuzzModel(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		checkModel(t, rapid.Int16(), rapid.String())
	}))
}

func checkModel[K, V comparable](t *rapid.T, keys *rapid.Generator[K], values *rapid.Generator[V]) {
	config := Config[K]{
		Shards:   rapid.IntRange(0, 5).Draw(t, "shards"),
		Capacity: rapid.IntRange(0, 20).Draw(t, "capacity"),
	}
	if rapid.Bool().Draw(t, "bad hash") {
		config.Hasher = func(K) uint64 { return 1 }
	}
	m, err := NewWithConfig[K, V](config)
	if err != nil {
		t.Fatal(err)
	}
	model := map[K]V{}
	key := func(t *rapid.T) K { return keys.Draw(t, "key") }
	value := func(t *rapid.T) V { return values.Draw(t, "value") }
	same := func(t *rapid.T, got V, gotPresent bool, want V, wantPresent bool) {
		if got != want || gotPresent != wantPresent {
			t.Fatalf("got %v, %v, want %v, %v", got, gotPresent, want, wantPresent)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"get": func(t *rapid.T) {
			k := key(t)
			got, present := m.Get(k)
			want, wantPresent := model[k]
			same(t, got, present, want, wantPresent)
		},
		"set": func(t *rapid.T) {
			k, v := key(t), value(t)
			m.Set(k, v)
			model[k] = v
		},
		"set many": func(t *rapid.T) {
			v := value(t)
			for _, k := range rapid.SliceOfN(keys, 0, 60).Draw(t, "keys") {
				m.Set(k, v)
				model[k] = v
			}
		},
		"delete": func(t *rapid.T) {
			k := key(t)
			old, present := m.Delete(k)
			want, wantPresent := model[k]
			delete(model, k)
			same(t, old, present, want, wantPresent)
		},
		"load or store": func(t *rapid.T) {
			k, v := key(t), value(t)
			got, loaded := m.LoadOrStore(k, v)
			if _, present := model[k]; !present {
				model[k] = v
				same(t, got, loaded, v, false)
				return
			}
			same(t, got, loaded, model[k], true)
		},
		"compute": func(t *rapid.T) {
			k, v := key(t), value(t)
			action := rapid.SampledFrom([]Action{Keep, Put, Remove}).Draw(t, "action")
			got, gotPresent := m.Compute(k, func(old V, present bool) (V, Action) {
				want, wantPresent := model[k]
				same(t, old, present, want, wantPresent)
				return v, action
			})
			switch action {
			case Put:
				model[k] = v
			case Remove:
				delete(model, k)
			case Keep:
			}
			want, wantPresent := model[k]
			same(t, got, gotPresent, want, wantPresent)
		},
		"across": func(t *rapid.T) { modelAcross(t, m, model, keys, values) },
		"clear": func(*rapid.T) {
			m.Clear()
			clear(model)
		},
		"": func(t *rapid.T) {
			if m.Len() != len(model) {
				t.Fatalf("Len = %d, want %d", m.Len(), len(model))
			}
			got := map[K]V{}
			for k, v := range m.All() {
				got[k] = v
			}
			if diff := cmp.Diff(model, got); diff != "" {
				t.Fatal(diff)
			}
		},
	})
}

// modelAcross makes some changes in a transaction and then keeps them or not.
func modelAcross[K, V comparable](
	t *rapid.T, m *Map[K, V], model map[K]V, keys *rapid.Generator[K], values *rapid.Generator[V],
) {
	named := rapid.SliceOfN(keys, 1, 5).Draw(t, "named")
	var routed []Routed[K]
	inside := map[K]V{}
	for _, k := range named {
		routed = append(routed, m.Route(k))
		if v, present := model[k]; present {
			inside[k] = v
		}
	}
	fail := rapid.Bool().Draw(t, "fail")
	err := m.Across(routed, func(tx *Tx[K, V]) error {
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			r := rapid.SampledFrom(routed).Draw(t, "key")
			got, present, err := tx.Get(r)
			if want, wantPresent := inside[r.Key()]; err != nil || got != want || present != wantPresent {
				t.Fatalf("tx.Get = %v, %v, %v", got, present, err)
			}
			if rapid.Bool().Draw(t, "set") {
				v := values.Draw(t, "value")
				inside[r.Key()], err = v, tx.Set(r, v)
			} else {
				delete(inside, r.Key())
				err = tx.Delete(r)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if fail {
			return errTest
		}
		return nil
	})
	if (err != nil) != fail {
		t.Fatalf("Across: %v", err)
	}
	if fail {
		return
	}
	for _, k := range named {
		delete(model, k)
	}
	for k, v := range inside {
		model[k] = v
	}
}
