package tidesdb_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tidesdb"
)

// must ends a sample at an error, which a program would handle.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func value[T any](value T, err error) T {
	must(err)
	return value
}

// folder returns a folder for a sample, and a function that removes it.
func folder() (string, func()) {
	path := value(os.MkdirTemp("", "tidesdb-go-"))
	return path, func() { os.RemoveAll(path) }
}

// shop returns a database for a sample, and a function that closes and removes it.
func shop(opts *tidesdb.Options) (*tidesdb.DB, func()) {
	path, remove := folder()
	db := value(tidesdb.Open(filepath.Join(path, "shop.db"), opts))
	return db, func() {
		must(db.Close())
		remove()
	}
}

func number(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

var ctx = context.Background()

func ExampleOpen() {
	path, remove := folder()
	defer remove()
	db, err := tidesdb.Open(filepath.Join(path, "shop.db"), &tidesdb.Options{MemoryLimit: 256 << 20})
	must(err)
	must(db.Put([]byte("apple"), []byte("3"), nil)) // durable when it returns
	fmt.Println(string(value(db.Get([]byte("apple")))))
	must(db.Close())

	_, err = tidesdb.Open(filepath.Join(path, "none.db"), &tidesdb.Options{MustExist: true})
	fmt.Println(errors.Is(err, tidesdb.ErrNotFound))
	db = value(tidesdb.Open(filepath.Join(path, "shop.db"), &tidesdb.Options{ReadOnly: true}))
	defer db.Close()
	fmt.Println(errors.Is(db.Put([]byte("apple"), nil, nil), tidesdb.ErrReadOnly))
	// Output:
	// 3
	// true
	// true
}

func ExampleDB_Get() {
	db, done := shop(nil)
	defer done()
	must(db.Put([]byte("apple"), []byte("3"), nil))
	apple, err := db.Get([]byte("apple"))
	fmt.Println(string(apple), err)
	_, err = db.Get([]byte("pear"))
	fmt.Println(errors.Is(err, tidesdb.ErrNotFound))

	buffer := make([]byte, 0, 64)
	buffer, err = db.AppendGet(buffer, []byte("apple")) // no allocation
	fmt.Println(string(buffer), err)
	fmt.Println(db.Has([]byte("pear")))
	fmt.Println(db.Expiry([]byte("apple")))
	// Output:
	// 3 <nil>
	// true
	// 3 <nil>
	// false <nil>
	// 0001-01-01 00:00:00 +0000 UTC <nil>
}

func ExampleDB_MultiGet() {
	db, done := shop(nil)
	defer done()
	must(db.Put([]byte("apple"), []byte("3"), nil))
	must(db.Put([]byte("cherry"), nil, nil))
	keys := [][]byte{[]byte("apple"), []byte("banana"), []byte("cherry")}
	for _, each := range value(db.MultiGet(keys)) {
		fmt.Printf("%q %t\n", each, each == nil)
	}
	fmt.Println(db.MultiHas(keys))
	// Output:
	// "3" false
	// "" true
	// "" false
	// [true false true] <nil>
}

func ExampleDB_Put() {
	db, done := shop(nil)
	defer done()
	// Not durable at once, and gone in a minute.
	must(db.Put([]byte("session"), []byte("ann"), &tidesdb.WriteOptions{Sync: tidesdb.SyncNone, TTL: time.Minute}))
	must(db.Put([]byte("old"), nil, &tidesdb.WriteOptions{ExpiresAt: time.Unix(1, 0)}))
	must(db.Put([]byte("note"), nil, tidesdb.NoSync))
	must(db.Sync(ctx)) // all of it is durable
	left := time.Until(value(db.Expiry([]byte("session"))))
	fmt.Println(left > 0 && left <= time.Minute+time.Second) // the library has a clock of its own
	fmt.Println(db.Has([]byte("old")))
	must(db.Delete([]byte("session"), nil))
	must(db.SingleDelete([]byte("note"), nil))
	_, _, err := db.First()
	fmt.Println(errors.Is(err, tidesdb.ErrNotFound))
	// Output:
	// true
	// false <nil>
	// true
}

func ExampleDB_DeleteRange() {
	db, done := shop(nil)
	defer done()
	for _, key := range []string{"a/1", "a/2", "b/1", "b/2", "c/1"} {
		must(db.Put([]byte(key), []byte("row"), nil))
	}
	must(db.DeletePrefix([]byte("a/"), nil))
	must(db.DeleteRange([]byte("b/2"), []byte("c"), nil))
	first, _, err := db.First()
	must(err)
	last, row, err := db.Last()
	fmt.Println(string(first), string(last), string(row), err)
	// Output: b/1 c/1 row <nil>
}

func ExampleDB_CompareAndSwap() {
	db, done := shop(nil)
	defer done()
	key := []byte("lock")
	fmt.Println(db.CompareAndSwap(key, nil, []byte("ann"), nil)) // nil: no such key
	fmt.Println(db.CompareAndSwap(key, nil, []byte("ben"), nil))
	old, err := db.Replace(key, []byte("cat"), nil)
	fmt.Println(string(old), err)
	old, err = db.Take(key, nil)
	fmt.Println(string(old), err)
	// Output:
	// true <nil>
	// false <nil>
	// ann <nil>
	// cat <nil>
}

func ExampleDB_PopFirst() {
	db, done := shop(nil)
	defer done()
	for _, job := range []string{"1 mow", "2 rake", "3 rest"} {
		must(db.Put([]byte(job), nil, nil))
	}
	job, _, err := db.PopFirst(nil)
	fmt.Println(string(job), err)
	job, _, err = db.PopLast(nil)
	fmt.Println(string(job), err)
	// Output:
	// 1 mow <nil>
	// 3 rest <nil>
}

func ExampleDB_Merge() {
	longest := tidesdb.MergeOperator{
		Name: "longest",
		Merge: func(value, operand []byte) ([]byte, error) {
			if len(operand) > len(value) {
				return operand, nil
			}
			return value, nil
		},
		Check: func(operand []byte) error {
			if len(operand) == 0 {
				return errors.New("an empty word")
			}
			return nil
		},
	}
	db, done := shop(&tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{longest}})
	defer done()
	words := value(db.CreateFamily("words", &tidesdb.FamilyOptions{MergeOperator: "longest"}))
	for _, word := range []string{"so", "house", "tree"} {
		must(words.Merge([]byte("longest"), []byte(word), nil))
	}
	fmt.Println(string(value(words.Get([]byte("longest")))))
	fmt.Println(errors.Is(words.Merge([]byte("longest"), nil, nil), tidesdb.ErrInvalid))

	counts := value(db.CreateFamily("counts", &tidesdb.FamilyOptions{MergeOperator: "tidesdb.add"}))
	must(counts.Merge([]byte("visits"), number(40), nil))
	must(counts.Merge([]byte("visits"), number(2), nil))
	fmt.Println(binary.LittleEndian.Uint64(value(counts.Get([]byte("visits")))))
	// Output:
	// house
	// true
	// 42
}

