package tidesdb

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// view reads a family: its newest commits, or what a transaction or a snapshot shows.
type view struct {
	db   *DB
	cf   uintptr
	txn  *Tx
	snap *Snapshot
}

// where returns what a read looks at. A transaction or snapshot that was closed is an error: without its handle, C would read the newest commits.
func (v *view) where(op string) (C.go_read, error) {
	var where C.go_read
	if v.txn != nil {
		if where.txn = C.handle(v.txn.h.Load()); where.txn == 0 {
			return where, closed(op, "transaction")
		}
	}
	if v.snap != nil {
		if where.snapshot = C.handle(v.snap.h.Load()); where.snapshot == 0 {
			return where, closed(op, "snapshot")
		}
	}
	return where, nil
}

// buffers hold values between C and the slices that methods return. Longer ones are not kept.
var buffers = sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}

const longestKept = 1 << 20

// into calls read with buffers until one is long enough, and passes it with the result of the call to done, which copies.
func into(read func(buffer *C.uint8_t, n C.size_t) C.go_result, needed func(r *C.go_result) uint64, done func(buffer []byte, r *C.go_result)) C.go_result {
	kept := buffers.Get().(*[]byte)
	buffer := *kept
	for {
		b, n := bytesOf(buffer)
		r := read(b, n)
		if r.code == C.TDB_ERR_TOO_LARGE {
			buffer = make([]byte, needed(&r))
			continue
		}
		if r.code == C.TDB_SUCCESS {
			done(buffer, &r)
		}
		if len(buffer) <= longestKept {
			*kept = buffer
		}
		buffers.Put(kept)
		return r
	}
}

// Get returns the value of a key. [ErrNotFound] if there is none.
func (v *view) Get(key []byte) ([]byte, error) {
	k, kn := bytesOf(key)
	kept := buffers.Get().(*[]byte)
	defer buffers.Put(kept)
	for {
		where, err := v.where("Get")
		if err != nil {
			return nil, err
		}
		b, n := bytesOf(*kept)
		r := C.go_get(C.handle(v.cf), k, kn, where, b, n)
		runtime.KeepAlive(v)
		switch {
		case r.code == C.TDB_SUCCESS:
			value := make([]byte, int(r.a))
			copy(value, *kept)
			return value, nil
		case r.code != C.TDB_ERR_TOO_LARGE:
			return nil, v.failed("Get", r)
		case r.a > longestKept:
			return v.AppendGet(make([]byte, 0, int(r.a)), key)
		}
		*kept = make([]byte, int(r.a)*2) // for the next values, too
	}
}

// AppendGet appends the value of a key to dst and returns the extended slice: with a slice that has room, it allocates nothing.
// [ErrNotFound], with dst as it was, if there is none.
func (v *view) AppendGet(dst, key []byte) ([]byte, error) {
	k, kn := bytesOf(key)
	for {
		where, err := v.where("AppendGet")
		if err != nil {
			return dst, err
		}
		room := dst[len(dst):cap(dst)]
		b, n := bytesOf(room)
		r := C.go_get(C.handle(v.cf), k, kn, where, b, n)
		runtime.KeepAlive(v)
		switch r.code {
		case C.TDB_SUCCESS:
			return dst[:len(dst)+int(r.a)], nil
		case C.TDB_ERR_TOO_LARGE:
			longer := make([]byte, len(dst), len(dst)+int(r.a))
			copy(longer, dst)
			dst = longer
		default:
			return dst, v.failed("AppendGet", r)
		}
	}
}

// failed returns the error of a read. An absent key needs no text, so it costs nothing.
func (v *view) failed(op string, r C.go_result) error {
	if r.code == C.TDB_ERR_NOT_FOUND {
		return ErrNotFound
	}
	return v.errorOf(op, r)
}

// Has returns whether a key exists.
func (v *view) Has(key []byte) (bool, error) {
	where, err := v.where("Has")
	if err != nil {
		return false, err
	}
	k, kn := bytesOf(key)
	r := C.go_has(C.handle(v.cf), k, kn, where)
	runtime.KeepAlive(v)
	if r.code == C.TDB_ERR_NOT_FOUND {
		return false, nil
	}
	return r.code == C.TDB_SUCCESS, v.errorOf("Has", r)
}

// joined returns keys one after the other, and their sizes.
func joined(keys [][]byte) ([]byte, []C.size_t) {
	n := 0
	for _, key := range keys {
		n += len(key)
	}
	bytes, sizes := make([]byte, 0, n), make([]C.size_t, len(keys))
	for i, key := range keys {
		bytes = append(bytes, key...)
		sizes[i] = C.size_t(len(key))
	}
	return bytes, sizes
}

