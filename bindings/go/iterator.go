package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// IterOptions are the bounds of an [Iterator]. The zero value has none.
type IterOptions struct {
	// Start is the first key, End the first that is left out. An empty one is no limit.
	Start, End []byte
	// Prefix is what all keys begin with. With it, Start and End must be empty.
	Prefix []byte
	// KeysOnly leaves out the values: none is read from disk.
	KeysOnly bool
	// Reverse makes All and AllKeys go from the last row to the first.
	Reverse bool
	// Context ends the iteration with its error. It is checked when rows are fetched, for each few hundred rows.
	Context context.Context
}

// Iterator shows the rows of a range as they were when it was created. In a transaction they include the writes that it had made before; those that
// it makes later may or may not be shown, key by key. At the level [ReadUncommitted] commits of others may appear, too.
//
// It fetches many rows with one call of C. It stands at a row or between two; a new one stands before the first row for Next, and after the last
// one for Prev. Close it: it keeps old rows on disk.
type Iterator struct {
	h       atomic.Uintptr
	view    view
	ctx     context.Context
	reverse bool
	loan    *loan
	// busy is set while C writes to the memory of loan.
	busy atomic.Bool

	// The rows that were fetched, in the order of the way they were fetched; the current one is rows[at] if 0 <= at < len(rows).
	buffer    []byte
	rows      []C.tidesdb_x_row_t
	at        int
	backwards bool
	// How many rows the next call fetches.
	want int
	err  error
}

// loan is what an iterator returns when it is closed, for the next one: its memory, and the net for iterators that are forgotten, which costs
// more than an iterator.
type loan struct {
	buffer []byte
	rows   []C.tidesdb_x_row_t
	// open is the handle of the iterator that has it, or 0.
	open *atomic.Uintptr
}

var loans = sync.Pool{New: func() any {
	l := &loan{open: new(atomic.Uintptr)}
	runtime.AddCleanup(l, func(open *atomic.Uintptr) { C.go_iter_free(C.handle(open.Swap(0))) }, l.open)
	return l
}}

// The first call fetches few rows, because many iterators are moved a few times only; each further one fetches more.
const (
	fewRows     = 2
	moreRows    = 8 // times
	mostRows    = 512
	fewBytes    = 2 << 10
	mostBytes   = 64 << 10
	bytesPerRow = 128
)

// Iterator creates an iterator over the family. opts may be nil. The caller closes it.
func (v *view) Iterator(opts *IterOptions) (*Iterator, error) {
	const op = "Iterator"
	if opts == nil {
		opts = &IterOptions{}
	}
	where, err := v.where(op)
	if err != nil {
		return nil, err
	}
	if opts.KeysOnly {
		where.flags = C.TDB_X_KEYS_ONLY
	}
	if opts.Context != nil && opts.Context.Err() != nil {
		return nil, opts.Context.Err()
	}
	var r C.go_result
	if len(opts.Prefix) > 0 {
		if len(opts.Start)+len(opts.End) > 0 {
			return nil, invalid(op, "a prefix has no further bounds")
		}
		p, n := bytesOf(opts.Prefix)
		r = C.go_iter_new_prefix(C.handle(v.cf), where, p, n)
	} else {
		s, sn := bytesOf(opts.Start)
		e, en := bytesOf(opts.End)
		r = C.go_iter_new(C.handle(v.cf), where, s, sn, e, en)
	}
	runtime.KeepAlive(v)
	if r.code != C.TDB_SUCCESS {
		return nil, v.errorOf(op, r)
	}
	it := &Iterator{view: *v, ctx: opts.Context, reverse: opts.Reverse, at: -1, want: fewRows, loan: loans.Get().(*loan)}
	it.h.Store(uintptr(r.a))
	it.loan.open.Store(uintptr(r.a))
	it.buffer, it.rows = it.loan.buffer, it.loan.rows
	return it, nil
}

// Next moves to the next row, and returns false after the last one and after a failure: see [Iterator.Err].
func (it *Iterator) Next() bool {
	if !it.backwards && it.at+1 < len(it.rows) {
		it.at++
		return true
	}
	return it.move(false)
}

// Prev moves to the previous row, and returns false before the first one and after a failure.
func (it *Iterator) Prev() bool {
	if it.backwards && it.at+1 < len(it.rows) {
		it.at++
		return true
	}
	return it.move(true)
}

// move fetches rows. If the iterator turns, C stands elsewhere: behind the rows that it has fetched in the other direction.
func (it *Iterator) move(backwards bool) bool {
	if it.err != nil {
		return false
	}
	if it.backwards != backwards && it.at >= 0 && it.at < len(it.rows) {
		key := slices.Clone(it.Key())
		it.want = fewRows
		return it.fetch(backwards, !backwards, key)
	}
	return it.fetch(backwards, false, nil)
}

