package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"slices"
	"time"
	"unsafe"
)

// Compression of tables.
type Compression int

// The algorithms. The zero value is LZ4.
const (
	LZ4 Compression = iota
	NoCompression
	Zstd
	Snappy
)

func (c Compression) number() C.int {
	switch c {
	case LZ4:
		return C.TDB_COMPRESS_LZ4
	case NoCompression:
		return C.TDB_COMPRESS_NONE
	case Zstd:
		return C.TDB_COMPRESS_ZSTD
	case Snappy:
		return C.TDB_COMPRESS_SNAPPY
	}
	return C.int(c)
}

// Sync says when a commit is durable. Other commits, and a kill of the process, never lose it.
type Sync int

// The modes.
const (
	// SyncDefault is the mode of the family, for a family [SyncFull].
	SyncDefault Sync = iota
	// SyncNone makes it durable when the system writes it.
	SyncNone
	// SyncFull makes it durable before the call returns.
	SyncFull
	// SyncInterval makes it durable within an interval.
	SyncInterval
)

// FamilyOptions are the settings of a new family. The zero value has the defaults.
type FamilyOptions struct {
	// Sync is when commits to the family are durable; the default is before they return. Interval is that of SyncInterval.
	Sync     Sync
	Interval time.Duration
	// Compression of tables; the default is LZ4.
	Compression Compression
	// WriteBufferBytes is the size at which rows in memory are flushed to a table; 0 for the default.
	WriteBufferBytes uint64
	// ValueThreshold is the size from which values lie in value logs; 0 for the default.
	ValueThreshold uint64
	// BloomFalsePositives is the share of look-ups of absent keys that filters let pass; 0 for the default. NoBloom makes no filters.
	BloomFalsePositives float64
	NoBloom             bool
	// Comparator names the order of the keys: "memcmp", the default, "reverse", "uint64", "int64", "lexicographic", "case_insensitive".
	Comparator string
	// MergeOperator names an operator of [Options], or a built-in one: "tidesdb.add", "tidesdb.max", "tidesdb.min" of 64-bit integers, or
	// "tidesdb.append:" with a separator.
	MergeOperator string
	// DefaultTTL is after which time rows expire that are put without an expiry; 0: never.
	DefaultTTL time.Duration
}

// Family is a set of rows with its own settings. It belongs to its database, and needs no close.
type Family struct {
	rows
	name string
}

// Name returns the name by which the family was opened.
func (f *Family) Name() string { return f.name }

// Family returns the family of this name. [ErrNotFound] if there is none.
func (db *DB) Family(name string) (*Family, error) {
	text, err := cstring("Family", name)
	if err != nil {
		return nil, err
	}
	defer C.free(unsafe.Pointer(text))
	r := C.go_family_of(db.handle(), text)
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf("Family", db, r)
	}
	return &Family{rows: rows{view: view{db: db, cf: uintptr(r.a)}}, name: name}, nil
}

// CreateFamily creates a family. [ErrExists] if the name is in use. opts may be nil.
func (db *DB) CreateFamily(name string, opts *FamilyOptions) (*Family, error) {
	const op = "CreateFamily"
	if opts == nil {
		opts = &FamilyOptions{}
	}
	var texts [3]*C.char
	for i, text := range []string{name, opts.Comparator, opts.MergeOperator} {
		if i > 0 && text == "" {
			continue
		}
		made, err := cstring(op, text)
		if err != nil {
			return nil, err
		}
		defer C.free(unsafe.Pointer(made))
		texts[i] = made
	}
	how := C.go_family{
		write_buffer_bytes: C.size_t(opts.WriteBufferBytes),
		value_threshold:    C.size_t(opts.ValueThreshold),
		compression:        opts.Compression.number(),
		bloom_fpr:          C.double(opts.BloomFalsePositives),
		default_ttl_ms:     millis(opts.DefaultTTL),
		sync_mode:          C.TDB_SYNC_FULL,
	}
	switch opts.Sync {
	case SyncDefault, SyncFull:
	case SyncNone:
		how.sync_mode = C.TDB_SYNC_NONE
	case SyncInterval:
		how.sync_mode = C.TDB_SYNC_INTERVAL
		how.sync_interval_us = C.uint64_t(max(opts.Interval, 0) / time.Microsecond)
	default:
		return nil, invalid(op, "there is no such sync mode")
	}
	if opts.NoBloom {
		how.bloom_is_off = 1
	}
	r := C.go_create_family(db.handle(), texts[0], how, texts[1], texts[2])
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf(op, db, r)
	}
	return &Family{rows: rows{view: view{db: db, cf: uintptr(r.a)}}, name: name}, nil
}

