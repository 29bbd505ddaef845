package tidesdb

// #include "shim.h"
import "C"

import (
	"runtime"
	"sync/atomic"
)

// Snapshot shows all families as they were at one moment. Its own methods read the family "default". Close it: it keeps old rows on disk.
type Snapshot struct {
	view
	h       atomic.Uintptr
	seq     uint64
	cleanup runtime.Cleanup
}

// SnapshotFamily reads one family in a snapshot.
type SnapshotFamily struct{ view }

// Snapshot creates a snapshot of the database as it is now.
func (db *DB) Snapshot() (*Snapshot, error) { return db.snapshot("Snapshot", 0, 0) }

// SnapshotAt creates a snapshot of the database as the commit with this sequence number left it. [ErrInvalid] if that is not kept any more: see
// HistoryBytes of [Options].
func (db *DB) SnapshotAt(seq uint64) (*Snapshot, error) { return db.snapshot("SnapshotAt", 1, seq) }

func (db *DB) snapshot(op string, at C.int, seq uint64) (*Snapshot, error) {
	r := C.go_snapshot(db.handle(), at, C.uint64_t(seq))
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf(op, db, r)
	}
	s := &Snapshot{seq: uint64(r.b)}
	s.view = view{db: db, cf: db.cf, snap: s}
	s.h.Store(uintptr(r.a))
	s.cleanup = runtime.AddCleanup(s, func(h C.handle) { C.go_snapshot_free(h) }, C.handle(r.a))
	return s, nil
}

// In returns the snapshot's reader of a family.
func (s *Snapshot) In(f *Family) *SnapshotFamily {
	family := &SnapshotFamily{view{db: s.db, snap: s}}
	if f != nil {
		family.cf = f.cf
	}
	return family
}

// Seq returns the sequence number of the last commit that it shows.
func (s *Snapshot) Seq() uint64 { return s.seq }

// Close frees the snapshot. It always returns nil, as an [io.Closer].
func (s *Snapshot) Close() error {
	if h := s.h.Swap(0); h != 0 {
		s.cleanup.Stop()
		C.go_snapshot_free(C.handle(h))
	}
	return nil
}
