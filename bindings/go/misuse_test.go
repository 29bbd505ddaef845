package tidesdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidesdb"
)

// made opens a database for a test, which closes it.
func made(t testing.TB, opts *tidesdb.Options) *tidesdb.DB {
	t.Helper()
	db, err := tidesdb.Open(filepath.Join(t.TempDir(), "db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func good(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t testing.TB, what string, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return
		}
	}
	t.Errorf("%s: %v, want %v", what, err, kinds)
}

// TestEachFunctionHasAnExample finds exported functions and methods that no example calls.
func TestEachFunctionHasAnExample(t *testing.T) {
	examples, err := os.ReadFile("example_test.go")
	good(t, err)
	files := token.NewFileSet()
	ours := func(info fs.FileInfo) bool { return !strings.HasSuffix(info.Name(), "_test.go") }
	packages, err := parser.ParseDir(files, ".", ours, 0) //nolint:staticcheck // build tags do not matter here
	good(t, err)
	found := 0
	for _, file := range packages["tidesdb"].Files {
		for _, decl := range file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || !function.Name.IsExported() {
				continue
			}
			found++
			if !bytes.Contains(examples, []byte("."+function.Name.Name+"(")) {
				t.Errorf("%s: no example calls %s", files.Position(function.Pos()), function.Name.Name)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d functions were found", found)
	}
}

type handles struct {
	db       *tidesdb.DB
	family   *tidesdb.Family
	tx       *tidesdb.Tx
	snapshot *tidesdb.Snapshot
	it       *tidesdb.Iterator
	batch    *tidesdb.Batch
	builder  *tidesdb.TableBuilder
	writer   *tidesdb.ValueWriter
	reader   *tidesdb.ValueReader
}

func open(t *testing.T) *handles {
	t.Helper()
	db := made(t, nil)
	h := &handles{db: db, family: value(db.CreateFamily("f", &tidesdb.FamilyOptions{MergeOperator: "tidesdb.add"}))}
	good(t, h.db.Put([]byte("k"), []byte("v"), tidesdb.NoSync))
	h.tx = value(db.Begin(tidesdb.Serializable))
	h.snapshot = value(db.Snapshot())
	h.it = value(db.Iterator(nil))
	h.batch = db.Batch()
	h.batch.Put([]byte("k"), nil)
	h.builder = value(db.NewTableBuilder(""))
	h.writer = value(db.NewValueWriter([]byte("w"), nil))
	h.reader = value(db.NewValueReader([]byte("k")))
	return h
}

// ctxs returns a context that can end, so that calls run in a goroutine of their own.
func ctxs(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}

func (h *handles) calls(t *testing.T) map[string]func() error {
	ctx := ctxs(t)
	k := []byte("k")
	two := func(_ any, err error) error { return err }
	return map[string]func() error{
		"Get":               func() error { return two(h.db.Get(k)) },
		"AppendGet":         func() error { return two(h.db.AppendGet(nil, k)) },
		"Has":               func() error { return two(h.db.Has(k)) },
		"MultiGet":          func() error { return two(h.db.MultiGet([][]byte{k})) },
		"MultiHas":          func() error { return two(h.db.MultiHas([][]byte{k})) },
		"First":             func() error { _, _, err := h.db.First(); return err },
		"Last":              func() error { _, _, err := h.db.Last(); return err },
		"Expiry":            func() error { return two(h.db.Expiry(k)) },
		"Explain":           func() error { return two(h.db.Explain(k)) },
		"ExplainRange":      func() error { return two(h.db.ExplainRange(nil, nil, 1)) },
		"Put":               func() error { return h.db.Put(k, k, nil) },
		"Delete":            func() error { return h.db.Delete(k, nil) },
		"SingleDelete":      func() error { return h.db.SingleDelete(k, nil) },
		"DeleteRange":       func() error { return h.db.DeleteRange(k, nil, nil) },
		"DeletePrefix":      func() error { return h.db.DeletePrefix(k, nil) },
		"CompareAndSwap":    func() error { return two(h.db.CompareAndSwap(k, nil, k, nil)) },
		"Replace":           func() error { return two(h.db.Replace(k, k, nil)) },
		"Take":              func() error { return two(h.db.Take(k, nil)) },
		"PopFirst":          func() error { _, _, err := h.db.PopFirst(nil); return err },
		"PopLast":           func() error { _, _, err := h.db.PopLast(nil); return err },
		"family.Get":        func() error { return two(h.family.Get(k)) },
		"family.Put":        func() error { return h.family.Put(k, k, nil) },
		"family.Merge":      func() error { return h.family.Merge(k, number(1), nil) },
		"Batch.Commit":      func() error { return two(h.batch.Commit(nil)) },
		"Batch.Async":       func() error { return two(h.batch.CommitAsync(nil)) },
		"Iterator":          func() error { return two(h.db.Iterator(nil)) },
		"Iterator.Next":     func() error { h.it.Next(); return h.it.Err() },
		"Iterator.Prev":     func() error { h.it.Prev(); return h.it.Err() },
		"Iterator.Seek":     func() error { h.it.Seek(k); return h.it.Err() },
		"Iterator.SeekBack": func() error { h.it.SeekBack(k); return h.it.Err() },
		"Begin":             func() error { return two(h.db.Begin(tidesdb.Serializable)) },
		"Transact":          func() error { return h.db.Transact(ctx, 0, func(*tidesdb.Tx) error { return nil }) },
		"Tx.Get":            func() error { return two(h.tx.Get(k)) },
		"Tx.Put":            func() error { return h.tx.Put(k, k, nil) },
		"Tx.Delete":         func() error { return h.tx.Delete(k) },
		"Tx.DeleteRange":    func() error { return h.tx.DeleteRange(k, nil) },
		"Tx.DeletePrefix":   func() error { return h.tx.DeletePrefix(k) },
		"Tx.Merge":          func() error { return h.tx.In(h.family).Merge(k, number(1)) },
		"Tx.Savepoint":      func() error { return h.tx.Savepoint("s") },
		"Tx.RollbackTo":     func() error { return h.tx.RollbackTo("s") },
		"Tx.Release":        func() error { return h.tx.Release("s") },
		"Tx.Iterator":       func() error { return two(h.tx.Iterator(nil)) },
		"Tx.Commit":         func() error { return two(h.tx.Commit(nil)) },
		"Snapshot":          func() error { return two(h.db.Snapshot()) },
		"SnapshotAt":        func() error { return two(h.db.SnapshotAt(1)) },
		"Snapshot.Get":      func() error { return two(h.snapshot.Get(k)) },
		"Snapshot.In":       func() error { return two(h.snapshot.In(h.family).Has(k)) },
		"ValueWriter":       func() error { return two(h.db.NewValueWriter(k, nil)) },
		"ValueWriter.Write": func() error { return two(h.writer.Write(k)) },
		"ValueWriter.Join":  func() error { return h.writer.Join(h.tx) },
		"ValueWriter.Done":  func() error { return two(h.writer.Commit()) },
		"ValueReader":       func() error { return two(h.db.NewValueReader(k)) },
		"ValueReader.Read":  func() error { return two(h.reader.Read(make([]byte, 1))) },
		"ValueReader.At":    func() error { return two(h.reader.ReadAt(make([]byte, 1), 0)) },
		"Builder":           func() error { return two(h.db.NewTableBuilder("")) },
		"Builder.Commit":    func() error { return two(h.builder.Commit(nil)) },
		"Family":            func() error { return two(h.db.Family("f")) },
		"CreateFamily":      func() error { return two(h.db.CreateFamily("g", nil)) },
		"DropFamily":        func() error { return h.db.DropFamily("f") },
		"RenameFamily":      func() error { return h.db.RenameFamily("f", "g") },
		"CloneFamily":       func() error { return h.db.CloneFamily(ctx, "f", "g") },
		"Families":          func() error { return two(h.db.Families()) },
		"Setting":           func() error { return two(h.db.Setting("table_bytes")) },
		"SetSetting":        func() error { return h.db.SetSetting("table_bytes", 8<<20, false) },
		"Flush":             func() error { return h.db.Flush(ctx) },
		"Compact":           func() error { return h.db.Compact(ctx) },
		"CompactRange":      func() error { return h.db.CompactRange(ctx, k, nil) },
		"Sync":              func() error { return h.db.Sync(ctx) },
		"Checkpoint":        func() error { return h.db.Checkpoint(ctx, filepath.Join(t.TempDir(), "c")) },
		"Copy":              func() error { return h.db.Copy(ctx, filepath.Join(t.TempDir(), "c")) },
		"SetCompactionRate": func() error { return h.db.SetCompactionRate(0) },
		"Cancel":            func() error { return h.db.CancelCompactions() },
		"Figures":           func() error { return two(h.db.Figures()) },
		"Figure":            func() error { return two(h.db.Figure("database", "wal_bytes")) },
		"Metrics":           func() error { return two(h.db.Metrics()) },
		"Health":            func() error { return two(h.db.Health()) },
		"Verify":            func() error { return two(h.db.Verify(ctx)) },
		"Diagnose":          func() error { return two(h.db.Diagnose()) },
		"Ingest":            func() error { return two(h.db.Ingest(ctx, nil, 0, nil)) },
		"Backup": func() error {
			backups := value(tidesdb.OpenBackups(t.TempDir()))
			defer backups.Close()
			return two(backups.Create(ctx, h.db, nil))
		},
	}
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	h := open(t)
	good(t, h.db.Close())
	good(t, h.db.Close())
	for name, call := range h.calls(t) {
		fails(t, name, call(), tidesdb.ErrClosed)
	}
	for range 2 {
		good(t, h.it.Close())
		good(t, h.tx.Rollback())
		good(t, h.snapshot.Close())
		good(t, h.builder.Close())
		good(t, h.writer.Close())
		good(t, h.reader.Close())
	}
}

func TestHandlesCanBeClosedTwice(t *testing.T) {
	h := open(t)
	for range 2 {
		good(t, h.it.Close())
		good(t, h.tx.Rollback())
		good(t, h.snapshot.Close())
		good(t, h.builder.Close())
		good(t, h.writer.Close())
		good(t, h.reader.Close())
	}
	for name, call := range h.calls(t) {
		for _, of := range []string{"Tx.", "Iterator.", "Snapshot.", "Builder.", "ValueWriter.", "ValueReader."} {
			if strings.HasPrefix(name, of) {
				fails(t, name, call(), tidesdb.ErrClosed)
			}
		}
	}
	// The numbers of the handles are used again: the old ones stay closed.
	other := value(h.db.Iterator(nil))
	defer other.Close()
	good(t, h.it.Close())
	if !other.Next() {
		t.Error("the second iterator was closed by the first:", other.Err())
	}
	backups := value(tidesdb.OpenBackups(t.TempDir()))
	good(t, backups.Close())
	good(t, backups.Close())
	fails(t, "List", func() error { _, err := backups.List(); return err }(), tidesdb.ErrClosed)
}

func TestZeroValuesAreErrors(t *testing.T) {
	h := &handles{
		db: &tidesdb.DB{}, family: &tidesdb.Family{}, tx: &tidesdb.Tx{}, snapshot: &tidesdb.Snapshot{}, it: &tidesdb.Iterator{},
		batch: &tidesdb.Batch{}, builder: &tidesdb.TableBuilder{}, writer: &tidesdb.ValueWriter{}, reader: &tidesdb.ValueReader{},
	}
	h.batch.Put([]byte("k"), nil)
	for name, call := range h.calls(t) {
		if call() == nil {
			t.Errorf("%s of a zero value succeeds", name)
		}
	}
	if h.db.Close() == nil {
		t.Error("a zero database was closed")
	}
	good(t, h.it.Close())
	good(t, h.tx.Rollback())
}

func TestMistakesAreRefused(t *testing.T) {
	h := open(t)
	other := made(t, nil)
	foreign := value(other.CreateFamily("f", nil))
	second := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"an empty key":            h.db.Put(nil, []byte("v"), nil),
		"a long key":              h.db.Put(make([]byte, 1<<20), nil, nil),
		"get of an empty key":     second(h.db.Get([]byte{})),
		"no family":               h.tx.In(nil).Put([]byte("k"), nil, nil),
		"a read of no family":     second(h.snapshot.In(nil).Get([]byte("k"))),
		"another database":        h.tx.In(foreign).Put([]byte("k"), nil, nil),
		"a level":                 second(h.db.Begin(9)),
		"prefix and start":        second(h.db.Iterator(&tidesdb.IterOptions{Prefix: []byte("a"), Start: []byte("b")})),
		"a name with a zero":      second(h.db.CreateFamily("a\x00b", nil)),
		"an empty name":           second(h.db.CreateFamily("", nil)),
		"a path with a zero":      second(tidesdb.Open("a\x00b", nil)),
		"two expiries":            h.db.Put([]byte("k"), nil, &tidesdb.WriteOptions{TTL: 1, NeverExpires: true}),
		"a sync mode":             h.db.Put([]byte("k"), nil, &tidesdb.WriteOptions{Sync: 9}),
		"a family's sync mode":    second(h.db.CreateFamily("g", &tidesdb.FamilyOptions{Sync: 9})),
		"a merge without one":     h.db.Merge([]byte("k"), []byte("1"), nil),
		"a negative offset":       second(h.reader.ReadAt(nil, -1)),
		"no database":             second(value(tidesdb.OpenBackups(t.TempDir())).Create(context.Background(), nil, nil)),
		"tables of no family":     second(h.db.Ingest(context.Background(), []tidesdb.Tables{{}}, 0, nil)),
		"an operator without one": second(tidesdb.Open(t.TempDir(), &tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{{Name: "x"}}})),
		"an unknown setting":      second(h.db.Setting("nonsense")),
	} {
		fails(t, name, err, tidesdb.ErrInvalid)
	}
	fails(t, "a comparator", second(h.db.CreateFamily("h", &tidesdb.FamilyOptions{Comparator: "none"})), tidesdb.ErrNotFound)
	fails(t, "a long comparator", second(h.db.CreateFamily("h", &tidesdb.FamilyOptions{Comparator: strings.Repeat("x", 99)})), tidesdb.ErrNotFound)
	fails(t, "a name in use", second(h.db.CreateFamily("f", nil)), tidesdb.ErrExists)
	fails(t, "a file", second(h.db.Ingest(context.Background(), []tidesdb.Tables{{Family: h.family, Paths: []string{"none.klog"}}}, 0, nil)), tidesdb.ErrIO, tidesdb.ErrNotFound)
	good(t, h.builder.Put([]byte("b"), nil))
	good(t, h.builder.Put([]byte("a"), nil))
	fails(t, "keys out of order", second(h.builder.Commit(nil)), tidesdb.ErrInvalid)
	batch := h.db.Batch()
	batch.Put([]byte("a"), nil)
	batch.In(foreign).Put([]byte("b"), nil)
	fails(t, "a batch over two databases", second(batch.Commit(nil)), tidesdb.ErrInvalid)
	if has := value(h.db.Has([]byte("a"))); has {
		t.Error("a part of a batch was written")
	}
	copied := *batch
	fails(t, "a copied batch", second(copied.Commit(nil)), tidesdb.ErrInvalid)
	path := filepath.Join(t.TempDir(), "locked")
	first := value(tidesdb.Open(path, nil))
	defer first.Close()
	fails(t, "a second open", second(tidesdb.Open(path, nil)), tidesdb.ErrLocked)
}

