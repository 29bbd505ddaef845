package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"slices"
	"unsafe"
)

// Batch collects writes to any families of a database. A commit writes all of them or none. It reads nothing and has no conflicts.
//
// A batch is Go memory only: it needs no close, and a commit copies it. Its methods return no error; a mistake, such as an empty key, is
// returned by the commit.
type Batch struct {
	batchRows
	parts   []part
	current map[uintptr]int
	count   int
	bytes   int
}

// part are operations on one family whose puts expire alike.
type part struct {
	cf     uintptr
	expiry C.go_write
	ops    operations
}

// operations are what C takes in one call.
type operations struct {
	kinds []byte
	bytes []byte
	sizes []C.size_t
}

func (o *operations) add(kind byte, key, value []byte) {
	o.kinds = append(o.kinds, kind)
	o.bytes = append(append(o.bytes, key...), value...)
	o.sizes = append(o.sizes, C.size_t(len(key)), C.size_t(len(value)))
}

func (o *operations) reset() { o.kinds, o.bytes, o.sizes = o.kinds[:0], o.bytes[:0], o.sizes[:0] }

func (o *operations) parts() (kinds, bytes *C.uint8_t, sizes *C.size_t, n C.size_t) {
	kinds, n = bytesOf(o.kinds)
	bytes, _ = bytesOf(o.bytes)
	return kinds, bytes, unsafe.SliceData(o.sizes), n
}

// BatchFamily adds writes to one family to a batch.
type BatchFamily struct{ batchRows }

type batchRows struct {
	batch *Batch
	db    *DB
	cf    uintptr
}

// Batch returns an empty batch. Its own methods write to the family "default".
func (db *DB) Batch() *Batch {
	b := &Batch{}
	b.batchRows = batchRows{batch: b, db: db, cf: db.cf}
	return b
}

// In returns the writer of a family.
func (b *Batch) In(f *Family) *BatchFamily {
	family := &BatchFamily{batchRows{batch: b, db: b.db}}
	if f != nil {
		family.cf = f.cf
	}
	return family
}

// part returns the operations to which one more is added: those that were added to the family last, if its puts expire alike.
func (b *Batch) part(kind byte, cf uintptr, expiry C.go_write) *part {
	fits := func(p *part) bool { return p.cf == cf && (kind != C.TDB_X_OP_PUT || p.expiry == expiry) }
	if n := len(b.parts); n > 0 && fits(&b.parts[n-1]) {
		return &b.parts[n-1]
	}
	if i, ok := b.current[cf]; ok && fits(&b.parts[i]) {
		return &b.parts[i]
	}
	if b.current == nil {
		b.current = make(map[uintptr]int)
	}
	b.current[cf] = len(b.parts)
	if len(b.parts) < cap(b.parts) {
		b.parts = b.parts[:len(b.parts)+1]
	} else {
		b.parts = append(b.parts, part{})
	}
	last := &b.parts[len(b.parts)-1]
	last.cf, last.expiry = cf, expiry
	last.ops.reset()
	return last
}

func (r batchRows) add(kind byte, expiry C.go_write, key, value []byte) {
	if r.batch == nil {
		return // the commit says so
	}
	r.batch.part(kind, r.cf, expiry).ops.add(kind, key, value)
	r.batch.count++
	r.batch.bytes += len(key) + len(value)
}

// Put adds a put.
func (r batchRows) Put(key, value []byte) { r.add(C.TDB_X_OP_PUT, C.go_write{}, key, value) }

// PutWith adds a put of a row that expires as opts says. The sync mode is given to the commit.
func (r batchRows) PutWith(key, value []byte, opts *WriteOptions) {
	r.add(C.TDB_X_OP_PUT, opts.expiry(), key, value)
}

// Delete adds a delete.
func (r batchRows) Delete(key []byte) { r.add(C.TDB_X_OP_DELETE, C.go_write{}, key, nil) }

// SingleDelete adds a delete of a key that was put at most once since its last delete.
func (r batchRows) SingleDelete(key []byte) {
	r.add(C.TDB_X_OP_SINGLE_DELETE, C.go_write{}, key, nil)
}

// Merge adds an operand: see [DB.Merge].
func (r batchRows) Merge(key, operand []byte) { r.add(C.TDB_X_OP_MERGE, C.go_write{}, key, operand) }

