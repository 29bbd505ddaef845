package tidesdb

// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// callbacks are the functions that C calls for a database, or for a reader and its views. The last of them that is closed releases the functions.
type callbacks struct {
	mu      sync.Mutex
	users   int
	handles []cgo.Handle
}

// join adds a user, unless the last one has left.
func (c *callbacks) join() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == 0 {
		return false
	}
	c.users++
	return true
}

func (c *callbacks) leave() {
	if c == nil {
		return // a DB that was not opened
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 {
		for _, handle := range c.handles {
			handle.Delete()
		}
	}
}

// MergeOperator combines the value of a key with operands that [DB.Merge] writes without reading the value.
//
// Any goroutine or thread may call its functions, several at a time, until [DB.Close] has returned. They must not use the database, and their
// results must depend on nothing but their arguments. An error or a panic fails the reads of that key with [ErrMerge]; the value and its operands
// stay as they are.
type MergeOperator struct {
	// Name is stored with the families that use the operator: 1 to 255 bytes of UTF-8 that do not begin with "tidesdb.".
	Name string
	// Merge combines a value with an operand, or an operand with the next newer one. It must be associative. It must not change its arguments.
	Merge func(value, operand []byte) ([]byte, error)
	// Check may refuse an operand, which the write then returns as [ErrInvalid]. It may be nil.
	Check func(operand []byte) error
}

//export tidesdbGoMerge
func tidesdbGoMerge(value *C.uint8_t, valueSize C.size_t, operand *C.uint8_t, operandSize C.size_t, handle C.uintptr_t) (code C.int) {
	defer func() {
		if recover() != nil {
			code = 1
		}
	}()
	operator := cgo.Handle(handle).Value().(MergeOperator)
	// Copies, because a program may keep its arguments longer than the memory of the library lasts.
	both := make([]byte, 0, int(valueSize)+int(operandSize))
	both = append(both, unsafe.Slice((*byte)(value), valueSize)...)
	both = append(both, unsafe.Slice((*byte)(operand), operandSize)...)
	result, err := operator.Merge(both[:valueSize:valueSize], both[valueSize:])
	if err != nil {
		return 1
	}
	bytes, n := bytesOf(result)
	return C.tidesdb_x_result_append(bytes, n)
}

//export tidesdbGoCheck
func tidesdbGoCheck(operand *C.uint8_t, operandSize C.size_t, handle C.uintptr_t) (code C.int) {
	defer func() {
		if recover() != nil {
			code = 1
		}
	}()
	operator := cgo.Handle(handle).Value().(MergeOperator)
	if operator.Check == nil {
		return 0
	}
	if operator.Check(append([]byte(nil), unsafe.Slice((*byte)(operand), operandSize)...)) != nil {
		return 1
	}
	return 0
}

//export tidesdbGoCommitted
func tidesdbGoCommitted(code C.int, seq C.uint64_t, message *C.char, handle C.uintptr_t) {
	h := cgo.Handle(handle)
	pending := h.Value().(*Pending)
	h.Delete()
	pending.seq = uint64(seq)
	if code != C.TDB_SUCCESS {
		pending.err = &Error{Op: "CommitAsync", Code: int(code), Text: C.GoString(message), kind: kindOf(code)}
	}
	close(pending.done)
}

//export tidesdbGoProgress
func tidesdbGoProgress(done, total C.uint64_t, handle C.uintptr_t) {
	watcher := cgo.Handle(handle).Value().(*watcher)
	defer func() {
		if p := recover(); p != nil && watcher.panicked == nil {
			watcher.panicked = p
		}
	}()
	if watcher.call != nil && watcher.panicked == nil {
		watcher.call(uint64(done), uint64(total))
	}
}

//export tidesdbGoStop
func tidesdbGoStop(handle C.uintptr_t) C.int {
	watcher := cgo.Handle(handle).Value().(*watcher)
	if watcher.panicked != nil || watcher.ctx.Err() != nil {
		watcher.stopped = true
		return 1
	}
	return 0
}

// watcher is what a call of backups asks and tells while it runs.
type watcher struct {
	ctx  context.Context
	call func(done, total uint64) // receives the progress; may be nil
	// panicked is the value that it panicked with.
	panicked any
	stopped  bool
}

// watched runs a call that ends soon once the context has ended or the progress has panicked.
func watched(ctx context.Context, progress func(done, total uint64), work func(C.uintptr_t) error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &watcher{ctx: ctx, call: progress}
	handle := cgo.NewHandle(w)
	defer handle.Delete()
	err := work(C.uintptr_t(handle))
	if w.panicked != nil {
		panic(w.panicked)
	}
	if err != nil && w.stopped {
		return ctx.Err()
	}
	return err
}