func TestContextsThatHaveEnded(t *testing.T) {
	h := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	it := value(h.db.Iterator(&tidesdb.IterOptions{Context: ctx}))
	defer it.Close()
	cancel()
	second := func(_ any, err error) error { return err }
	batch := h.db.Batch()
	batch.Put([]byte("x"), nil)
	pending := value(batch.CommitAsync(nil))
	<-pending.Done()
	if _, err := pending.Wait(ctx); err != nil {
		t.Error("a commit that is done was not returned:", err)
	}
	for name, err := range map[string]error{
		"Flush":    h.db.Flush(ctx),
		"Compact":  h.db.Compact(ctx),
		"Sync":     h.db.Sync(ctx),
		"Verify":   second(h.db.Verify(ctx)),
		"Transact": h.db.Transact(ctx, 0, func(*tidesdb.Tx) error { return nil }),
		"Iterator": second(h.db.Iterator(&tidesdb.IterOptions{Context: ctx})),
		"Next":     func() error { it.Next(); return it.Err() }(),
		"Ingest":   second(h.db.Ingest(ctx, nil, 0, nil)),
		"Create":   second(value(tidesdb.OpenBackups(t.TempDir())).Create(ctx, h.db, nil)),
	} {
		fails(t, name, err, context.Canceled)
	}
}

