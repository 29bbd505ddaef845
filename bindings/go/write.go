package tidesdb

// #include "shim.h"
import "C"

import (
	"runtime"
	"time"
)

// WriteOptions say how to write. nil stands for the settings of the family.
type WriteOptions struct {
	// Sync says when the commit is durable; Interval is that of SyncInterval.
	Sync     Sync
	Interval time.Duration
	// TTL is after which time a put row expires, ExpiresAt when. At most one of TTL, ExpiresAt and NeverExpires is set.
	TTL          time.Duration
	ExpiresAt    time.Time
	NeverExpires bool
}

// NoSync are the options of a write that is durable when the system writes it.
var NoSync = &WriteOptions{Sync: SyncNone}

// number returns the options for C. Without an expiry and a sync mode they are all zero.
func (w *WriteOptions) number() C.go_write {
	if w == nil {
		return C.go_write{}
	}
	how := C.go_write{sync: C.int(w.Sync)}
	if w.Interval > 0 {
		how.interval_us = C.uint64_t(w.Interval / time.Microsecond)
	}
	if w.TTL != 0 {
		how.ttl_ms = max(millis(w.TTL), 1)
	}
	if !w.ExpiresAt.IsZero() {
		how.expires_ms = C.uint64_t(max(w.ExpiresAt.UnixMilli(), 1))
	}
	if w.NeverExpires {
		how.flags = C.TDB_X_NEVER_EXPIRES
	}
	return how
}

// commit returns the part of the options that a commit has: when it is durable.
func (w *WriteOptions) commit() C.go_write {
	how := w.number()
	return C.go_write{sync: how.sync, interval_us: how.interval_us}
}

// expiry returns the part of the options that a put has: when its row expires.
func (w *WriteOptions) expiry() C.go_write {
	how := w.number()
	how.sync, how.interval_us = 0, 0
	return how
}

// rows are the rows of a family, with its newest commits. Each of its writes is a commit.
type rows struct{ view }

// Put puts a row.
func (r *rows) Put(key, value []byte, opts *WriteOptions) error {
	k, kn := bytesOf(key)
	v, vn := bytesOf(value)
	got := C.go_put(C.handle(r.cf), k, kn, v, vn, opts.number())
	runtime.KeepAlive(r)
	if got.code == C.TDB_SUCCESS {
		return nil
	}
	return r.written("Put", got)
}

// Delete deletes a key, whether or not it exists.
func (r *rows) Delete(key []byte, opts *WriteOptions) error {
	k, kn := bytesOf(key)
	got := C.go_delete(C.handle(r.cf), k, kn, opts.number())
	runtime.KeepAlive(r)
	return r.written("Delete", got)
}

// SingleDelete deletes a key that was put at most once since its last delete, at less cost than [DB.Delete].
func (r *rows) SingleDelete(key []byte, opts *WriteOptions) error {
	k, kn := bytesOf(key)
	got := C.go_single_delete(C.handle(r.cf), k, kn, opts.number())
	runtime.KeepAlive(r)
	return r.written("SingleDelete", got)
}

// DeleteRange deletes the keys from start up to, and without, end, at the cost of one put. An empty end is no limit.
func (r *rows) DeleteRange(start, end []byte, opts *WriteOptions) error {
	s, sn := bytesOf(start)
	e, en := bytesOf(end)
	got := C.go_delete_range(C.handle(r.cf), s, sn, e, en, opts.number())
	runtime.KeepAlive(r)
	return r.written("DeleteRange", got)
}

// DeletePrefix deletes the keys that begin with prefix, at the cost of one put.
func (r *rows) DeletePrefix(prefix []byte, opts *WriteOptions) error {
	p, pn := bytesOf(prefix)
	got := C.go_delete_prefix(C.handle(r.cf), p, pn, opts.number())
	runtime.KeepAlive(r)
	return r.written("DeletePrefix", got)
}