// DeleteRange adds a delete of a range: see [DB.DeleteRange].
func (r batchRows) DeleteRange(start, end []byte) {
	r.add(C.TDB_X_OP_DELETE_RANGE, C.go_write{}, start, end)
}

// DeletePrefix adds a delete of a prefix: see [DB.DeletePrefix].
func (r batchRows) DeletePrefix(prefix []byte) {
	r.add(C.TDB_X_OP_DELETE_PREFIX, C.go_write{}, prefix, nil)
}

// Len returns the number of operations.
func (b *Batch) Len() int { return b.count }

// Size returns the bytes of keys and values.
func (b *Batch) Size() int { return b.bytes }

// Reset removes all operations. The memory is kept for the next ones.
func (b *Batch) Reset() {
	b.parts, b.count, b.bytes = b.parts[:0], 0, 0
	clear(b.current)
}

// Commit writes all operations or none, and returns the sequence number of the commit. The batch is empty afterwards; after a failure it keeps its
// operations. An empty batch is a commit, too: with SyncFull, all commits before it are durable when it returns. Of opts, the sync mode counts.
func (b *Batch) Commit(opts *WriteOptions) (seq uint64, err error) {
	if b.batch != b {
		return 0, invalid("Commit", "a batch is made by DB.Batch and not copied")
	}
	var r C.go_result
	if len(b.parts) == 1 {
		one := &b.parts[0]
		kinds, bytes, sizes, n := one.ops.parts()
		r = C.go_batch_run(b.db.handle(), C.handle(one.cf), kinds, bytes, sizes, n, one.expiry, opts.commit())
	} else {
		var handle C.handle
		if handle, r = b.filled(); r.code == C.TDB_SUCCESS {
			r = C.go_batch_write(handle, opts.commit())
		}
		C.go_batch_free(handle)
	}
	runtime.KeepAlive(b)
	if r.code != C.TDB_SUCCESS {
		return 0, b.failed("Commit", r)
	}
	b.Reset()
	return uint64(r.a), nil
}

// filled returns a batch of C with all operations, also after a failure.
func (b *Batch) filled() (C.handle, C.go_result) {
	r := C.go_batch_new(b.db.handle())
	if r.code != C.TDB_SUCCESS {
		return 0, r
	}
	handle := C.handle(r.a)
	for i := range b.parts {
		kinds, bytes, sizes, n := b.parts[i].ops.parts()
		r = C.go_batch_add(handle, C.handle(b.parts[i].cf), kinds, bytes, sizes, n, b.parts[i].expiry)
		if r.code != C.TDB_SUCCESS {
			break
		}
	}
	return handle, r
}

// failed returns the error of a commit.
func (b *Batch) failed(op string, r C.go_result) error {
	family := view{db: b.db}
	if slices.ContainsFunc(b.parts, func(p part) bool { return p.cf == noFamily }) {
		family.cf = noFamily
	}
	return family.written(op, r)
}

// Pending is a commit in the background.
type Pending struct {
	done chan struct{}
	seq  uint64
	err  error
}

// CommitAsync commits the batch in the background, in the order of the calls; commits that wait share a sync. The batch is empty afterwards. A
// commit that was taken is made even if the database is closed right away: [DB.Close] waits for it.
func (b *Batch) CommitAsync(opts *WriteOptions) (*Pending, error) {
	if b.batch != b {
		return nil, invalid("CommitAsync", "a batch is made by DB.Batch and not copied")
	}
	pending := &Pending{done: make(chan struct{})}
	handle, r := b.filled()
	if r.code == C.TDB_SUCCESS {
		callback := cgo.NewHandle(pending)
		if r = C.go_batch_write_async(handle, opts.commit(), C.uintptr_t(callback)); r.code != C.TDB_SUCCESS {
			callback.Delete()
		}
	}
	C.go_batch_free(handle)
	runtime.KeepAlive(b)
	if r.code != C.TDB_SUCCESS {
		return nil, b.failed("CommitAsync", r)
	}
	b.Reset()
	return pending, nil
}

// Done returns a channel that is closed when the commit has succeeded or failed.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait waits for the commit and returns its sequence number. If ctx ends before, it returns the error of ctx, and the commit goes on.
func (p *Pending) Wait(ctx context.Context) (seq uint64, err error) {
	select {
	case <-p.done:
		return p.seq, p.err
	default:
	}
	if ctx == nil {
		ctx = context.Background()
	}
	select {
	case <-p.done:
		return p.seq, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