// A call whose context ends goes on, and the close waits for it.
func TestCancelledWorkIsFinished(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	operator := tidesdb.MergeOperator{Name: "waits", Merge: func(value, operand []byte) ([]byte, error) {
		once.Do(func() { close(began) })
		<-goOn
		return append(value, operand...), nil
	}}
	db := made(t, &tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{operator}})
	f := value(db.CreateFamily("f", &tidesdb.FamilyOptions{MergeOperator: "waits"}))
	good(t, f.Put([]byte("k"), []byte("a"), nil))
	good(t, f.Flush(context.Background()))
	good(t, f.Merge([]byte("k"), []byte("b"), nil))
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- f.Compact(ctx) }()
	<-began
	cancel()
	fails(t, "Compact", <-result, context.Canceled)
	closing := make(chan error)
	go func() { closing <- db.Close() }()
	select {
	case err := <-closing:
		t.Fatal("the close did not wait:", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(goOn)
	good(t, <-closing)
}

// Calls of backups end with their context, and leave what there was before them.
func TestBackupsEndWithTheirContext(t *testing.T) {
	db := made(t, nil)
	value20 := make([]byte, 20<<20)
	for i := range value20 {
		value20[i] = byte(i * i >> 7)
	}
	good(t, db.Put([]byte("k"), value20, nil))
	backups := value(tidesdb.OpenBackups(filepath.Join(t.TempDir(), "b")))
	defer backups.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var last uint64
	_, err := backups.Create(ctx, db, &tidesdb.BackupOptions{BytesPerSecond: 1 << 20, Progress: func(done, total uint64) {
		last = done
		if done > 0 {
			cancel()
		}
	}})
	fails(t, "Create", err, context.Canceled)
	if got := value(backups.List()); len(got) != 0 || last > 4<<20 {
		t.Errorf("%v, %d bytes", got, last)
	}
	_, err = backups.Create(ctx, db, nil)
	fails(t, "Create", err, context.Canceled)
	one := value(backups.Create(ctxs(t), db, nil))
	folder := filepath.Join(t.TempDir(), "restored")
	for _, call := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"Verify", func(ctx context.Context) error { _, err := backups.Verify(ctx, one); return err }},
		{"Restore", func(ctx context.Context) error { return backups.Restore(ctx, one, folder) }},
	} {
		ctx := &ends{Context: context.Background(), after: 3}
		fails(t, call.name, call.run(ctx), context.Canceled)
		if ctx.asked < 3 || ctx.asked > 10 {
			t.Errorf("%s went on: %d", call.name, ctx.asked)
		}
	}
	good(t, backups.Restore(ctxs(t), one, folder))
	good(t, db.Close())
}

