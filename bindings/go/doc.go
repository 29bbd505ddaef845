// Package tidesdb is TidesDB, an embedded key-value store, on its C library.
//
//	db, err := tidesdb.Open("shop.db", nil)
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	err = db.Put([]byte("apple"), []byte("3"), nil) // durable when it returns
//
// A database has families, each with rows in the order of their keys. The methods of [DB] use the family "default", which [Open] creates; those
// of [Family] use another one. Keys have 1 byte to 64 KiB, values 0 bytes or more. The package copies both: a slice that was passed to it may be
// changed after the call, and a slice that it returns belongs to the caller, except those of an [Iterator].
//
// # Goroutines
//
// DB, Family, Snapshot, Reader and Backups may be used by any number of goroutines at a time. Tx, Batch, Iterator, TableBuilder, ValueWriter and
// ValueReader are for one goroutine at a time; all but an Iterator may be closed by any.
//
// # Closing
//
// Each Close may be called more than once. A use after it is [ErrClosed]. [DB.Close] may be called beside other calls: those that it
// interrupts return ErrClosed, and it waits for them. The Close or Rollback of another handle does not wait for its own calls: it takes effect
// when they return. Handles that the database has made need not be closed before it. A handle that is
// forgotten is closed when the garbage collector finds it, which may be late: an open Iterator, Tx or Snapshot keeps old rows on disk.
//
// # Contexts
//
// Calls that may take long have a context. Most calls in the C library cannot be interrupted: when the context ends, the method returns its error
// at once, and the work goes on to its end in the background; [DB.Close] waits for it. [Backups.Create], [Backups.Verify] and [Backups.Restore] end
// soon instead, and return then. A context that has ended before the call prevents it.
// [IterOptions] may have a context too, which is checked for each few hundred rows.
//
// # Errors
//
// Errors are compared with [errors.Is]: [ErrNotFound], [ErrConflict], [ErrClosed] and so on. The others of them are an [*Error] with the text of
// the library.
package tidesdb
