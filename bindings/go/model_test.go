package tidesdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tidesdb"
)

// model is what a family should contain.
type model map[string]string

func (m model) keys(start, end string) []string {
	keys := slices.Sorted(maps.Keys(m))
	return slices.DeleteFunc(keys, func(key string) bool { return key < start || end != "" && key >= end })
}

// pair is a family with its model.
type pair struct {
	name string
	f    *tidesdb.Family
	m    model
}

type run struct {
	t        *testing.T
	r        *rand.Rand
	db       *tidesdb.DB
	path     string
	families []*pair
	files    int
}

// TestRandomCallsAgainstAModel makes random calls and compares every answer with that of a map. TIDESDB_SEEDS is how many seeds it
// uses, TIDESDB_SEED the first one.
func TestRandomCallsAgainstAModel(t *testing.T) {
	first, seeds := setting("TIDESDB_SEED", 1), setting("TIDESDB_SEEDS", 4)
	if testing.Short() {
		seeds = min(seeds, 2)
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint("TIDESDB_SEED=", seed), func(t *testing.T) { random(t, uint64(seed)) })
	}
}

func setting(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return or
}

func random(t *testing.T, seed uint64) {
	x := &run{t: t, r: rand.New(rand.NewPCG(seed, 61)), path: filepath.Join(t.TempDir(), "db")}
	x.open()
	defer func() { good(t, x.db.Close()) }()
	for range 4000 {
		x.step()
		if t.Failed() {
			return
		}
	}
	for _, each := range x.families {
		x.checkAll(each)
	}
}

func (x *run) open() {
	x.db = value(tidesdb.Open(x.path, &tidesdb.Options{HistoryBytes: 1 << 20}))
	for _, name := range []string{"one", "two"} {
		f, err := x.db.Family(name)
		if errors.Is(err, tidesdb.ErrNotFound) {
			f = value(x.db.CreateFamily(name, &tidesdb.FamilyOptions{
				Sync: tidesdb.SyncNone, MergeOperator: "tidesdb.append:,", ValueThreshold: 200, WriteBufferBytes: 64 << 10,
			}))
			x.families = append(x.families, &pair{name, f, model{}})
			continue
		}
		good(x.t, err)
		i := slices.IndexFunc(x.families, func(p *pair) bool { return p.name == name })
		x.families[i].f = f
	}
}

func (x *run) key() string {
	key := strconv.Itoa(x.r.IntN(500))
	if x.r.IntN(50) == 0 {
		return key + strings.Repeat("k", x.r.IntN(3000))
	}
	return key
}

func (x *run) value() string {
	long := 30
	switch x.r.IntN(100) {
	case 0:
		long = 100_000
	case 1, 2, 3, 4:
		long = 1000
	}
	return strings.Repeat(string(rune('a'+x.r.IntN(26))), x.r.IntN(long))
}

func (x *run) pair() *pair { return x.families[x.r.IntN(len(x.families))] }

// writer is what a family, a transaction and a batch have in common.
type writer struct {
	put         func(key, value []byte) error
	delete      func(key []byte) error
	merge       func(key, operand []byte) error
	deleteRange func(start, end []byte) error
	prefix      func(prefix []byte) error
}

func ofFamily(f *tidesdb.Family) writer {
	return writer{
		func(k, v []byte) error { return f.Put(k, v, nil) },
		func(k []byte) error { return f.Delete(k, nil) },
		func(k, v []byte) error { return f.Merge(k, v, nil) },
		func(s, e []byte) error { return f.DeleteRange(s, e, nil) },
		func(p []byte) error { return f.DeletePrefix(p, nil) },
	}
}

func ofTx(t *tidesdb.TxFamily) writer {
	return writer{func(k, v []byte) error { return t.Put(k, v, nil) }, t.Delete, t.Merge, t.DeleteRange, t.DeletePrefix}
}

