package tidesdb

// #cgo pkg-config: tidesdb
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"runtime"
	"runtime/cgo"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// DefaultFamily is the name of the family that the methods of [DB] use.
const DefaultFamily = "default"

// LogLevel says which lines of the log are written to standard error.
type LogLevel int

// The levels. The zero value writes no log.
const (
	LogNone LogLevel = iota
	LogDebug
	LogInfo
	LogWarn
	LogError
)

func (l LogLevel) number() C.int {
	if l == LogNone {
		return C.TDB_LOG_NONE
	}
	return C.int(l) - 1
}

// Options are the settings of [Open]. The zero value has the defaults.
type Options struct {
	// MemoryLimit is how many bytes the database may take, with its cache. 0: half of the memory of the control group or machine.
	MemoryLimit uint64
	// CacheBytes is the size of the block cache, within MemoryLimit; the default is 64 MiB. NoCache turns it off.
	CacheBytes uint64
	NoCache    bool
	// FlushThreads and CompactionThreads are how many threads work in the background; 0 for the default, 2 each.
	FlushThreads, CompactionThreads int
	// LogLevel says what is written to standard error.
	LogLevel LogLevel
	// HistoryBytes is how far back [DB.SnapshotAt] can read, in bytes of log written since.
	HistoryBytes uint64
	// ReadOnly refuses writes with [ErrReadOnly], and changes nothing on disk.
	ReadOnly bool
	// MustExist makes the open fail with [ErrNotFound] if there is no database.
	MustExist bool
	// MustBeNew makes the open fail with [ErrExists] if there is a database.
	MustBeNew bool
	// Default has the settings of the family "default", if it does not exist.
	Default *FamilyOptions
	// MergeOperators are the operators of the program, by which families name them.
	MergeOperators []MergeOperator
}

// DB is an open database. Its methods that read and write rows use the family "default". [Open] creates it; if a database that is only read has
// none, they return [ErrNotFound] and [ErrReadOnly].
type DB struct {
	rows
	h         atomic.Uintptr
	closing   atomic.Bool
	callbacks *callbacks
	cleanup   runtime.Cleanup
	readOnly  bool
	// Why the family "default" cannot be used, if that is so.
	noDefault error
}

// Open opens the database in the folder path, or creates it; the folder above it must exist. opts may be nil.
func Open(path string, opts *Options) (*DB, error) {
	if opts == nil {
		opts = &Options{}
	}
	db, err := opening("Open", path, opts, func(path *C.char, how C.go_open, names *C.char, merges *C.uintptr_t, n C.size_t) C.go_result {
		return C.go_open_db(path, how, names, merges, n)
	})
	if err != nil {
		return nil, err
	}
	if err := db.useDefault(opts.Default); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// Destroy removes the database in the folder path: its own files, and the folder, if nothing else is in it. [ErrLocked] if it is open,
// [ErrNotFound] if there is none.
func Destroy(path string) error {
	name, err := cstring("Destroy", path)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(name))
	return errorOf("Destroy", nil, C.go_destroy(name))
}

type openFunc func(path *C.char, how C.go_open, names *C.char, merges *C.uintptr_t, n C.size_t) C.go_result

// opening calls open with opts, and returns a database that has no default family yet.
func opening(op, path string, opts *Options, open openFunc) (*DB, error) {
	name, err := cstring(op, path)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(name))
	var names strings.Builder
	handles := make([]cgo.Handle, 0, len(opts.MergeOperators))
	numbers := make([]C.uintptr_t, 0, len(opts.MergeOperators)+1)
	for _, operator := range opts.MergeOperators {
		if strings.IndexByte(operator.Name, 0) >= 0 || operator.Merge == nil {
			(&callbacks{users: 1, handles: handles}).leave()
			return nil, invalid(op, "a merge operator has a name without zero bytes, and a function")
		}
		names.WriteString(operator.Name)
		names.WriteByte(0)
		handle := cgo.NewHandle(operator)
		handles = append(handles, handle)
		numbers = append(numbers, C.uintptr_t(handle))
	}
	list := C.CString(names.String())
	defer C.free(unsafe.Pointer(list))
	how := C.go_open{
		memory_limit:       C.size_t(opts.MemoryLimit),
		cache_bytes:        C.size_t(opts.CacheBytes),
		flush_threads:      C.int(opts.FlushThreads),
		compaction_threads: C.int(opts.CompactionThreads),
		log_level:          opts.LogLevel.number(),
		history_bytes:      C.uint64_t(opts.HistoryBytes),
	}
	if opts.CacheBytes > 0 || opts.NoCache {
		how.cache_is_set = 1
	}
	if opts.NoCache {
		how.cache_bytes = 0
	}
	if opts.ReadOnly {
		how.flags |= C.TDB_X_READ_ONLY
	}
	if opts.MustExist {
		how.flags |= C.TDB_X_MUST_EXIST
	}
	if opts.MustBeNew {
		how.flags |= C.TDB_X_MUST_BE_NEW
	}
	r := open(name, how, list, unsafe.SliceData(numbers), C.size_t(len(handles)))
	if r.code != C.TDB_SUCCESS {
		(&callbacks{users: 1, handles: handles}).leave()
		return nil, errorOf(op, nil, r)
	}
	return newDB(uintptr(r.a), &callbacks{users: 1, handles: handles}, opts.ReadOnly), nil
}

