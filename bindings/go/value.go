package tidesdb

// #include "shim.h"
import "C"

import (
	"io"
	"runtime"
	"sync/atomic"
)

// ValueWriter writes a value of up to 4 TiB piece by piece, in constant memory.
type ValueWriter struct {
	db      *DB
	h       atomic.Uintptr
	cleanup runtime.Cleanup
}

// NewValueWriter creates a writer of the value of a key. The caller ends it by Commit, Join or Close.
func (r *rows) NewValueWriter(key []byte, opts *WriteOptions) (*ValueWriter, error) {
	k, kn := bytesOf(key)
	got := C.go_value_writer(C.handle(r.cf), k, kn, opts.number())
	runtime.KeepAlive(r)
	if got.code != C.TDB_SUCCESS {
		return nil, r.written("NewValueWriter", got)
	}
	w := &ValueWriter{db: r.db}
	w.h.Store(uintptr(got.a))
	w.cleanup = runtime.AddCleanup(w, func(h C.handle) { C.go_value_writer_free(h) }, C.handle(got.a))
	return w, nil
}

// Write appends bytes to the value. After a failure the value cannot be committed.
func (w *ValueWriter) Write(p []byte) (int, error) {
	h := w.h.Load()
	if h == 0 {
		return 0, closed("Write", "writer")
	}
	if len(p) == 0 {
		return 0, nil
	}
	b, n := bytesOf(p)
	r := C.go_value_write(C.handle(h), b, n)
	runtime.KeepAlive(w)
	if r.code != C.TDB_SUCCESS {
		return 0, errorOf("Write", w.db, r)
	}
	return len(p), nil
}

// Commit puts the value, and returns the sequence number of the commit. The writer has ended then, also after a failure.
func (w *ValueWriter) Commit() (seq uint64, err error) { return w.end("Commit", 0) }

// Join adds the put to a transaction, whose commit makes it. The writer has ended then, also after a failure.
func (w *ValueWriter) Join(tx *Tx) error {
	if tx == nil {
		return closed("Join", "transaction")
	}
	txn := tx.handle() // once: another goroutine may end it
	if txn == 0 {
		return closed("Join", "transaction")
	}
	_, err := w.end("Join", txn)
	runtime.KeepAlive(tx)
	return err
}

func (w *ValueWriter) end(op string, txn C.handle) (uint64, error) {
	h := w.h.Swap(0)
	if h == 0 {
		return 0, closed(op, "writer")
	}
	w.cleanup.Stop()
	r := C.go_value_commit(C.handle(h), txn)
	if r.code != C.TDB_SUCCESS {
		return 0, errorOf(op, w.db, r)
	}
	return uint64(r.a), nil
}

// Close discards a value that was neither committed nor joined. It always returns nil, as an [io.Closer].
func (w *ValueWriter) Close() error {
	if h := w.h.Swap(0); h != 0 {
		w.cleanup.Stop()
		C.go_value_writer_free(C.handle(h))
	}
	return nil
}

// ValueReader reads a value piece by piece, as it was when the reader was created.
type ValueReader struct {
	view    view
	h       atomic.Uintptr
	size    int64
	cleanup runtime.Cleanup
}

// NewValueReader creates a reader of a value. [ErrNotFound] if there is no such key. The caller closes it.
func (v *view) NewValueReader(key []byte) (*ValueReader, error) {
	where, err := v.where("NewValueReader")
	if err != nil {
		return nil, err
	}
	k, kn := bytesOf(key)
	got := C.go_value_reader(C.handle(v.cf), k, kn, where)
	runtime.KeepAlive(v)
	if got.code != C.TDB_SUCCESS {
		return nil, v.failed("NewValueReader", got)
	}
	r := &ValueReader{view: *v, size: int64(got.b)}
	r.h.Store(uintptr(got.a))
	r.cleanup = runtime.AddCleanup(r, func(h C.handle) { C.go_value_reader_free(h) }, C.handle(got.a))
	return r, nil
}

// Size returns the length of the value.
func (r *ValueReader) Size() int64 { return r.size }

// Read reads the next bytes of the value; [io.EOF] at its end.
func (r *ValueReader) Read(p []byte) (int, error) {
	b, n := bytesOf(p)
	got := C.go_value_read(C.handle(r.h.Load()), b, n)
	return r.done("Read", p, got)
}

// ReadAt reads len(p) bytes from an offset; fewer, with [io.EOF], at the end of the value. Read goes on behind them.
func (r *ValueReader) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, invalid("ReadAt", "the offset is negative")
	}
	b, n := bytesOf(p)
	got := C.go_value_read_at(C.handle(r.h.Load()), C.uint64_t(offset), b, n)
	count, err := r.done("ReadAt", p, got)
	if err == nil && count < len(p) {
		err = io.EOF
		if offset+int64(count) < r.size {
			err = io.ErrUnexpectedEOF
		}
	}
	return count, err
}

func (r *ValueReader) done(op string, p []byte, got C.go_result) (int, error) {
	runtime.KeepAlive(r)
	if got.code != C.TDB_SUCCESS {
		err := errorOf(op, r.view.db, got)
		if r.h.Load() == 0 {
			err = closed(op, "reader")
		}
		return 0, err
	}
	if got.a == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return int(got.a), nil
}

// Close frees the reader. It always returns nil, as an [io.Closer].
func (r *ValueReader) Close() error {
	if h := r.h.Swap(0); h != 0 {
		r.cleanup.Stop()
		C.go_value_reader_free(C.handle(h))
	}
	return nil
}
