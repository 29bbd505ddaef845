package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Isolation says which data a transaction reads, and when its commit is a conflict.
type Isolation int

// The levels.
const (
	// Serializable is the default: the result is as if transactions ran one after the other.
	Serializable Isolation = iota
	// SnapshotIsolation reads one moment; a commit is a conflict if another one has written the same key.
	SnapshotIsolation
	// RepeatableRead reads one moment; a commit is a conflict if a key that was read has changed.
	RepeatableRead
	// ReadCommitted reads the newest commits, and has no conflicts.
	ReadCommitted
	// ReadUncommitted is like ReadCommitted, and also reads commits that are about to be published.
	ReadUncommitted
)

// Tx is a transaction. Its reads see its own writes. Its own methods use the family "default".
type Tx struct {
	txRows
	h       atomic.Uintptr
	cleanup runtime.Cleanup
}

// TxFamily reads and writes one family in a transaction.
type TxFamily struct{ txRows }

type txRows struct{ view }

// Begin begins a transaction. The caller ends it by Commit or Rollback.
func (db *DB) Begin(level Isolation) (*Tx, error) {
	if level < Serializable || level > ReadUncommitted {
		return nil, invalid("Begin", "there is no such isolation level")
	}
	r := C.go_begin(db.handle(), C.TDB_ISOLATION_SERIALIZABLE-C.int(level))
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf("Begin", db, r)
	}
	tx := &Tx{}
	tx.view = view{db: db, cf: db.cf, txn: tx}
	tx.h.Store(uintptr(r.a))
	tx.cleanup = runtime.AddCleanup(tx, func(h C.handle) { C.go_txn_free(h) }, C.handle(r.a))
	return tx, nil
}

// Transact runs body in a transaction and commits it. After a conflict it runs body again, in a new transaction, until the commit succeeds or
// ctx ends. If body returns an error, the transaction is rolled back, and the error returned; a conflict that body returns is retried as well.
func (db *DB) Transact(ctx context.Context, level Isolation, body func(tx *Tx) error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := db.attempt(level, body)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if try >= 3 {
			pause := time.NewTimer(rand.N(time.Millisecond << min(try-3, 6)))
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			pause.Stop()
		}
	}
}

func (db *DB) attempt(level Isolation, body func(tx *Tx) error) error {
	tx, err := db.Begin(level)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := body(tx); err != nil {
		return err
	}
	_, err = tx.Commit(nil)
	return err
}

// In returns the transaction's reader and writer of a family.
func (tx *Tx) In(f *Family) *TxFamily {
	family := &TxFamily{txRows{view{db: tx.db, txn: tx}}}
	if f != nil {
		family.cf = f.cf
	}
	return family
}

func (t *txRows) handle() C.handle {
	if t.txn == nil {
		return 0
	}
	return C.handle(t.txn.h.Load())
}

// failed returns the error of a write; that the transaction has ended, if C has refused it for that.
func (t *txRows) failed(op string, r C.go_result) error {
	if r.code == C.TDB_SUCCESS {
		return nil
	}
	err := t.written(op, r)
	if r.code == C.TDB_ERR_INVALID_ARGS && t.handle() == 0 {
		return closed(op, "transaction")
	}
	return err
}

// Put puts a row. Of opts, the expiry counts: the sync mode is given to the commit.
func (t *txRows) Put(key, value []byte, opts *WriteOptions) error {
	k, kn := bytesOf(key)
	v, vn := bytesOf(value)
	r := C.go_txn_put(t.handle(), C.handle(t.cf), k, kn, v, vn, opts.expiry())
	runtime.KeepAlive(t)
	return t.failed("Put", r)
}

// Delete deletes a key, whether or not it exists.
func (t *txRows) Delete(key []byte) error {
	k, kn := bytesOf(key)
	r := C.go_txn_delete(t.handle(), C.handle(t.cf), k, kn)
	runtime.KeepAlive(t)
	return t.failed("Delete", r)
}

// Merge adds an operand: see [DB.Merge].
func (t *txRows) Merge(key, operand []byte) error {
	k, kn := bytesOf(key)
	o, on := bytesOf(operand)
	r := C.go_txn_merge(t.handle(), C.handle(t.cf), k, kn, o, on)
	runtime.KeepAlive(t)
	return t.failed("Merge", r)
}

// DeleteRange deletes a range: see [DB.DeleteRange].
func (t *txRows) DeleteRange(start, end []byte) error {
	s, sn := bytesOf(start)
	e, en := bytesOf(end)
	r := C.go_txn_delete_range(t.handle(), C.handle(t.cf), s, sn, e, en)
	runtime.KeepAlive(t)
	return t.failed("DeleteRange", r)
}

// DeletePrefix deletes a prefix: see [DB.DeletePrefix].
func (t *txRows) DeletePrefix(prefix []byte) error {
	p, pn := bytesOf(prefix)
	r := C.go_txn_delete_prefix(t.handle(), C.handle(t.cf), p, pn)
	runtime.KeepAlive(t)
	return t.failed("DeletePrefix", r)
}

// Savepoint marks the writes so far, for RollbackTo. A savepoint of the same name is moved.
func (tx *Tx) Savepoint(name string) error {
	return tx.named("Savepoint", name, func(h C.handle, name *C.char) C.go_result { return C.go_txn_savepoint(h, name) })
}

// RollbackTo discards the writes since the savepoint, and removes that savepoint and the later ones. [ErrNotFound] if no savepoint has this name.
func (tx *Tx) RollbackTo(name string) error {
	return tx.named("RollbackTo", name, func(h C.handle, name *C.char) C.go_result { return C.go_txn_rollback_to(h, name) })
}

// Release removes a savepoint and keeps the writes.
func (tx *Tx) Release(name string) error {
	return tx.named("Release", name, func(h C.handle, name *C.char) C.go_result { return C.go_txn_release(h, name) })
}

func (tx *Tx) named(op, name string, call func(h C.handle, name *C.char) C.go_result) error {
	text, err := cstring(op, name)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(text))
	r := call(tx.handle(), text)
	runtime.KeepAlive(tx)
	return tx.failed(op, r)
}

// Commit commits all writes, or none, and returns the sequence number of the commit. The transaction has ended then, also after a failure.
// [ErrConflict] if another commit was first, [ErrBusy] if writes are stalled: run the transaction again. Of opts, the sync mode counts.
func (tx *Tx) Commit(opts *WriteOptions) (seq uint64, err error) {
	h := tx.h.Swap(0)
	if h == 0 {
		return 0, closed("Commit", "transaction")
	}
	tx.cleanup.Stop()
	r := C.go_txn_commit(C.handle(h), opts.commit())
	runtime.KeepAlive(tx)
	if r.code != C.TDB_SUCCESS {
		return 0, errorOf("Commit", tx.db, r)
	}
	return uint64(r.a), nil
}

// Rollback discards all writes and ends the transaction. After a commit or a rollback it does nothing. It always returns nil.
func (tx *Tx) Rollback() error {
	if h := tx.h.Swap(0); h != 0 {
		tx.cleanup.Stop()
		C.go_txn_free(C.handle(h))
	}
	return nil
}