func ExampleDB_Batch() {
	db, done := shop(nil)
	defer done()
	people := value(db.CreateFamily("people", nil))
	batch := db.Batch()
	batch.Put([]byte("apple"), []byte("3"))
	batch.PutWith([]byte("offer"), []byte("2"), &tidesdb.WriteOptions{TTL: time.Hour})
	batch.Delete([]byte("pear"))
	batch.SingleDelete([]byte("plum"))
	batch.DeleteRange([]byte("x"), []byte("y"))
	batch.DeletePrefix([]byte("tmp/"))
	batch.In(people).Put([]byte("ann"), []byte("1"))
	fmt.Println(batch.Len(), batch.Size())
	seq, err := batch.Commit(nil) // all of it or nothing; durable
	fmt.Println(seq > 0, err, batch.Len())
	fmt.Println(string(value(people.Get([]byte("ann")))))

	batch.Merge([]byte("apple"), []byte("1")) // the family has no merge operator
	_, err = batch.Commit(nil)
	fmt.Println(errors.Is(err, tidesdb.ErrInvalid), batch.Len())
	batch.Reset()
	fmt.Println(batch.Len())
	// Output:
	// 7 30
	// true <nil> 0
	// 1
	// true 1
	// 0
}

func ExampleBatch_CommitAsync() {
	db, done := shop(nil)
	defer done()
	batch := db.Batch()
	var commits []*tidesdb.Pending
	for n := range 10 { // they share syncs
		batch.Put(fmt.Appendf(nil, "order %d", n), []byte("new"))
		commits = append(commits, value(batch.CommitAsync(&tidesdb.WriteOptions{Sync: tidesdb.SyncFull})))
	}
	var last uint64
	for _, commit := range commits {
		<-commit.Done()
		seq := value(commit.Wait(ctx))
		if seq <= last {
			panic("out of order")
		}
		last = seq
	}
	key, _, err := db.Last()
	fmt.Println(string(key), err)
	// Output: order 9 <nil>
}