// ends is a context that ends when it is asked for the n-th time.
type ends struct {
	context.Context
	asked, after int
}

func (e *ends) Err() error {
	e.asked++
	if e.asked >= e.after {
		return context.Canceled
	}
	return nil
}

func TestAPanicInAMergeOperatorIsAnError(t *testing.T) {
	mode := atomic.Int32{}
	operator := tidesdb.MergeOperator{Name: "odd", Merge: func(value, operand []byte) ([]byte, error) {
		switch mode.Load() {
		case 0:
			panic("in the merge")
		case 1:
			return nil, errors.New("no")
		}
		return append(value, operand...), nil
	}, Check: func(operand []byte) error {
		if string(operand) == "panic" {
			panic("in the check")
		}
		return nil
	}}
	path := filepath.Join(t.TempDir(), "db")
	db := value(tidesdb.Open(path, &tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{operator}}))
	f := value(db.CreateFamily("f", &tidesdb.FamilyOptions{MergeOperator: "odd"}))
	k := []byte("k")
	good(t, f.Merge(k, []byte("a"), nil))
	good(t, f.Merge(k, []byte("b"), nil))
	fails(t, "check", f.Merge(k, []byte("panic"), nil), tidesdb.ErrInvalid)
	for range 2 {
		_, err := f.Get(k)
		fails(t, "merge", err, tidesdb.ErrMerge)
		it := value(f.Iterator(nil))
		if it.Next() {
			t.Error("a row without a value")
		}
		fails(t, "iterator", it.Err(), tidesdb.ErrMerge)
		good(t, it.Close())
		good(t, f.Flush(context.Background())) // in a thread of the library
		good(t, f.Compact(context.Background()))
		mode.Add(1)
	}
	if got := value(f.Get(k)); string(got) != "ab" {
		t.Errorf("%q", got)
	}
	good(t, db.Close())
	db = value(tidesdb.Open(path, nil)) // without the operator
	defer db.Close()
	f = value(db.Family("f"))
	fails(t, "merge", f.Merge(k, []byte("c"), nil), tidesdb.ErrMerge)
}