// Seek moves to the first row of the range at or after key, and returns whether there is one. With an empty key, that is the first row.
func (it *Iterator) Seek(key []byte) bool { return it.seek(false, key) }

// SeekBack moves to the last row of the range at or before key, and returns whether there is one. With an empty key, that is the last row.
func (it *Iterator) SeekBack(key []byte) bool { return it.seek(true, key) }

func (it *Iterator) seek(back bool, key []byte) bool {
	it.err = nil
	it.want = fewRows
	if key == nil {
		key = []byte{}
	}
	return it.fetch(back, back, key)
}

// fetch reads rows into the buffer and moves to the first of them. With a key that is not nil, it seeks before.
func (it *Iterator) fetch(backwards, seekBack bool, key []byte) bool {
	it.rows, it.at, it.backwards = it.rows[:0], -1, backwards
	if it.ctx != nil {
		if it.err = it.ctx.Err(); it.err != nil {
			return false
		}
	}
	it.busy.Store(true)
	defer it.busy.Store(false)
	h := C.handle(it.h.Load())
	if h == 0 {
		it.err = closed("Iterator", "iterator")
		return false
	}
	it.grow(min(max(fewBytes, it.want*bytesPerRow), mostBytes))
	for {
		b, n := bytesOf(it.buffer[:cap(it.buffer)])
		rows := &it.rows[:cap(it.rows)][0]
		var r C.go_result
		if key != nil {
			k, kn := bytesOf(key)
			r = C.go_iter_seek_rows(h, flag(seekBack), flag(backwards), k, kn, b, n, rows, C.size_t(it.want))
		} else {
			r = C.go_iter_rows(h, flag(backwards), b, n, rows, C.size_t(it.want))
		}
		runtime.KeepAlive(it)
		switch r.code {
		case C.TDB_SUCCESS:
			it.rows, it.at = it.rows[:int(r.a)], 0
			it.want = min(it.want*moreRows, mostRows)
			return true
		case C.TDB_ERR_TOO_LARGE:
			it.buffer = make([]byte, 0, int(r.b))
			key = nil
		case C.TDB_ERR_NOT_FOUND:
			return false
		default:
			it.err = errorOf("Iterator", it.view.db, r)
			if r.code == C.TDB_ERR_INVALID_ARGS && it.h.Load() == 0 {
				it.err = closed("Iterator", "iterator") // meanwhile
			}
			return false
		}
	}
}

// grow makes room for the next rows.
func (it *Iterator) grow(bytes int) {
	if cap(it.buffer) < bytes {
		it.buffer = make([]byte, 0, bytes)
	}
	if cap(it.rows) < it.want {
		it.rows = make([]C.tidesdb_x_row_t, 0, it.want)
	}
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Valid returns whether the iterator is at a row.
func (it *Iterator) Valid() bool { return it.at >= 0 && it.at < len(it.rows) }

// Key returns the current key, nil if the iterator is not at a row. It is valid until the iterator moves, and must not be changed.
func (it *Iterator) Key() []byte {
	if !it.Valid() {
		return nil
	}
	row := &it.rows[it.at]
	end := row.offset + row.key_size
	return it.buffer[row.offset:end:end]
}

// Value returns the current value: see [Iterator.Key]. With KeysOnly it is empty.
func (it *Iterator) Value() []byte {
	if !it.Valid() {
		return nil
	}
	row := &it.rows[it.at]
	start := row.offset + row.key_size
	end := start + row.value_size
	return it.buffer[start:end:end]
}

// Err returns the failure that has ended the iteration; nil if there was none. A seek forgets it.
func (it *Iterator) Err() error { return it.err }

// All returns the rows from where the iterator stands, for a range loop. Keys and values are valid until the next row. After the loop, look at
// [Iterator.Err].
func (it *Iterator) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for it.step() {
			if !yield(it.Key(), it.Value()) {
				return
			}
		}
	}
}

// Keys returns the keys from where the iterator stands, for a range loop: see [Iterator.All].
func (it *Iterator) Keys() iter.Seq[[]byte] {
	return func(yield func(key []byte) bool) {
		for it.step() {
			if !yield(it.Key()) {
				return
			}
		}
	}
}

func (it *Iterator) step() bool {
	if it.reverse {
		return it.Prev()
	}
	return it.Next()
}

// Close frees the iterator. What Key and Value have returned is not valid any more. It always returns nil, as an [io.Closer].
func (it *Iterator) Close() error {
	h := it.h.Swap(0)
	if h == 0 {
		return nil
	}
	C.go_iter_free(C.handle(h))
	it.loan.open.Store(0)
	if it.busy.Load() {
		return nil // another goroutine uses the memory
	}
	it.loan.buffer, it.loan.rows = it.buffer, it.rows[:0]
	if cap(it.buffer) > 2*mostBytes {
		it.loan.buffer = nil // long rows
	}
	it.buffer, it.rows, it.at = nil, nil, -1
	loans.Put(it.loan)
	return nil
}