func ExampleDB_Iterator() {
	db, done := shop(nil)
	defer done()
	for _, fruit := range []string{"apple", "banana", "cherry", "damson"} {
		must(db.Put([]byte(fruit), fmt.Append(nil, len(fruit)), nil))
	}
	it := value(db.Iterator(&tidesdb.IterOptions{Start: []byte("b")}))
	defer it.Close()
	for key, value := range it.All() { // valid until the next row
		fmt.Println(string(key), string(value))
	}
	must(it.Err())

	fmt.Println(it.Seek([]byte("c")), string(it.Key()))
	fmt.Println(it.SeekBack([]byte("c")), string(it.Key()))
	fmt.Println(it.Next(), string(it.Key()), string(it.Value()))
	fmt.Println(it.Prev(), string(it.Key()))
	fmt.Println(it.Prev(), it.Valid())
	// Output:
	// banana 6
	// cherry 6
	// damson 6
	// true cherry
	// true banana
	// true cherry 6
	// true banana
	// false false
}

func ExampleIterator_Keys() {
	db, done := shop(nil)
	defer done()
	for _, key := range []string{"a/1", "a/2", "a/3", "b/1"} {
		must(db.Put([]byte(key), nil, nil))
	}
	it := value(db.Iterator(&tidesdb.IterOptions{Prefix: []byte("a/"), KeysOnly: true, Reverse: true, Context: ctx}))
	defer it.Close()
	for key := range it.Keys() {
		fmt.Println(string(key))
	}
	fmt.Println(it.Err())
	// Output:
	// a/3
	// a/2
	// a/1
	// <nil>
}

func ExampleDB_Transact() {
	db, done := shop(nil)
	defer done()
	must(db.Put([]byte("boats"), []byte("10"), nil))
	var left int
	err := db.Transact(ctx, tidesdb.Serializable, func(tx *tidesdb.Tx) error { // again after a conflict
		boats, err := tx.Get([]byte("boats"))
		if err != nil {
			return err
		}
		fmt.Sscan(string(boats), &left)
		if left == 0 {
			return errors.New("sold out")
		}
		left--
		return tx.Put([]byte("boats"), fmt.Append(nil, left), nil)
	})
	fmt.Println(left, err)
	// Output: 9 <nil>
}