func ofBatch(b *tidesdb.BatchFamily) writer {
	return writer{
		func(k, v []byte) error { b.Put(k, v); return nil },
		func(k []byte) error { b.Delete(k); return nil },
		func(k, v []byte) error { b.Merge(k, v); return nil },
		func(s, e []byte) error { b.DeleteRange(s, e); return nil },
		func(p []byte) error { b.DeletePrefix(p); return nil },
	}
}

// write makes one random write to a writer and to a model.
func (x *run) write(w writer, m model) {
	key, text := x.key(), x.value()
	switch n := x.r.IntN(100); {
	case n < 60:
		good(x.t, w.put([]byte(key), []byte(text)))
		m[key] = text
	case n < 80:
		good(x.t, w.delete([]byte(key)))
		delete(m, key)
	case n < 92:
		good(x.t, w.merge([]byte(key), []byte(text)))
		if old, ok := m[key]; ok {
			text = old + "," + text
		}
		m[key] = text
	case n < 97:
		end := x.end(key)
		good(x.t, w.deleteRange([]byte(key), []byte(end)))
		maps.DeleteFunc(m, func(k, _ string) bool { return k >= key && (end == "" || k < end) })
	default:
		prefix := key[:min(2, len(key))]
		good(x.t, w.prefix([]byte(prefix)))
		maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, prefix) })
	}
}

// end returns a key behind start, or none.
func (x *run) end(start string) string {
	if x.r.IntN(20) == 0 {
		return ""
	}
	end := start + "5"
	if x.r.IntN(2) == 0 {
		end = start[:len(start)-1] + "~"
	}
	return end
}

func (x *run) step() {
	p := x.pair()
	switch n := x.r.IntN(1000); {
	case n < 400:
		x.write(ofFamily(p.f), p.m)
	case n < 600:
		x.checkKey(p.f, p.m, x.key())
	case n < 700:
		x.scan(p.f, p.m)
	case n < 760:
		x.batch()
	case n < 820:
		x.transaction()
	case n < 850:
		x.multi(p)
	case n < 900:
		x.single(p)
	case n < 930:
		x.snapshot(p)
	case n < 960:
		x.ingest(p)
	case n < 980:
		good(x.t, p.f.Flush(context.Background()))
	case n < 985:
		good(x.t, p.f.Compact(context.Background()))
	case n < 988:
		good(x.t, x.db.Close())
		x.open()
	default:
		x.ends(p)
	}
}

type reads interface {
	Get(key []byte) ([]byte, error)
	AppendGet(dst, key []byte) ([]byte, error)
	Has(key []byte) (bool, error)
	Iterator(opts *tidesdb.IterOptions) (*tidesdb.Iterator, error)
}

func (x *run) checkKey(from reads, m model, key string) {
	want, ok := m[key]
	got, err := from.Get([]byte(key))
	appended, second := from.AppendGet([]byte("before "), []byte(key))
	has := value(from.Has([]byte(key)))
	if has != ok || !ok && (err != tidesdb.ErrNotFound || second != tidesdb.ErrNotFound) {
		x.t.Errorf("%q: %v %v %v, want %v", key, err, second, has, ok)
	}
	if ok && (err != nil || string(got) != want || string(appended) != "before "+want) {
		x.t.Errorf("%q: %q %q %v, want %q", key, got, appended, err, want)
	}
}

func (x *run) checkAll(p *pair) {
	it := value(p.f.Iterator(nil))
	defer it.Close()
	keys := p.m.keys("", "")
	for key, text := range it.All() {
		if len(keys) == 0 || keys[0] != string(key) || p.m[keys[0]] != string(text) {
			x.t.Fatalf("%q = %q, want %q", key, text, keys)
		}
		keys = keys[1:]
	}
	if it.Err() != nil || len(keys) > 0 {
		x.t.Fatal(it.Err(), "missing: ", keys)
	}
}

