package tidesdb

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync/atomic"
)

// Reader shows a database that another process has open for writing. It takes no lock, changes nothing on disk, and costs the writer nothing.
type Reader struct {
	h         atomic.Uintptr
	cleanup   runtime.Cleanup
	callbacks *callbacks
}

// OpenReader opens a reader of the database in the folder path. Of opts, which may be nil, it uses the memory limit, the cache, the log level and the
// merge operators. The caller closes it.
func OpenReader(path string, opts *Options) (*Reader, error) {
	if opts == nil {
		opts = &Options{}
	}
	db, err := opening("OpenReader", path, opts, func(path *C.char, how C.go_open, names *C.char, merges *C.uintptr_t, n C.size_t) C.go_result {
		return C.go_open_reader(path, how, names, merges, n)
	})
	if err != nil {
		return nil, err
	}
	return db.asReader(), nil
}

// asReader returns the reader whose handle was opened like that of a database.
func (db *DB) asReader() *Reader {
	db.cleanup.Stop()
	r := &Reader{callbacks: db.callbacks}
	h := db.h.Load()
	r.h.Store(h)
	r.cleanup = runtime.AddCleanup(r, func(used *callbacks) {
		_ = errorOf("Close", nil, C.go_close_reader(C.handle(h)))
		used.leave()
	}, r.callbacks)
	return r
}

// Refresh returns a view of the database as it is now: a DB that never shows later commits and refuses writes with [ErrReadOnly]. The caller
// closes it, before or after the reader.
func (r *Reader) Refresh() (*DB, error) {
	h := r.h.Load()
	if h == 0 {
		return nil, closed("Refresh", "reader")
	}
	if !r.callbacks.join() {
		return nil, closed("Refresh", "reader")
	}
	got := C.go_refresh(C.handle(h))
	runtime.KeepAlive(r)
	if got.code != C.TDB_SUCCESS {
		r.callbacks.leave()
		err := errorOf("Refresh", nil, got)
		if r.h.Load() == 0 {
			return nil, closed("Refresh", "reader")
		}
		return nil, err
	}
	db := newDB(uintptr(got.a), r.callbacks, true)
	if err := db.useDefault(nil); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// Close closes the reader, after calls of other goroutines. Its views stay. Within a merge operator it is [ErrBusy], and the reader stays open.
func (r *Reader) Close() error {
	h := r.h.Swap(0)
	if h == 0 {
		return nil
	}
	got := C.go_close_reader(C.handle(h))
	if got.code == C.TDB_ERR_BUSY {
		r.h.Store(h)
		return errorOf("Close", nil, got)
	}
	r.cleanup.Stop()
	r.callbacks.leave()
	runtime.KeepAlive(r) // until its cleanup is stopped
	return errorOf("Close", nil, got)
}