func TestACallbackThatClosesIsRefused(t *testing.T) {
	var db *tidesdb.DB
	var err error
	operator := tidesdb.MergeOperator{Name: "closes", Merge: func(value, operand []byte) ([]byte, error) {
		err = db.Close()
		return operand, nil
	}}
	db = made(t, &tidesdb.Options{MergeOperators: []tidesdb.MergeOperator{operator}})
	f := value(db.CreateFamily("f", &tidesdb.FamilyOptions{MergeOperator: "closes"}))
	good(t, f.Merge([]byte("k"), []byte("a"), nil))
	good(t, f.Merge([]byte("k"), []byte("b"), nil))
	if got := value(f.Get([]byte("k"))); string(got) != "b" {
		t.Errorf("%q", got)
	}
	fails(t, "Close", err, tidesdb.ErrBusy)
}

func TestAPanicInTheProgressOfABackupComesOut(t *testing.T) {
	db := made(t, nil)
	good(t, db.Put([]byte("k"), []byte("v"), nil))
	backups := value(tidesdb.OpenBackups(t.TempDir()))
	defer backups.Close()
	defer func() {
		if got := recover(); got != "in the progress" {
			t.Errorf("%v", got)
		}
	}()
	_, err := backups.Create(ctxs(t), db, &tidesdb.BackupOptions{Progress: func(done, total uint64) { panic("in the progress") }})
	t.Error("no panic:", err)
}