// Merge adds an operand for the merge operator of the family, without reading the value. [ErrInvalid] if the family has no operator, or if
// its check refuses the operand.
func (r *rows) Merge(key, operand []byte, opts *WriteOptions) error {
	k, kn := bytesOf(key)
	o, on := bytesOf(operand)
	got := C.go_merge(C.handle(r.cf), k, kn, o, on, opts.number())
	runtime.KeepAlive(r)
	return r.written("Merge", got)
}

// CompareAndSwap sets the value of a key to value if it is expected, and returns whether it was. expected nil: there is no such key; value nil:
// delete the key. An empty slice that is not nil is an empty value.
func (r *rows) CompareAndSwap(key, expected, value []byte, opts *WriteOptions) (bool, error) {
	k, kn := bytesOf(key)
	e, en := bytesOf(present(expected))
	v, vn := bytesOf(present(value))
	got := C.go_compare_and_swap(C.handle(r.cf), k, kn, e, en, v, vn, opts.number())
	runtime.KeepAlive(r)
	return got.a != 0, r.written("CompareAndSwap", got)
}

// present returns b with memory behind it unless it is nil, because C tells an empty value from none by its address.
func present(b []byte) []byte {
	if b != nil && len(b) == 0 {
		return make([]byte, 1)[:0]
	}
	return b
}

// Replace puts a row and returns the old value; nil if there was no such key.
func (r *rows) Replace(key, value []byte, opts *WriteOptions) (old []byte, err error) {
	k, kn := bytesOf(key)
	v, vn := bytesOf(value)
	how := opts.number()
	got := into(func(b *C.uint8_t, n C.size_t) C.go_result {
		return C.go_replace(C.handle(r.cf), k, kn, v, vn, how, b, n)
	}, func(r *C.go_result) uint64 { return uint64(r.b) }, func(buffer []byte, r *C.go_result) {
		if r.a != 0 {
			old = make([]byte, int(r.b))
			copy(old, buffer)
		}
	})
	runtime.KeepAlive(r)
	return old, r.written("Replace", got)
}

// Take deletes a key and returns its value. [ErrNotFound] if there is none.
func (r *rows) Take(key []byte, opts *WriteOptions) (value []byte, err error) {
	k, kn := bytesOf(key)
	how := opts.number()
	got := into(func(b *C.uint8_t, n C.size_t) C.go_result {
		return C.go_take(C.handle(r.cf), k, kn, how, b, n)
	}, first, func(buffer []byte, r *C.go_result) {
		value = make([]byte, int(r.a))
		copy(value, buffer)
	})
	runtime.KeepAlive(r)
	return value, r.failedRead("Take", got)
}

// PopFirst deletes the row with the first key and returns it. Goroutines that do this at once get different rows. [ErrNotFound] if there is none.
func (r *rows) PopFirst(opts *WriteOptions) (key, value []byte, err error) {
	return r.pop("PopFirst", 0, opts)
}

// PopLast is like [DB.PopFirst], for the last row.
func (r *rows) PopLast(opts *WriteOptions) (key, value []byte, err error) {
	return r.pop("PopLast", 1, opts)
}

func (r *rows) pop(op string, last C.int, opts *WriteOptions) (key, value []byte, err error) {
	how := opts.number()
	got := into(func(b *C.uint8_t, n C.size_t) C.go_result {
		return C.go_pop(C.handle(r.cf), last, how, b, n)
	}, rowSize, func(buffer []byte, r *C.go_result) { key, value = rowOf(buffer, r) })
	runtime.KeepAlive(r)
	return key, value, r.failedRead(op, got)
}

func (r *rows) failedRead(op string, got C.go_result) error {
	if got.code == C.TDB_SUCCESS {
		return nil
	}
	if got.code == C.TDB_ERR_NOT_FOUND {
		return ErrNotFound
	}
	return r.written(op, got)
}
