package tidesdb_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"tidesdb"
)

// resident returns the resident memory of the process that no file backs, in bytes.
func resident(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc")
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			return value(strconv.Atoi(strings.Fields(rest)[0])) << 10
		}
	}
	t.Skip("no RssAnon")
	return 0
}

// TestMemoryIsFlat calls each function many times and compares the memory of the process before and after. TIDESDB_ROUNDS=1000000 makes it a
// million calls of those that neither open, copy, flush nor sync; a hundredth of it of the others.
func TestMemoryIsFlat(t *testing.T) {
	rounds := setting("TIDESDB_ROUNDS", 20_000)
	if testing.Short() {
		rounds = 2000
	}
	operator := tidesdb.MergeOperator{Name: "last", Merge: func(value, operand []byte) ([]byte, error) { return operand, nil }}
	db := made(t, &tidesdb.Options{MemoryLimit: 64 << 20, MergeOperators: []tidesdb.MergeOperator{operator},
		Default: &tidesdb.FamilyOptions{Sync: tidesdb.SyncNone, MergeOperator: "last"}})
	for i := range 100 {
		good(t, db.Put(fmt.Appendf(nil, "key %03d", i), make([]byte, 300), nil))
	}
	good(t, db.Merge([]byte("merged"), []byte("a"), nil))
	good(t, db.Flush(context.Background()))
	key, key2, text := []byte("key 007"), []byte("key x"), make([]byte, 100)
	snapshot, it := value(db.Snapshot()), value(db.Iterator(nil))
	batch := db.Batch()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	second := func(_ any, err error) error { return err }
	for _, each := range []struct {
		name string
		less int // how many times fewer calls
		call func() error
	}{
		{"Get", 1, func() error { return second(db.Get(key)) }},
		{"Get of nothing", 1, func() error { _, err := db.Get(key2); return absent(err) }},
		{"an error", 1, func() error { return refused(db.Put(nil, nil, nil)) }},
		{"AppendGet", 1, func() error { return second(db.AppendGet(text[:0], key)) }},
		{"Has", 1, func() error { return second(db.Has(key)) }},
		{"MultiGet", 1, func() error { return second(db.MultiGet([][]byte{key, key2})) }},
		{"First", 1, func() error { _, _, err := db.First(); return err }},
		{"Expiry", 1, func() error { return second(db.Expiry(key)) }},
		{"Snapshot.Get", 1, func() error { return second(snapshot.Get(key)) }},
		{"merges", 1, func() error { return second(db.Get([]byte("merged"))) }},
		{"Seek", 1, func() error { it.Seek(key); it.Prev(); return it.Err() }},
		{"Iterator", 1, func() error {
			it := value(db.Iterator(&tidesdb.IterOptions{Start: key}))
			it.Next()
			return it.Close()
		}},
		{"Put", 1, func() error { return db.Put(key, text, nil) }},
		{"Delete", 1, func() error { return db.Delete(key2, nil) }},
		{"CompareAndSwap", 1, func() error { return second(db.CompareAndSwap(key2, key, key, nil)) }},
		{"Replace", 1, func() error { return second(db.Replace(key, text, nil)) }},
		{"Batch", 1, func() error {
			batch.Put(key, text)
			batch.Delete(key2)
			return second(batch.Commit(nil))
		}},
		{"CommitAsync", 1, func() error {
			batch.Put(key, text)
			return second(value(batch.CommitAsync(nil)).Wait(ctx))
		}},
		{"Transact", 1, func() error {
			return db.Transact(ctx, tidesdb.Serializable, func(tx *tidesdb.Tx) error {
				if _, err := tx.Get(key); err != nil {
					return err
				}
				return tx.Put(key, text, nil)
			})
		}},
		{"Snapshot", 1, func() error { return value(db.Snapshot()).Close() }},
		{"Setting", 1, func() error { return second(db.Setting("table_bytes")) }},
		{"Family", 1, func() error { return second(db.Family("default")) }},
		{"Families", 1, func() error { return second(db.Families()) }},
		{"Health", 10, func() error { return second(db.Health()) }},
		{"Figures", 100, func() error { return second(db.Figures()) }},
		{"Metrics", 100, func() error { return second(db.Metrics()) }},
		{"Diagnose", 100, func() error { return second(db.Diagnose()) }},
		{"Explain", 100, func() error { return second(db.Explain(key)) }},
		{"NewValueReader", 1, func() error { return value(db.NewValueReader(key)).Close() }},
		{"NewValueWriter", 10, func() error {
			w := value(db.NewValueWriter(key2, tidesdb.NoSync))
			value(w.Write(text))
			return w.Close()
		}},
		{"Flush", 1000, func() error { return db.Flush(ctx) }},
		{"Builder", 1000, func() error {
			b := value(db.NewTableBuilder(""))
			good(t, b.Put(key, text))
			return second(b.Commit(nil))
		}},
		{"Open", 2000, func() error {
			other, err := tidesdb.Open(filepath.Join(t.TempDir(), "x"), &tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{operator}})
			if err != nil {
				return err
			}
			return other.Close()
		}},
	} {
		t.Run(each.name, func(t *testing.T) {
			calls := max(rounds/each.less, 4)
			run := func(n int) int {
				for range n {
					good(t, each.call())
				}
				runtime.GC()
				debug.FreeOSMemory()
				return resident(t)
			}
			run(calls / 4)
			before := run(calls / 4)
			after := run(calls)
			// A leak of 64 bytes per call of a million is 64 MiB. Memtables and the collector's own heap move by a few MiB.
			if limit := before + 24<<20 + min(calls, 1_000_000)*8; after > limit {
				t.Errorf("%d calls: from %d to %d KiB", calls, before>>10, after>>10)
			}
		})
	}
	good(t, it.Close())
	good(t, snapshot.Close())
}

func absent(err error) error {
	if err == tidesdb.ErrNotFound {
		return nil
	}
	return fmt.Errorf("%v, want not found", err)
}

func refused(err error) error {
	if err != nil {
		return nil
	}
	return fmt.Errorf("no error")
}

func TestReadsAllocateLittle(t *testing.T) {
	db := made(t, nil)
	key := []byte("key")
	good(t, db.Put(key, make([]byte, 100), tidesdb.NoSync))
	buffer := make([]byte, 0, 200)
	text := make([]byte, 100)
	for _, each := range []struct {
		name string
		most float64
		call func() error
	}{
		{"Get", 1, func() error { _, err := db.Get(key); return err }},
		{"AppendGet", 0, func() error { _, err := db.AppendGet(buffer, key); return err }},
		{"Get of nothing", 0, func() error { _, err := db.AppendGet(buffer, text); return absent(err) }},
		{"Put", 0, func() error { return db.Put(key, text, tidesdb.NoSync) }},
	} {
		if got := testing.AllocsPerRun(1000, func() { good(t, each.call()) }); got > each.most {
			t.Errorf("%s allocates %g times", each.name, got)
		}
	}
}