// MultiGet returns the values of keys, all as they are at one moment. The value of an absent key is nil, an empty value is not. The values
// share their memory.
func (v *view) MultiGet(keys [][]byte) ([][]byte, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	where, err := v.where("MultiGet")
	if err != nil {
		return nil, err
	}
	bytes, sizes := joined(keys)
	k, _ := bytesOf(bytes)
	spans := make([]C.tidesdb_x_span_t, len(keys))
	values := make([][]byte, len(keys))
	r := into(func(b *C.uint8_t, n C.size_t) C.go_result {
		return C.go_multi_get(C.handle(v.cf), k, unsafe.SliceData(sizes), C.size_t(len(keys)), where, b, n, unsafe.SliceData(spans))
	}, first, func(buffer []byte, r *C.go_result) {
		all := make([]byte, int(r.a))
		copy(all, buffer)
		for i, span := range spans {
			if span.offset != C.TDB_X_NONE {
				end := int(span.offset + span.size)
				values[i] = all[int(span.offset):end:end]
			}
		}
	})
	runtime.KeepAlive(v)
	if r.code != C.TDB_SUCCESS {
		return nil, v.errorOf("MultiGet", r)
	}
	return values, nil
}

func first(r *C.go_result) uint64 { return uint64(r.a) }

// MultiHas returns for each key whether it exists, all at one moment.
func (v *view) MultiHas(keys [][]byte) ([]bool, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	where, err := v.where("MultiHas")
	if err != nil {
		return nil, err
	}
	bytes, sizes := joined(keys)
	k, _ := bytesOf(bytes)
	found := make([]byte, len(keys))
	f, _ := bytesOf(found)
	r := C.go_multi_has(C.handle(v.cf), k, unsafe.SliceData(sizes), C.size_t(len(keys)), where, f)
	runtime.KeepAlive(v)
	if r.code != C.TDB_SUCCESS {
		return nil, v.errorOf("MultiHas", r)
	}
	has := make([]bool, len(keys))
	for i := range has {
		has[i] = found[i] != 0
	}
	return has, nil
}

// First returns the row with the first key. [ErrNotFound] if there is no row.
func (v *view) First() (key, value []byte, err error) { return v.endRow("First", 0) }

// Last returns the row with the last key. [ErrNotFound] if there is no row.
func (v *view) Last() (key, value []byte, err error) { return v.endRow("Last", 1) }

func (v *view) endRow(op string, last C.int) (key, value []byte, err error) {
	where, err := v.where(op)
	if err != nil {
		return nil, nil, err
	}
	r := into(func(b *C.uint8_t, n C.size_t) C.go_result {
		return C.go_end_row(C.handle(v.cf), last, where, b, n)
	}, rowSize, func(buffer []byte, r *C.go_result) { key, value = rowOf(buffer, r) })
	runtime.KeepAlive(v)
	if r.code != C.TDB_SUCCESS {
		return nil, nil, v.failed(op, r)
	}
	return key, value, nil
}

func rowSize(r *C.go_result) uint64 { return uint64(r.b + r.c) }

// rowOf copies a row out of a buffer.
func rowOf(buffer []byte, r *C.go_result) (key, value []byte) {
	row := make([]byte, int(r.b+r.c))
	copy(row, buffer[int(r.a):])
	return row[:int(r.b):int(r.b)], row[int(r.b):]
}

// Expiry returns the moment at which a row expires; the zero time: never. [ErrNotFound] if there is no such key.
func (v *view) Expiry(key []byte) (time.Time, error) {
	where, err := v.where("Expiry")
	if err != nil {
		return time.Time{}, err
	}
	k, kn := bytesOf(key)
	r := C.go_expiry(C.handle(v.cf), k, kn, where)
	runtime.KeepAlive(v)
	if r.code != C.TDB_SUCCESS {
		return time.Time{}, v.failed("Expiry", r)
	}
	return moment(uint64(r.a)), nil
}

// Explain explains the look-up of a key: where it looked, what it read, which versions there are. The text is for people: its form may change.
func (v *view) Explain(key []byte) (string, error) {
	where, err := v.where("Explain")
	if err != nil {
		return "", err
	}
	k, kn := bytesOf(key)
	r := C.go_explain(C.handle(v.cf), k, kn, where)
	runtime.KeepAlive(v)
	if r.code != C.TDB_SUCCESS {
		return "", v.errorOf("Explain", r)
	}
	return taken(r.a), nil
}

// ExplainRange explains a scan from start up to, and without, end, of at most rows rows: see [DB.Explain].
func (v *view) ExplainRange(start, end []byte, rows int) (string, error) {
	where, err := v.where("ExplainRange")
	if err != nil {
		return "", err
	}
	s, sn := bytesOf(start)
	e, en := bytesOf(end)
	r := C.go_explain_range(C.handle(v.cf), s, sn, e, en, C.size_t(max(rows, 0)), where)
	runtime.KeepAlive(v)
	if r.code != C.TDB_SUCCESS {
		return "", v.errorOf("ExplainRange", r)
	}
	return taken(r.a), nil
}