// Goroutines use everything while another one closes: each call succeeds, or returns an error of the few that may be.
func TestCloseBesideCalls(t *testing.T) {
	for round := range 20 {
		h := open(t)
		for i := range 3000 {
			good(t, h.db.Put(fmt.Appendf(nil, "key %05d", i), bytes.Repeat([]byte("v"), 50), tidesdb.NoSync))
		}
		var group sync.WaitGroup
		may := []error{tidesdb.ErrClosed, tidesdb.ErrNotFound, tidesdb.ErrConflict, tidesdb.ErrBusy}
		run := func(body func() error) {
			group.Go(func() {
				for {
					err := body()
					if errors.Is(err, tidesdb.ErrClosed) {
						return
					}
					if err != nil {
						fails(t, "beside a close", err, may...)
					}
				}
			})
		}
		run(func() error { _, err := h.db.Get([]byte("key 00007")); return err })
		run(func() error { return h.db.Put([]byte("key 00007"), []byte("new"), tidesdb.NoSync) })
		run(func() error {
			it, err := h.db.Iterator(nil)
			if err != nil {
				return err
			}
			defer it.Close()
			var last []byte
			for key, value := range it.All() {
				if bytes.Compare(last, key) >= 0 || len(value) > 50 {
					return fmt.Errorf("%q after %q: %q", key, last, value)
				}
				last = append(last[:0], key...)
			}
			return it.Err()
		})
		run(func() error {
			return h.db.Transact(context.Background(), tidesdb.Serializable, func(tx *tidesdb.Tx) error {
				if _, err := tx.Get([]byte("key 00008")); err != nil {
					return err
				}
				return tx.Put([]byte("key 00008"), nil, nil)
			})
		})
		run(func() error {
			batch := h.db.Batch()
			batch.Put([]byte("batch"), nil)
			pending, err := batch.CommitAsync(tidesdb.NoSync)
			if err != nil {
				return err
			}
			_, err = pending.Wait(context.Background())
			return err
		})
		run(func() error { return h.db.Flush(context.Background()) })
		run(func() error { _, err := h.db.Figures(); return err })
		time.Sleep(time.Duration(round) * time.Millisecond)
		good(t, h.db.Close())
		group.Wait()
	}
}

