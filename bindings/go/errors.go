package tidesdb

// #include "shim.h"
import "C"

import (
	"errors"
	"unsafe"
)

// The kinds of errors, for [errors.Is].
var (
	// ErrNotFound: there is no such key, family, comparator, savepoint or database.
	ErrNotFound = errors.New("tidesdb: not found")
	// ErrConflict: another transaction committed first. Run the transaction again, as [DB.Transact] does.
	ErrConflict = errors.New("tidesdb: conflict with another commit")
	// ErrClosed: the database, transaction, iterator or other handle has been closed.
	ErrClosed = errors.New("tidesdb: closed")
	// ErrInvalid: an argument has no meaning here.
	ErrInvalid = errors.New("tidesdb: invalid argument")
	// ErrExists: the name is in use, or a folder is not empty.
	ErrExists = errors.New("tidesdb: exists")
	// ErrIO: the system failed to read or write.
	ErrIO = errors.New("tidesdb: input or output failed")
	// ErrCorrupt: a file is damaged. The text names the file and the offset.
	ErrCorrupt = errors.New("tidesdb: damaged data")
	// ErrLocked: another process, or another DB of this one, has the database open.
	ErrLocked = errors.New("tidesdb: locked")
	// ErrReadOnly: the database was opened for reading only.
	ErrReadOnly = errors.New("tidesdb: read-only")
	// ErrBusy: writes are stalled, or another goroutine uses the handle. Try again.
	ErrBusy = errors.New("tidesdb: busy")
	// ErrMemoryLimit: the memory limit of the database leaves no room for the call.
	ErrMemoryLimit = errors.New("tidesdb: memory limit")
	// ErrMerge: the merge operator of the key failed or was not given to [Open].
	ErrMerge = errors.New("tidesdb: merge operator")
	// ErrUnusable: the database cannot be used: it needs a comparator, or a newer version of the library.
	ErrUnusable = errors.New("tidesdb: unusable database")
	// ErrUnknown: any other failure.
	ErrUnknown = errors.New("tidesdb: failed")
)

// Error is a failure of the C library.
type Error struct {
	// Op is the name of the method.
	Op string
	// Code is the code of the C library.
	Code int
	// Text is its message.
	Text string
	kind error
}

// Error returns the text with the name of the method.
func (e *Error) Error() string {
	if e.Text == "" {
		return e.Op + ": " + e.kind.Error()
	}
	return "tidesdb: " + e.Op + ": " + e.Text
}

// Unwrap returns the kind: one of the variables of this package.
func (e *Error) Unwrap() error { return e.kind }

func kindOf(code C.int) error {
	switch code {
	case C.TDB_ERR_NOT_FOUND:
		return ErrNotFound
	case C.TDB_ERR_CONFLICT:
		return ErrConflict
	case C.TDB_ERR_INVALID_ARGS, C.TDB_ERR_PRECONDITION, C.TDB_ERR_TOO_LARGE:
		return ErrInvalid
	case C.TDB_ERR_EXISTS:
		return ErrExists
	case C.TDB_ERR_IO:
		return ErrIO
	case C.TDB_ERR_CORRUPTION:
		return ErrCorrupt
	case C.TDB_ERR_LOCKED:
		return ErrLocked
	case C.TDB_ERR_READONLY:
		return ErrReadOnly
	case C.TDB_ERR_BUSY:
		return ErrBusy
	case C.TDB_ERR_MEMORY_LIMIT, C.TDB_ERR_MEMORY:
		return ErrMemoryLimit
	case C.TDB_X_ERR_MERGE:
		return ErrMerge
	case C.TDB_ERR_INVALID_DB:
		return ErrUnusable
	}
	return ErrUnknown
}

// errorOf returns the error of a failed call, and frees its text. If the database is closed, that is the reason why a handle was refused.
func errorOf(op string, db *DB, r C.go_result) error {
	text := ""
	if r.text != nil {
		text = C.GoString(r.text)
		C.free(unsafe.Pointer(r.text))
	}
	if r.code == C.TDB_SUCCESS {
		return nil
	}
	if db != nil && db.closing.Load() {
		switch r.code {
		case C.TDB_ERR_INVALID_ARGS, C.TDB_ERR_INVALID_DB, C.TDB_ERR_BUSY:
			return &Error{Op: op, Code: int(r.code), Text: "the database is closed", kind: ErrClosed}
		}
	}
	if r.code == C.TDB_ERR_NOT_FOUND && text == "" {
		return ErrNotFound
	}
	return &Error{Op: op, Code: int(r.code), Text: text, kind: kindOf(r.code)}
}

// errorOf returns the error of a failed call on the family. If that is the family "default" of a database that has none, this is the reason.
func (v *view) errorOf(op string, r C.go_result) error {
	err := errorOf(op, v.db, r)
	if r.code == C.TDB_ERR_INVALID_ARGS && v.cf == noFamily && !errors.Is(err, ErrClosed) {
		if why := v.db.noDefault; !errors.Is(why, ErrNotFound) {
			return why
		}
		return &Error{Op: op, Code: C.TDB_ERR_NOT_FOUND, Text: "the database has no family \"" + DefaultFamily + "\"", kind: ErrNotFound}
	}
	return err
}

// written is errorOf for a write. Only a database that is only read may lack its family.
func (v *view) written(op string, r C.go_result) error {
	err := v.errorOf(op, r)
	if v.cf == noFamily && r.code == C.TDB_ERR_INVALID_ARGS && !errors.Is(err, ErrClosed) {
		return readOnly(op)
	}
	return err
}

func readOnly(op string) error {
	return &Error{Op: op, Code: C.TDB_ERR_READONLY, Text: "the database was opened for reading only", kind: ErrReadOnly}
}

func closed(op, what string) error {
	return &Error{Op: op, Code: C.TDB_ERR_INVALID_ARGS, Text: "the " + what + " is closed", kind: ErrClosed}
}

func invalid(op, why string) error {
	return &Error{Op: op, Code: C.TDB_ERR_INVALID_ARGS, Text: why, kind: ErrInvalid}
}
