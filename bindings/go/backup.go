package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Backups is a directory with generations of one or several databases. Each is a whole backup; what they have in common is stored once.
//
// One handle at a time may change the directory, of all processes: the next one that does takes over, and changes by the one before are
// [ErrLocked] until it is opened again.
type Backups struct {
	h       atomic.Uintptr
	cleanup runtime.Cleanup
}

// Generation is a backup.
type Generation struct {
	Number  uint64
	Created time.Time
	// Seq is the sequence number of its last commit.
	Seq   uint64
	Files uint64
	Bytes uint64
	// BytesCopied were copied by its creation; the rest was there.
	BytesCopied uint64
	// Proven is true if its rows were those of the database when it was last restored and compared, at ProvenAt.
	Proven   bool
	ProvenAt time.Time
	// Database is the identity of the database.
	Database string
}

// BackupOptions say how to make a generation.
type BackupOptions struct {
	// Scratch is a new or empty folder in which the generation is restored and compared; "": it is not.
	Scratch string
	// BytesPerSecond limits the copy; 0: no limit.
	BytesPerSecond uint64
	// Progress is called with the bytes that are done, and all. It must not close the database. A panic of it ends the copy, and is raised by Create.
	Progress func(done, total uint64)
}

// OpenBackups opens the backups in a directory, which is created if it is missing. The caller closes them.
func OpenBackups(directory string) (*Backups, error) {
	name, err := cstring("OpenBackups", directory)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(name))
	r := C.go_backups_open(name)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf("OpenBackups", nil, r)
	}
	b := &Backups{}
	b.h.Store(uintptr(r.a))
	b.cleanup = runtime.AddCleanup(b, func(h C.handle) { C.go_backups_free(h) }, C.handle(r.a))
	return b, nil
}

func (b *Backups) failed(op string, r C.go_result) error {
	runtime.KeepAlive(b)
	err := errorOf(op, nil, r)
	if r.code == C.TDB_ERR_INVALID_ARGS && b.h.Load() == 0 {
		return closed(op, "directory of backups")
	}
	return err
}

// Create makes a generation of a database, beside its readers and writers, and returns its number. If the context ends during the copy, the generations
// are those that there were. If it ends during the proof, or the proof fails, this is an error, and the new generation stays, with Proven false: [Backups.List]
// has its number. opts may be nil.
func (b *Backups) Create(ctx context.Context, db *DB, opts *BackupOptions) (uint64, error) {
	const op = "Create"
	if db == nil {
		return 0, invalid(op, "there is no database")
	}
	if opts == nil {
		opts = &BackupOptions{}
	}
	scratch, err := cstring(op, opts.Scratch)
	if err != nil {
		return 0, err
	}
	defer C.free(unsafe.Pointer(scratch))
	folder := scratch
	if *folder == 0 {
		folder = nil
	}
	var number uint64
	err = watched(ctx, opts.Progress, func(watcher C.uintptr_t) error {
		r := C.go_backups_create(C.handle(b.h.Load()), db.handle(), folder, C.uint64_t(opts.BytesPerSecond), watcher)
		runtime.KeepAlive(db)
		number = uint64(r.a)
		if db.closing.Load() {
			return errorOf(op, db, r)
		}
		return b.failed(op, r)
	})
	return number, err
}

// List returns all generations, oldest first.
func (b *Backups) List() ([]Generation, error) {
	r := C.go_backups_list(C.handle(b.h.Load()))
	if r.code != C.TDB_SUCCESS {
		return nil, b.failed("List", r)
	}
	if r.a == 0 {
		return nil, nil
	}
	list := pointer[C.tidesdb_x_generation_t](r.a)
	defer C.tidesdb_free(unsafe.Pointer(list))
	generations := make([]Generation, 0, int(r.b))
	for _, each := range unsafe.Slice(list, int(r.b)) {
		generations = append(generations, Generation{
			Number:      uint64(each.number),
			Created:     moment(uint64(each.created_ms)),
			Seq:         uint64(each.seq),
			Files:       uint64(each.files),
			Bytes:       uint64(each.bytes),
			BytesCopied: uint64(each.bytes_copied),
			Proven:      each.is_proven != 0,
			ProvenAt:    moment(uint64(each.proven_ms)),
			Database:    C.GoString(each.database),
		})
	}
	return generations, nil
}

// Verify reads every byte of a generation, and returns what is wrong.
func (b *Backups) Verify(ctx context.Context, number uint64) (faults []string, err error) {
	err = watched(ctx, nil, func(watcher C.uintptr_t) error {
		r := C.go_backups_verify(C.handle(b.h.Load()), C.uint64_t(number), watcher)
		if r.code != C.TDB_SUCCESS {
			return b.failed("Verify", r)
		}
		faults = lines(taken(r.a))
		return nil
	})
	return faults, err
}

// Restore restores a generation to the folder path, which must be missing or empty. If it fails, or the context ends, it leaves no file there.
func (b *Backups) Restore(ctx context.Context, number uint64, path string) error {
	name, err := cstring("Restore", path)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(name))
	return watched(ctx, nil, func(watcher C.uintptr_t) error {
		return b.failed("Restore", C.go_backups_restore(C.handle(b.h.Load()), C.uint64_t(number), name, watcher))
	})
}

// Delete removes a generation, and what no other one needs.
func (b *Backups) Delete(number uint64) error {
	return b.failed("Delete", C.go_backups_delete(C.handle(b.h.Load()), C.uint64_t(number)))
}

// Prune removes the generations of each database but the last keepLast, those younger than keepYounger, and the newest that is proven, and returns
// how many. A policy that keeps nothing is [ErrInvalid].
func (b *Backups) Prune(keepLast uint64, keepYounger time.Duration) (int, error) {
	r := C.go_backups_prune(C.handle(b.h.Load()), C.uint64_t(keepLast), millis(keepYounger))
	return int(r.a), b.failed("Prune", r)
}

// Repair makes the list of generations anew from what the directory holds, if it was lost or damaged, and returns how many it has found.
func (b *Backups) Repair(ctx context.Context) (int, error) {
	return resultOf(ctx, func() (int, error) {
		r := C.go_backups_repair(C.handle(b.h.Load()))
		return int(r.a), b.failed("Repair", r)
	})
}

// Close frees the handle. The generations stay. It always returns nil, as an [io.Closer].
func (b *Backups) Close() error {
	if h := b.h.Swap(0); h != 0 {
		b.cleanup.Stop()
		C.go_backups_free(C.handle(h))
	}
	return nil
}