// scan moves an iterator in random ways, beside a position in the sorted keys of the model: between two rows, or at one.
func (x *run) scan(from reads, m model) {
	opts := &tidesdb.IterOptions{KeysOnly: x.r.IntN(4) == 0}
	start, end := "", ""
	switch x.r.IntN(3) {
	case 0:
		start = x.key()
		end = x.end(start)
		opts.Start, opts.End = []byte(start), []byte(end)
	case 1:
		start = x.key()[:1]
		end = string([]byte{start[0] + 1})
		opts.Prefix = []byte(start)
	}
	keys := m.keys(start, end)
	it := value(from.Iterator(opts))
	defer it.Close()
	// The current row is keys[at], or none: then the iterator stands before keys[gap].
	at, gap, fresh := -1, 0, true
	for range x.r.IntN(60) {
		ok, want := false, -1
		switch n := x.r.IntN(20); {
		case n < 10:
			ok, want = it.Next(), gap
			if at >= 0 {
				want = at + 1
			}
		case n < 17:
			ok, want = it.Prev(), gap-1
			if at >= 0 {
				want = at - 1
			} else if fresh {
				want = len(keys) - 1
			}
		default:
			key := x.key()
			i, found := slices.BinarySearch(keys, key)
			if n < 19 {
				ok, want = it.Seek([]byte(key)), i
			} else {
				ok, want = it.SeekBack([]byte(key)), i-1
				if found {
					want = i
				}
			}
		}
		fresh = false
		if it.Err() != nil || ok != (want >= 0 && want < len(keys)) || ok != it.Valid() {
			x.t.Fatalf("%v %v at %d of %d", it.Err(), ok, want, len(keys))
		}
		at, gap = -1, max(0, min(want, len(keys)))
		if want < 0 {
			gap = 0
		}
		if ok {
			at = want
			text := m[keys[at]]
			if opts.KeysOnly {
				text = ""
			}
			if string(it.Key()) != keys[at] || string(it.Value()) != text {
				x.t.Fatalf("%q = %q, want %q = %q", it.Key(), it.Value(), keys[at], text)
			}
		}
	}
}

func (x *run) batch() {
	batch := x.db.Batch()
	copies := []model{maps.Clone(x.families[0].m), maps.Clone(x.families[1].m)}
	ops := x.r.IntN(40)
	for range ops {
		i := x.r.IntN(2)
		x.write(ofBatch(batch.In(x.families[i].f)), copies[i])
	}
	if batch.Len() != ops {
		x.t.Errorf("%d operations, want %d", batch.Len(), ops)
	}
	switch x.r.IntN(4) {
	case 0:
		batch.Reset()
		return
	case 1:
		value(value(batch.CommitAsync(tidesdb.NoSync)).Wait(context.Background()))
	default:
		value(batch.Commit(tidesdb.NoSync))
	}
	x.families[0].m, x.families[1].m = copies[0], copies[1]
}

func (x *run) transaction() {
	level := tidesdb.Isolation(x.r.IntN(5))
	tx := value(x.db.Begin(level))
	defer tx.Rollback()
	copies := []model{maps.Clone(x.families[0].m), maps.Clone(x.families[1].m)}
	saved := []model{nil, nil}
	for range x.r.IntN(20) {
		i := x.r.IntN(2)
		in := tx.In(x.families[i].f)
		switch n := x.r.IntN(20); {
		case n < 12:
			x.write(ofTx(in), copies[i])
		case n < 16:
			x.checkKey(in, copies[i], x.key())
		case n < 18:
			x.scan(in, copies[i])
		case n < 19:
			good(x.t, tx.Savepoint("s"))
			saved = []model{maps.Clone(copies[0]), maps.Clone(copies[1])}
		case saved[0] != nil:
			good(x.t, tx.RollbackTo("s"))
			copies, saved = saved, []model{nil, nil}
		}
	}
	if x.r.IntN(3) == 0 {
		return
	}
	if _, err := tx.Commit(tidesdb.NoSync); err != nil {
		x.t.Error(err)
	}
	x.families[0].m, x.families[1].m = copies[0], copies[1]
}