func newDB(h uintptr, used *callbacks, readOnly bool) *DB {
	db := &DB{callbacks: used, readOnly: readOnly}
	db.rows.db = db
	db.h.Store(h)
	db.cleanup = runtime.AddCleanup(db, func(used *callbacks) {
		// A close may take seconds, and other cleanups wait for this one.
		go func() {
			_ = errorOf("Close", nil, C.go_close(C.handle(h)))
			used.leave()
		}()
	}, used)
	return db
}

// noFamily stands for the family "default" in a database that is only read and has none. C refuses it, as it is no handle.
const noFamily = ^uintptr(0)

// useDefault finds or creates the default family. A database that is only read may have none, or a damaged one: then calls on it say so, and the
// other families can be read.
func (db *DB) useDefault(opts *FamilyOptions) error {
	family, err := db.Family(DefaultFamily)
	if err != nil && db.readOnly {
		db.cf, db.noDefault = noFamily, err
		return nil
	}
	if errors.Is(err, ErrNotFound) {
		family, err = db.CreateFamily(DefaultFamily, opts)
	}
	if err == nil {
		db.cf = family.cf
	}
	return err
}

// Close flushes what is in memory and closes the database. It waits for the calls of other goroutines, which may return [ErrClosed]. A second
// Close returns nil at once. Within a merge operator it is [ErrBusy].
func (db *DB) Close() error {
	if !db.closing.CompareAndSwap(false, true) {
		return nil
	}
	h := db.h.Load()
	r := C.go_close(C.handle(h))
	if r.code == C.TDB_ERR_BUSY {
		db.closing.Store(false)
		return errorOf("Close", db, r)
	}
	db.cleanup.Stop()
	db.callbacks.leave()
	return errorOf("Close", nil, r)
}

func (db *DB) handle() C.handle { return C.handle(db.h.Load()) }

// Sync makes all earlier commits durable, whatever their sync mode.
func (db *DB) Sync(ctx context.Context) error {
	return during(ctx, func() error {
		r := C.go_sync(C.handle(db.cf))
		runtime.KeepAlive(db)
		return db.written("Sync", r)
	})
}

// Checkpoint makes a copy of the database in the folder path, by hard links where the file system has them. The folder must be missing or
// empty. The copy can be opened.
func (db *DB) Checkpoint(ctx context.Context, path string) error {
	return db.copyTo(ctx, "Checkpoint", path, 0)
}

// Copy copies the database into the folder path, which must be missing or empty. Unlike a checkpoint it shares no file.
func (db *DB) Copy(ctx context.Context, path string) error {
	return db.copyTo(ctx, "Copy", path, 1)
}

func (db *DB) copyTo(ctx context.Context, op, path string, full C.int) error {
	return during(ctx, func() error {
		name, err := cstring(op, path)
		if err != nil {
			return err
		}
		defer C.free(unsafe.Pointer(name))
		r := C.go_checkpoint(db.handle(), name, full)
		runtime.KeepAlive(db)
		return errorOf(op, db, r)
	})
}

// SetCompactionRate limits what merges of tables write, in bytes per second; 0: no limit.
func (db *DB) SetCompactionRate(bytesPerSecond uint64) error {
	r := C.go_compaction_rate(db.handle(), C.uint64_t(bytesPerSecond))
	runtime.KeepAlive(db)
	return errorOf("SetCompactionRate", db, r)
}

// CancelCompactions stops all merges, running and future ones, until the database is opened again.
func (db *DB) CancelCompactions() error {
	r := C.go_cancel(db.handle())
	runtime.KeepAlive(db)
	return errorOf("CancelCompactions", db, r)
}

// during runs work, and returns when it has ended or ctx has, whichever comes first. Work that has begun goes on.
func during(ctx context.Context, work func() error) error {
	if ctx == nil || ctx.Done() == nil {
		return work()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cstring returns text for C, which the caller frees.
func cstring(op, text string) (*C.char, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, invalid(op, "a name or path has a zero byte")
	}
	return C.CString(text), nil
}

// taken returns a text that the library allocated, and frees it.
func taken(address C.uint64_t) string {
	if address == 0 {
		return ""
	}
	text := pointer[C.char](address)
	defer C.tidesdb_free(unsafe.Pointer(text))
	return C.GoString(text)
}

// pointer returns the pointer that C has passed as a number.
func pointer[T any](address C.uint64_t) *T {
	number := uintptr(address)
	return *(**T)(unsafe.Pointer(&number))
}

func millis(d time.Duration) C.uint64_t {
	if d <= 0 {
		return 0
	}
	return C.uint64_t((d + time.Millisecond - 1) / time.Millisecond)
}

func moment(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(min(ms, 1<<62)))
}

// bytesOf returns the address and the length of a slice, for a call that keeps neither.
func bytesOf(b []byte) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.SliceData(b)), C.size_t(len(b))
}
