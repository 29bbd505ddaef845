// Example in Go, with cgo: put, get, iterate, a transaction with a conflict, expiry, a backup.
//
//	PKG_CONFIG_PATH=/opt/tidesdb/lib/pkgconfig go build -o kv kv.go && LD_LIBRARY_PATH=/opt/tidesdb/lib ./kv shop
package main

// #cgo pkg-config: tidesdb
// #include <stdlib.h>
// #include <tidesdb/tidesdb.h>
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"
)

const forever = 0

// Failure is an error code of the library with its message.
type Failure struct {
	Code C.int
	Text string
}

func (f Failure) Error() string { return fmt.Sprintf("%d: %s", f.Code, f.Text) }

// The message belongs to the thread of the last call, so callers lock their thread.
func failure(code C.int) error {
	if code == C.TDB_SUCCESS {
		return nil
	}
	return Failure{code, C.GoString(C.tidesdb_last_error())}
}

func check(code C.int) {
	if err := failure(code); err != nil {
		panic(err)
	}
}

// bytes returns the address and the length of a slice for C; the library copies the data during the call.
func bytes(b []byte) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.SliceData(b)), C.size_t(len(b))
}

// Store is an open database with one column family.
type Store struct {
	db     *C.tidesdb_t
	family *C.tidesdb_column_family_t
}

func open(path string) Store {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	config := C.tidesdb_default_config()
	config.db_path, config.log_level = name, C.TDB_LOG_NONE
	var store Store
	check(C.tidesdb_open(&config, &store.db))

	fruit := C.CString("fruit")
	defer C.free(unsafe.Pointer(fruit))
	settings := C.tidesdb_default_column_family_config()
	settings.compression_algorithm = C.TDB_COMPRESS_LZ4
	if code := C.tidesdb_create_column_family(store.db, fruit, &settings); code != C.TDB_ERR_EXISTS {
		check(code)
	}
	store.family = C.tidesdb_get_column_family(store.db, fruit)
	return store
}

func (s Store) begin() Txn {
	txn := Txn{store: s}
	check(C.tidesdb_txn_begin_with_isolation(s.db, C.TDB_ISOLATION_SNAPSHOT, &txn.txn))
	return txn
}

func (s Store) backup(path string) {
	to := C.CString(path)
	defer C.free(unsafe.Pointer(to))
	check(C.tidesdb_backup(s.db, to))
}

// Txn is a transaction at snapshot isolation.
type Txn struct {
	store Store
	txn   *C.tidesdb_txn_t
}

func (t Txn) put(key, value string, expires int64) {
	k, kn := bytes([]byte(key))
	v, vn := bytes([]byte(value))
	check(C.tidesdb_txn_put(t.txn, t.store.family, k, kn, v, vn, C.time_t(expires)))
}

func (t Txn) get(key string) string {
	var value *C.uint8_t
	var size C.size_t
	k, kn := bytes([]byte(key))
	code := C.tidesdb_txn_get(t.txn, t.store.family, k, kn, &value, &size)
	if code == C.TDB_ERR_NOT_FOUND {
		return "not there"
	}
	check(code)
	defer C.tidesdb_free(unsafe.Pointer(value))
	return string(C.GoBytes(unsafe.Pointer(value), C.int(size)))
}

func (t Txn) commit() error {
	defer C.tidesdb_txn_free(t.txn)
	return failure(C.tidesdb_txn_commit(t.txn))
}

func (s Store) print(title string) {
	fmt.Println(title)
	txn := s.begin()
	defer C.tidesdb_txn_free(txn.txn)
	var iter *C.tidesdb_iter_t
	check(C.tidesdb_iter_new(txn.txn, s.family, &iter))
	defer C.tidesdb_iter_free(iter)
	code := C.tidesdb_iter_seek_to_first(iter)
	for ; code == C.TDB_SUCCESS; code = C.tidesdb_iter_next(iter) {
		var key, value *C.uint8_t
		var kn, vn C.size_t
		check(C.tidesdb_iter_key_value(iter, &key, &kn, &value, &vn))
		fmt.Printf("  %s = %s\n", C.GoBytes(unsafe.Pointer(key), C.int(kn)), C.GoBytes(unsafe.Pointer(value), C.int(vn)))
	}
	if code != C.TDB_ERR_NOT_FOUND {
		check(code)
	}
}

func main() {
	runtime.LockOSThread()
	path := "shop"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	store := open(path)
	txn := store.begin()
	txn.put("banana", "yellow", forever)
	txn.put("apple", "red", time.Now().Add(time.Hour).Unix())
	txn.put("old", "gone", time.Now().Add(-time.Hour).Unix())
	if err := txn.commit(); err != nil {
		panic(err)
	}

	first, second := store.begin(), store.begin()
	first.put("apple", "green", forever)
	second.put("apple", "brown", forever)
	if err := first.commit(); err != nil {
		panic(err)
	}
	if refused, ok := second.commit().(Failure); ok && refused.Code == C.TDB_ERR_CONFLICT {
		fmt.Println("second: refused")
	}

	txn = store.begin()
	fmt.Println("apple is", txn.get("apple"))
	fmt.Println("old is", txn.get("old"))
	C.tidesdb_txn_free(txn.txn)
	store.print("all:")
	store.backup(path + "-copy")
	check(C.tidesdb_close(store.db))

	copied := open(path + "-copy")
	copied.print("copy:")
	check(C.tidesdb_close(copied.db))
}
