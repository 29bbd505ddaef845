package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"
)

// TableBuilder writes rows, in the order of their keys, to tables: the fastest way to load much data. The tables are taken all at once, as one
// commit, past the log.
//
// Its methods that add rows collect them, so a key out of order may be an error of a later call.
type TableBuilder struct {
	db      *DB
	h       atomic.Uintptr
	cleanup runtime.Cleanup
	ops     operations
	err     error
}

// builderBytes is how much is passed to C in one call.
const builderBytes = 64 << 10

// Ingested is what was taken.
type Ingested struct {
	// Seq is the sequence number of the commit; 0 if there was nothing to take.
	Seq    uint64
	Tables uint64
	// Rows counts deletes of keys, too.
	Rows  uint64
	Bytes uint64
}

// NewTableBuilder begins to write tables. With a stem they are files of the program, stem-000001.klog and so on, for families of this order and
// merge operator in any database: Finish returns their paths for [DB.Ingest]. With "" they are for Commit, into this family.
func (r *rows) NewTableBuilder(stem string) (*TableBuilder, error) {
	const op = "NewTableBuilder"
	var name *C.char
	if stem != "" {
		made, err := cstring(op, stem)
		if err != nil {
			return nil, err
		}
		defer C.free(unsafe.Pointer(made))
		name = made
	}
	got := C.go_builder_new(C.handle(r.cf), name)
	runtime.KeepAlive(r)
	if got.code != C.TDB_SUCCESS {
		return nil, r.written(op, got)
	}
	b := &TableBuilder{db: r.db}
	b.h.Store(uintptr(got.a))
	b.cleanup = runtime.AddCleanup(b, func(h C.handle) { C.go_builder_free(h) }, C.handle(got.a))
	return b, nil
}

// Put adds a row behind all rows so far.
func (b *TableBuilder) Put(key, value []byte) error { return b.add(C.TDB_X_OP_PUT, key, value) }

// Delete adds a delete of a key, behind all rows so far.
func (b *TableBuilder) Delete(key []byte) error { return b.add(C.TDB_X_OP_DELETE, key, nil) }

// Merge adds an operand, behind all rows so far: see [DB.Merge].
func (b *TableBuilder) Merge(key, operand []byte) error { return b.add(C.TDB_X_OP_MERGE, key, operand) }

// DeleteRange adds, at any time, a delete of what is older than the tables.
func (b *TableBuilder) DeleteRange(start, end []byte) error {
	return b.add(C.TDB_X_OP_DELETE_RANGE, start, end)
}

func (b *TableBuilder) add(kind byte, key, value []byte) error {
	if b.err != nil {
		return b.err
	}
	b.ops.add(kind, key, value)
	if len(b.ops.bytes) >= builderBytes || len(b.ops.kinds) >= builderBytes {
		return b.pass()
	}
	return nil
}

// pass passes the collected rows to C.
func (b *TableBuilder) pass() error {
	h := b.h.Load()
	if h == 0 && b.err == nil {
		b.err = closed("TableBuilder", "builder")
	}
	if b.err != nil || len(b.ops.kinds) == 0 {
		return b.err
	}
	kinds, bytes, sizes, n := b.ops.parts()
	r := C.go_builder_add(C.handle(h), kinds, bytes, sizes, n, C.go_write{})
	runtime.KeepAlive(b)
	b.ops.reset()
	b.err = errorOf("TableBuilder", b.db, r)
	return b.err
}

// Finish completes the tables of a builder with a stem, makes them durable and returns their paths. Long values lie in files beside them, path.vlog.
// After a failure no file is left. The builder has ended then.
func (b *TableBuilder) Finish() ([]string, error) {
	defer b.Close()
	if err := b.pass(); err != nil {
		return nil, err
	}
	r := C.go_builder_finish(C.handle(b.h.Load()))
	runtime.KeepAlive(b)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf("Finish", b.db, r)
	}
	paths := make([]string, 0, int(r.b))
	if r.a != 0 {
		list := pointer[*C.char](r.a)
		defer C.tidesdb_free(unsafe.Pointer(list))
		for _, path := range unsafe.Slice(list, int(r.b)) {
			paths = append(paths, C.GoString(path))
		}
	}
	return paths, nil
}

// Commit takes the rows of a builder without a stem as one commit. The builder has ended then. After a failure nothing was taken, unless the sync
// of the log failed, which the next open decides. Of opts, the sync mode counts.
func (b *TableBuilder) Commit(opts *WriteOptions) (Ingested, error) {
	defer b.Close()
	if err := b.pass(); err != nil {
		return Ingested{}, err
	}
	var got C.tidesdb_x_ingested_t
	r := C.go_builder_commit(C.handle(b.h.Load()), opts.commit(), &got)
	runtime.KeepAlive(b)
	if r.code != C.TDB_SUCCESS {
		return Ingested{}, errorOf("Commit", b.db, r)
	}
	return ingestedOf(&got), nil
}

func ingestedOf(got *C.tidesdb_x_ingested_t) Ingested {
	return Ingested{Seq: uint64(got.seq), Tables: uint64(got.tables), Rows: uint64(got.rows), Bytes: uint64(got.bytes)}
}

// Close ends the builder; one that was not finished or committed leaves no file. It always returns nil, as an [io.Closer].
func (b *TableBuilder) Close() error {
	if h := b.h.Swap(0); h != 0 {
		b.cleanup.Stop()
		C.go_builder_free(C.handle(h))
	}
	return nil
}

// Transfer says how files come into the folder of the database.
type Transfer int

// The ways. Links and moves need the same file system.
const (
	CopyFiles Transfer = iota
	// LinkFiles: the program and the database share them. Nobody may change them later.
	LinkFiles
	// MoveFiles: they lose their names. The commit is synced in any case.
	MoveFiles
)

// Tables are files of a [TableBuilder] for a family, oldest first.
type Tables struct {
	Family *Family
	Paths  []string
}

// Ingest takes tables of one or several families as one commit. Every byte of the files is checked first: [ErrCorrupt] for damage, and for files
// that no builder wrote. After a failure nothing was taken, unless the sync of the log failed ([ErrIO], and the database takes no more writes): then
// the next open decides, and linked and moved files must stay as they are. Of opts, the sync mode counts.
func (db *DB) Ingest(ctx context.Context, tables []Tables, transfer Transfer, opts *WriteOptions) (Ingested, error) {
	const op = "Ingest"
	families := make([]C.handle, 0, len(tables)+1)
	counts := make([]C.size_t, 0, len(tables)+1)
	var paths strings.Builder
	count := 0
	for _, each := range tables {
		if each.Family == nil {
			return Ingested{}, invalid(op, "tables without a family")
		}
		families = append(families, C.handle(each.Family.cf))
		counts = append(counts, C.size_t(len(each.Paths)))
		for _, path := range each.Paths {
			if strings.IndexByte(path, 0) >= 0 {
				return Ingested{}, invalid(op, "a path has a zero byte")
			}
			paths.WriteString(path)
			paths.WriteByte(0)
			count++
		}
	}
	return resultOf(ctx, func() (Ingested, error) {
		list := C.CString(paths.String())
		defer C.free(unsafe.Pointer(list))
		var got C.tidesdb_x_ingested_t
		r := C.go_ingest(db.handle(), unsafe.SliceData(families), unsafe.SliceData(counts), C.size_t(len(families)), list,
			C.size_t(count), C.int(transfer), opts.commit(), &got)
		runtime.KeepAlive(db)
		if r.code != C.TDB_SUCCESS {
			return Ingested{}, errorOf(op, db, r)
		}
		return ingestedOf(&got), nil
	})
}