func ExampleDB_Begin() {
	db, done := shop(nil)
	defer done()
	people := value(db.CreateFamily("people", &tidesdb.FamilyOptions{MergeOperator: "tidesdb.append:,"}))
	tx := value(db.Begin(tidesdb.SnapshotIsolation))
	defer tx.Rollback() // nothing after a commit
	must(tx.Put([]byte("apple"), []byte("3"), nil))
	must(tx.In(people).Merge([]byte("ann"), []byte("oslo")))
	must(tx.In(people).Merge([]byte("ann"), []byte("rome")))
	must(tx.Savepoint("fruit"))
	must(tx.Delete([]byte("apple")))
	must(tx.DeleteRange([]byte("x"), nil))
	must(tx.DeletePrefix([]byte("a")))
	must(tx.RollbackTo("fruit"))
	must(tx.Savepoint("end"))
	must(tx.Release("end"))

	must(db.Put([]byte("apple"), []byte("4"), nil)) // another commit is first
	_, err := tx.Commit(nil)
	fmt.Println(errors.Is(err, tidesdb.ErrConflict))

	tx = value(db.Begin(tidesdb.ReadCommitted))
	must(tx.In(people).Put([]byte("ben"), nil, nil))
	seq, err := tx.Commit(&tidesdb.WriteOptions{Sync: tidesdb.SyncFull})
	fmt.Println(seq > 0, err)
	// Output:
	// true
	// true <nil>
}

func ExampleDB_Snapshot() {
	db, done := shop(&tidesdb.Options{HistoryBytes: 1 << 20})
	defer done()
	people := value(db.CreateFamily("people", nil))
	must(db.Put([]byte("apple"), []byte("3"), nil))
	snapshot := value(db.Snapshot())
	defer snapshot.Close()
	must(db.Put([]byte("apple"), []byte("4"), nil))
	must(people.Put([]byte("ann"), nil, nil))
	fmt.Println(string(value(snapshot.Get([]byte("apple")))))
	fmt.Println(snapshot.In(people).Has([]byte("ann")))

	past := value(db.SnapshotAt(snapshot.Seq()))
	defer past.Close()
	fmt.Println(string(value(past.Get([]byte("apple")))))
	// Output:
	// 3
	// false <nil>
	// 3
}

func ExampleDB_CreateFamily() {
	db, done := shop(nil)
	defer done()
	sessions := value(db.CreateFamily("sessions", &tidesdb.FamilyOptions{
		Sync:        tidesdb.SyncInterval,
		Interval:    time.Second,
		Compression: tidesdb.Snappy,
		DefaultTTL:  time.Hour,
	}))
	fmt.Println(sessions.Name())
	must(sessions.Put([]byte("ann"), nil, nil))
	fmt.Println(value(sessions.Expiry([]byte("ann"))).IsZero())
	must(sessions.Put([]byte("root"), nil, &tidesdb.WriteOptions{NeverExpires: true}))
	fmt.Println(value(sessions.Expiry([]byte("root"))).IsZero())
	must(sessions.SetSetting("table_bytes", 8<<20, true))
	fmt.Println(sessions.Setting("table_bytes"))

	must(db.RenameFamily("sessions", "visits"))
	must(db.CloneFamily(ctx, "visits", "copy"))
	must(db.DropFamily("visits"))
	names := value(db.Families())
	slices.Sort(names)
	fmt.Println(names)
	copied := value(db.Family("copy"))
	fmt.Println(copied.Has([]byte("ann")))
	_, err := db.Family("visits")
	fmt.Println(errors.Is(err, tidesdb.ErrNotFound))
	// Output:
	// sessions
	// false
	// true
	// 8388608 <nil>
	// [copy default]
	// true <nil>
	// true
}

func ExampleDB_NewValueWriter() {
	db, done := shop(nil)
	defer done()
	w := value(db.NewValueWriter([]byte("film"), nil))
	defer w.Close() // discards a value that was not committed
	value(io.Copy(w, strings.NewReader(strings.Repeat("frame", 1<<18))))
	value(w.Commit())

	r := value(db.NewValueReader([]byte("film")))
	defer r.Close()
	piece := make([]byte, 10)
	fmt.Println(r.ReadAt(piece, 1<<20))
	value(r.ReadAt(nil, 0))
	n, err := io.Copy(io.Discard, r)
	fmt.Println(n == r.Size(), n, err, string(piece))
	fmt.Println(r.Read(piece))

	tx := value(db.Begin(tidesdb.Serializable))
	w = value(db.NewValueWriter([]byte("note"), nil))
	value(w.Write([]byte("later")))
	must(w.Join(tx))
	value(tx.Commit(nil))
	fmt.Println(db.Has([]byte("note")))
	// Output:
	// 10 <nil>
	// true 1310720 <nil> rameframef
	// 0 EOF
	// true <nil>
}