// One transaction is for one goroutine; closes by others are allowed, and nothing crashes.
func TestClosesOfHandlesBesideTheirUse(t *testing.T) {
	db := made(t, nil)
	for i := range 1000 {
		good(t, db.Put(fmt.Appendf(nil, "key %05d", i), nil, tidesdb.NoSync))
	}
	for range 100 {
		tx, snapshot := value(db.Begin(tidesdb.Serializable)), value(db.Snapshot())
		var group sync.WaitGroup
		group.Go(func() {
			for range 50 {
				if err := tx.Put([]byte("t"), nil, nil); err != nil {
					fails(t, "Put", err, tidesdb.ErrClosed, tidesdb.ErrInvalid, tidesdb.ErrBusy)
				}
				if _, err := tx.Get([]byte("key 00001")); err != nil {
					fails(t, "Get", err, tidesdb.ErrClosed, tidesdb.ErrInvalid, tidesdb.ErrBusy)
				}
			}
		})
		group.Go(func() {
			for range 50 {
				if _, err := snapshot.Get([]byte("key 00001")); err != nil {
					fails(t, "Get", err, tidesdb.ErrClosed, tidesdb.ErrInvalid)
				}
			}
		})
		for range 2 {
			group.Go(func() {
				tx.Rollback()
				snapshot.Close()
			})
		}
		group.Wait()
		if n := openHandles(db); n != 0 {
			t.Fatalf("%g handles stay open", n)
		}
		runtime.KeepAlive(tx)
	}
}

// openHandles returns how many snapshots, transactions that have read, and iterators a database has.
func openHandles(db *tidesdb.DB) float64 {
	return value(db.Figure("database", "snapshots")) + value(db.Figure("database", "cursors"))
}

// A Rollback beside a call of the same transaction does not wait for it, and ends the transaction with it. It was lost, and the transaction kept
// old rows until the database was closed.
func TestRollbackBesideItsOwnCall(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	var waits atomic.Bool
	operator := tidesdb.MergeOperator{Name: "waits", Merge: func(value, operand []byte) ([]byte, error) {
		if waits.CompareAndSwap(true, false) {
			inside <- struct{}{}
			<-release
		}
		return operand, nil
	}}
	db := made(t, &tidesdb.Options{
		MergeOperators: []tidesdb.MergeOperator{operator},
		Default:        &tidesdb.FamilyOptions{MergeOperator: "waits"},
	})
	good(t, db.Merge([]byte("k"), []byte("a"), nil))
	good(t, db.Merge([]byte("k"), []byte("b"), nil))
	tx := value(db.Begin(tidesdb.SnapshotIsolation))
	waits.Store(true)
	done := make(chan error)
	go func() {
		got, err := tx.Get([]byte("k"))
		if err == nil && string(got) != "b" {
			err = fmt.Errorf("%q", got)
		}
		done <- err
	}()
	<-inside
	good(t, tx.Rollback())
	fails(t, "Put", tx.Put([]byte("x"), nil, nil), tidesdb.ErrClosed)
	release <- struct{}{}
	good(t, <-done)
	if n := openHandles(db); n != 0 {
		t.Errorf("%g handles stay open", n)
	}
	runtime.KeepAlive(tx)
}

// Handles that are forgotten are closed by the garbage collector.
func TestForgottenHandlesAreClosed(t *testing.T) {
	db := made(t, nil)
	good(t, db.Put([]byte("k"), []byte("v"), nil))
	func() {
		for range 100 {
			value(db.Iterator(nil)).Next()
			value(db.Snapshot())
			value(value(db.Begin(tidesdb.Serializable)).Get([]byte("k")))
		}
	}()
	for i := 0; openHandles(db) > 0; i++ {
		if i == 500 {
			t.Fatalf("%g handles stay open", openHandles(db))
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAForgottenDatabaseIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	func() { good(t, value(tidesdb.Open(path, nil)).Put([]byte("k"), []byte("v"), tidesdb.NoSync)) }()
	for i := 0; ; i++ {
		db, err := tidesdb.Open(path, nil)
		if err == nil {
			defer db.Close()
			if got := value(db.Get([]byte("k"))); string(got) != "v" {
				t.Errorf("%q", got)
			}
			return
		}
		fails(t, "Open", err, tidesdb.ErrLocked)
		if i == 500 {
			t.Fatal(err)
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
}

// TestNoContextIsOneThatNeverEnds: a call without a context panicked.
func TestNoContextIsOneThatNeverEnds(t *testing.T) {
	db := made(t, nil)
	var none context.Context
	good(t, db.Transact(none, tidesdb.SnapshotIsolation, func(tx *tidesdb.Tx) error {
		return tx.Put([]byte("k"), []byte("v"), nil)
	}))
	batch := db.Batch()
	batch.Put([]byte("l"), []byte("v"))
	pending, err := batch.CommitAsync(nil)
	good(t, err)
	_, err = pending.Wait(none)
	good(t, err)
}