// DropFamily deletes a family and its rows. Its handles are refused from then on.
func (db *DB) DropFamily(name string) error {
	text, err := cstring("DropFamily", name)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(text))
	r := C.go_drop_family(db.handle(), text)
	runtime.KeepAlive(db)
	return errorOf("DropFamily", db, r)
}

// RenameFamily gives a family another name. Its handles stay valid.
func (db *DB) RenameFamily(from, to string) error {
	return db.withNames("RenameFamily", from, to, func(from, to *C.char) C.go_result {
		return C.go_rename_family(db.handle(), from, to)
	})
}

// CloneFamily copies a family under a new name.
func (db *DB) CloneFamily(ctx context.Context, from, to string) error {
	return during(ctx, func() error {
		return db.withNames("CloneFamily", from, to, func(from, to *C.char) C.go_result {
			return C.go_clone_family(db.handle(), from, to)
		})
	})
}

func (db *DB) withNames(op, from, to string, call func(from, to *C.char) C.go_result) error {
	first, err := cstring(op, from)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(first))
	second, err := cstring(op, to)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(second))
	r := call(first, second)
	runtime.KeepAlive(db)
	return errorOf(op, db, r)
}

// Families returns the names of all families.
func (db *DB) Families() ([]string, error) {
	r := C.go_families(db.handle())
	runtime.KeepAlive(db)
	if r.code != C.TDB_SUCCESS {
		return nil, errorOf("Families", db, r)
	}
	names := make([]string, 0, int(r.b))
	if r.a != 0 {
		list := pointer[*C.char](r.a)
		for _, name := range unsafe.Slice(list, int(r.b)) {
			names = append(names, C.GoString(name))
			C.tidesdb_free(unsafe.Pointer(name))
		}
		C.tidesdb_free(unsafe.Pointer(list))
	}
	return names, nil
}

// Setting returns a setting of the family by its name, as docs/reference/options.md lists them.
func (r *rows) Setting(name string) (uint64, error) {
	text, err := cstring("Setting", name)
	if err != nil {
		return 0, err
	}
	defer C.free(unsafe.Pointer(text))
	got := C.go_setting(C.handle(r.cf), text)
	runtime.KeepAlive(r)
	return uint64(got.a), r.errorOf("Setting", got)
}

// SetSetting changes a setting of the family: table_bytes, vlog_file_bytes, value_garbage_percent, default_ttl (milliseconds), tiered_runs_max.
// With persist it is stored, else it is in force until the close.
func (r *rows) SetSetting(name string, value uint64, persist bool) error {
	text, err := cstring("SetSetting", name)
	if err != nil {
		return err
	}
	defer C.free(unsafe.Pointer(text))
	var stored C.int
	if persist {
		stored = 1
	}
	got := C.go_set_setting(C.handle(r.cf), text, C.uint64_t(value), stored)
	runtime.KeepAlive(r)
	return r.written("SetSetting", got)
}

// Flush writes the rows in memory to tables, and waits until that is done.
func (r *rows) Flush(ctx context.Context) error {
	return during(ctx, func() error {
		got := C.go_flush(C.handle(r.cf))
		runtime.KeepAlive(r)
		return r.written("Flush", got)
	})
}

// Compact merges all tables of the family, and waits until that is done.
func (r *rows) Compact(ctx context.Context) error {
	return during(ctx, func() error {
		got := C.go_compact(C.handle(r.cf))
		runtime.KeepAlive(r)
		return r.written("Compact", got)
	})
}

// CompactRange merges the tables that hold keys from start up to, and without, end. An empty end is no limit.
func (r *rows) CompactRange(ctx context.Context, start, end []byte) error {
	start, end = slices.Clone(start), slices.Clone(end) // the call may go on when the caller has them back
	return during(ctx, func() error {
		s, sn := bytesOf(start)
		e, en := bytesOf(end)
		got := C.go_compact_range(C.handle(r.cf), s, sn, e, en)
		runtime.KeepAlive(r)
		return r.written("CompactRange", got)
	})
}