func ExampleDB_NewTableBuilder() {
	db, done := shop(nil)
	defer done()
	builder := value(db.NewTableBuilder("")) // for this family
	for n := range 1000 {
		must(builder.Put(fmt.Appendf(nil, "row %06d", n), []byte("sorted")))
	}
	must(builder.Delete([]byte("row x")))
	must(builder.DeleteRange([]byte("old"), []byte("olx"))) // of what is older
	ingested := value(builder.Commit(nil))
	fmt.Println(ingested.Rows, ingested.Seq > 0)

	// Files for any database, built in any number of goroutines and processes.
	path, remove := folder()
	defer remove()
	adds := value(db.CreateFamily("adds", &tidesdb.FamilyOptions{MergeOperator: "tidesdb.add"}))
	builder = value(adds.NewTableBuilder(filepath.Join(path, "adds")))
	defer builder.Close()
	must(builder.Merge([]byte("visits"), number(3)))
	paths := value(builder.Finish())
	ingested = value(db.Ingest(ctx, []tidesdb.Tables{{Family: adds, Paths: paths}}, tidesdb.CopyFiles, nil))
	fmt.Println(len(paths), ingested.Rows)
	fmt.Println(value(adds.Get([]byte("visits")))[0])
	// Output:
	// 1001 true
	// 1 1
	// 3
}

func ExampleBackups() {
	db, done := shop(nil)
	defer done()
	path, remove := folder()
	defer remove()
	must(db.Put([]byte("apple"), []byte("3"), nil))
	backups := value(tidesdb.OpenBackups(filepath.Join(path, "backups")))
	defer backups.Close()
	one := value(backups.Create(ctx, db, nil))
	var copied uint64
	two := value(backups.Create(ctx, db, &tidesdb.BackupOptions{
		Scratch:  filepath.Join(path, "scratch"), // restored and compared there
		Progress: func(done, total uint64) { copied = max(copied, done) },
	}))
	for _, each := range value(backups.List()) {
		fmt.Println(each.Number == one || each.Number == two, each.Proven)
	}
	fmt.Println(backups.Verify(ctx, two))
	must(backups.Restore(ctx, two, filepath.Join(path, "restored.db")))
	must(backups.Delete(one))
	fmt.Println(backups.Prune(1, 0))
	_, err := backups.Repair(ctx) // the list is not lost
	fmt.Println(errors.Is(err, tidesdb.ErrExists))

	restored := value(tidesdb.Open(filepath.Join(path, "restored.db"), nil))
	defer restored.Close()
	fmt.Println(string(value(restored.Get([]byte("apple")))))
	// Output:
	// true false
	// true true
	// [] <nil>
	// 0 <nil>
	// true
	// 3
}

func ExampleDB_Checkpoint() {
	db, done := shop(nil)
	defer done()
	path, remove := folder()
	defer remove()
	must(db.Put([]byte("apple"), []byte("3"), nil))
	must(db.Flush(ctx))
	must(db.Compact(ctx))
	must(db.CompactRange(ctx, []byte("a"), []byte("b")))
	must(db.Checkpoint(ctx, filepath.Join(path, "linked.db")))
	must(db.Copy(ctx, filepath.Join(path, "copied.db")))
	must(db.SetCompactionRate(16 << 20))
	must(db.CancelCompactions())
	copied := value(tidesdb.Open(filepath.Join(path, "copied.db"), nil))
	defer copied.Close()
	fmt.Println(string(value(copied.Get([]byte("apple")))))
	// Output: 3
}