func (x *run) multi(p *pair) {
	var keys [][]byte
	for range x.r.IntN(50) {
		keys = append(keys, []byte(x.key()))
	}
	values, has := value(p.f.MultiGet(keys)), value(p.f.MultiHas(keys))
	for i, key := range keys {
		want, ok := p.m[string(key)]
		if (values[i] != nil) != ok || has[i] != ok || string(values[i]) != want {
			x.t.Errorf("%q: %q, want %q", key, values[i], want)
		}
	}
}

func (x *run) single(p *pair) {
	key, text := x.key(), x.value()
	old, ok := p.m[key]
	switch x.r.IntN(4) {
	case 0:
		got, err := p.f.Take([]byte(key), nil)
		if errors.Is(err, tidesdb.ErrNotFound) == ok || string(got) != old {
			x.t.Errorf("take %q: %q %v, want %q", key, got, err, old)
		}
		delete(p.m, key)
	case 1:
		got := value(p.f.Replace([]byte(key), []byte(text), nil))
		if (got != nil) != ok || string(got) != old {
			x.t.Errorf("replace %q: %q, want %q", key, got, old)
		}
		p.m[key] = text
	case 2:
		var expected []byte
		if ok && x.r.IntN(3) > 0 {
			expected = append([]byte{}, old...)
		}
		swapped := value(p.f.CompareAndSwap([]byte(key), expected, []byte(text), nil))
		if should := (expected != nil) == ok; swapped != should {
			x.t.Errorf("swap %q: %v", key, swapped)
		} else if should {
			p.m[key] = text
		}
	default:
		keys := p.m.keys("", "")
		first, got, err := p.f.PopFirst(nil)
		if len(keys) == 0 {
			fails(x.t, "pop", err, tidesdb.ErrNotFound)
		} else if err != nil || string(first) != keys[0] || string(got) != p.m[keys[0]] {
			x.t.Errorf("pop %q = %q %v, want %q", first, got, err, keys[0])
		}
		delete(p.m, string(first))
	}
}

func (x *run) snapshot(p *pair) {
	snapshot := value(x.db.Snapshot())
	defer snapshot.Close()
	old := maps.Clone(p.m)
	for range 20 {
		x.write(ofFamily(p.f), p.m)
	}
	past := value(x.db.SnapshotAt(snapshot.Seq()))
	defer past.Close()
	for _, each := range []*tidesdb.Snapshot{snapshot, past} {
		x.checkKey(each.In(p.f), old, x.key())
		x.scan(each.In(p.f), old)
	}
}

func (x *run) ingest(p *pair) {
	stem := ""
	if x.r.IntN(2) == 0 {
		x.files++
		stem = filepath.Join(x.path, "..", fmt.Sprint("t", x.files))
	}
	builder := value(p.f.NewTableBuilder(stem))
	defer builder.Close()
	rows := model{}
	for range x.r.IntN(200) {
		rows[x.key()] = x.value()
	}
	for _, key := range rows.keys("", "") {
		if rows[key] == "" {
			good(x.t, builder.Delete([]byte(key)))
		} else {
			good(x.t, builder.Put([]byte(key), []byte(rows[key])))
		}
	}
	if stem == "" {
		value(builder.Commit(nil))
	} else {
		paths := value(builder.Finish())
		tables := []tidesdb.Tables{{Family: p.f, Paths: paths}}
		value(x.db.Ingest(context.Background(), tables, tidesdb.Transfer(x.r.IntN(3)), nil))
	}
	for key, text := range rows {
		if text == "" {
			delete(p.m, key)
		} else {
			p.m[key] = text
		}
	}
}

func (x *run) ends(p *pair) {
	keys := p.m.keys("", "")
	first, _, err := p.f.First()
	last, text, second := p.f.Last()
	if len(keys) == 0 {
		fails(x.t, "first", err, tidesdb.ErrNotFound)
		fails(x.t, "last", second, tidesdb.ErrNotFound)
	} else if !bytes.Equal(first, []byte(keys[0])) || string(last) != keys[len(keys)-1] || string(text) != p.m[string(last)] {
		x.t.Errorf("%q to %q, want %q to %q", first, last, keys[0], keys[len(keys)-1])
	}
}