func ExampleDB_Figures() {
	db, done := shop(nil)
	defer done()
	must(db.Put([]byte("apple"), []byte("3"), nil))
	figures := value(db.Figures())
	fmt.Println(len(figures) > 50)
	fmt.Println(value(db.Figure("database", "wal_bytes")) > 0)
	fmt.Println(strings.HasSuffix(value(db.Metrics()), "# EOF\n"))
	health := value(db.Health())
	fmt.Println(health.State == tidesdb.Healthy, health.Causes)
	must(db.Flush(ctx))
	verified := value(db.Verify(ctx))
	fmt.Println(verified.Entries > 0, verified.Faults)
	_, err := db.Diagnose()
	fmt.Println(err)
	fmt.Println(strings.Contains(value(db.Explain([]byte("apple"))), "apple"))
	fmt.Println(value(db.ExplainRange([]byte("a"), []byte("b"), 10)) != "")
	// Output:
	// true
	// true
	// true
	// true []
	// true []
	// <nil>
	// true
	// true
}

func ExampleDestroy() {
	path, remove := folder()
	defer remove()
	path = filepath.Join(path, "shop.db")
	db := value(tidesdb.Open(path, nil))
	fmt.Println(errors.Is(tidesdb.Destroy(path), tidesdb.ErrLocked))
	must(db.Close())
	must(tidesdb.Destroy(path))
	_, err := os.Stat(path)
	fmt.Println(os.IsNotExist(err), errors.Is(tidesdb.Destroy(path), tidesdb.ErrNotFound))

	must(value(tidesdb.Open(path, &tidesdb.Options{MustBeNew: true})).Close())
	_, err = tidesdb.Open(path, &tidesdb.Options{MustBeNew: true})
	fmt.Println(errors.Is(err, tidesdb.ErrExists))
	// Output:
	// true
	// true true
	// true
}

func ExampleOpenReader() {
	path, remove := folder()
	defer remove()
	path = filepath.Join(path, "shop.db")
	writer := value(tidesdb.Open(path, nil)) // mostly in another process
	defer writer.Close()
	must(writer.Put([]byte("apple"), []byte("3"), nil))

	reader := value(tidesdb.OpenReader(path, nil))
	defer reader.Close()
	view := value(reader.Refresh())
	defer view.Close()
	must(writer.Put([]byte("apple"), []byte("4"), nil))
	fmt.Println(string(value(view.Get([]byte("apple")))))
	newer := value(reader.Refresh())
	defer newer.Close()
	fmt.Println(string(value(newer.Get([]byte("apple")))))
	fmt.Println(errors.Is(newer.Put([]byte("apple"), nil, nil), tidesdb.ErrReadOnly))
	// Output:
	// 3
	// 4
	// true
}

func ExampleWriterFigures() {
	path, remove := folder()
	defer remove()
	path = filepath.Join(path, "shop.db")
	db := value(tidesdb.Open(path, nil)) // mostly in another process
	defer db.Close()
	must(db.Put([]byte("apple"), []byte("3"), nil))
	for { // it publishes once a second
		writer, figures, err := tidesdb.WriterFigures(path)
		if errors.Is(err, tidesdb.ErrNotFound) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		fmt.Println(writer.Process == uint32(os.Getpid()), len(figures) > 50, err)
		break
	}
	_, err := tidesdb.WriterDiagnose(path)
	fmt.Println(err)
	// Output:
	// true true <nil>
	// <nil>
}

func ExampleError() {
	db, done := shop(nil)
	defer done()
	err := db.Put(nil, []byte("a value without a key"), nil)
	var failure *tidesdb.Error
	fmt.Println(errors.As(err, &failure), failure.Op, errors.Is(err, tidesdb.ErrInvalid))
	fmt.Println(errors.Unwrap(err) == tidesdb.ErrInvalid, failure.Error() != "")
	// Output:
	// true Put true
	// true true
}
