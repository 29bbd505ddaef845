//! A safe interface to the functions of a libtidesdb of version 9, which are loaded by name.
//!
//! This module cannot verify that the file is such a library and follows its documented interface. It refuses what can
//! be detected: a missing function, and settings that do not look like those of version 9. Threads may share the
//! handles of the database and its family; a transaction or an iterator belongs to one thread.
#![allow(unsafe_code, reason = "calls functions of a library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::path::Path;
use std::ptr::{null_mut, slice_from_raw_parts};

use libloading::Library;

/// Errors are messages.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Return code for a missing key, and for the end of an iteration.
const NOT_FOUND: c_int = -3;
/// Read committed.
const ISOLATION: c_int = 1;
const LZ4: c_int = 2;
/// Log level: no messages.
const LOG_NONE: c_int = 99;
const NAME: &CStr = c"default";
/// A function that later versions lack.
const VERSION_9: &CStr = c"tidesdb_purge_cf";

/// Settings of a family. The library may know more settings than we do; the extra space is for those.
#[repr(C)]
struct FamilyConfig {
    name: [c_char; 128],
    write_buffer_size: usize,
    level_size_ratio: usize,
    min_levels: c_int,
    dividing_level_offset: c_int,
    klog_value_threshold: usize,
    compression_algorithm: c_int,
    enable_bloom_filter: c_int,
    bloom_fpr: f64,
    enable_block_indexes: c_int,
    index_sample_ratio: c_int,
    block_index_prefix_len: c_int,
    sync_mode: c_int,
    sync_interval_us: u64,
    comparator_name: [c_char; 64],
    comparator_ctx: [c_char; 256],
    comparator: [*mut c_void; 2],
    skip_list_max_level: c_int,
    skip_list_probability: f32,
    default_isolation_level: c_int,
    min_disk_space: u64,
    l1_file_count_trigger: c_int,
    l0_queue_stall_threshold: c_int,
    rest: [u64; 128],
}

/// Settings of a database, with extra space as above.
#[repr(C)]
struct DbConfig {
    db_path: *const c_char,
    num_flush_threads: c_int,
    num_compaction_threads: c_int,
    log_level: c_int,
    block_cache_size: usize,
    max_open_sstables: usize,
    log_to_file: c_int,
    rest: [u64; 128],
}

const _: () = {
    assert!(offset_of!(FamilyConfig, klog_value_threshold) == 152);
    assert!(offset_of!(FamilyConfig, bloom_fpr) == 168);
    assert!(offset_of!(FamilyConfig, sync_interval_us) == 192);
    assert!(offset_of!(FamilyConfig, comparator) == 520);
    assert!(offset_of!(FamilyConfig, default_isolation_level) == 544);
    assert!(offset_of!(FamilyConfig, l0_queue_stall_threshold) == 564);
    assert!(offset_of!(DbConfig, block_cache_size) == 24);
    assert!(offset_of!(DbConfig, log_to_file) == 40);
};

/// Settings for opening a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Sync mode: 0 leaves commits to the system, 1 syncs them.
    pub(crate) sync: c_int,
    pub(crate) cache: usize,
    pub(crate) memtable: usize,
    /// Values of at least this size are stored separately.
    pub(crate) apart: usize,
}

macro_rules! functions {
    ($($name:ident: $type:ty;)*) => {
        struct Functions { $($name: $type,)* }

        impl Functions {
            fn find(library: &Library) -> Result<Self> {
                Ok(Self { $(
                    $name: {
                        let name = concat!("tidesdb_", stringify!($name));
                        // SAFETY: the type matches the function of this name in the interface of version 9. The pointer
                        // is used only while the library is loaded; see `Db`.
                        let found = unsafe { library.get::<$type>(name.as_bytes()) };
                        *found.map_err(|_| format!("it has no function {name}: it is not a libtidesdb of version 9"))?
                    },
                )* })
            }
        }
    };
}

type Bytes = *const u8;
type Handle = *mut c_void;

functions! {
    default_config: unsafe extern "C" fn() -> DbConfig;
    default_column_family_config: unsafe extern "C" fn() -> FamilyConfig;
    open: unsafe extern "C" fn(*const DbConfig, *mut Handle) -> c_int;
    close: unsafe extern "C" fn(Handle) -> c_int;
    create_column_family: unsafe extern "C" fn(Handle, *const c_char, *const FamilyConfig) -> c_int;
    get_column_family: unsafe extern "C" fn(Handle, *const c_char) -> Handle;
    txn_begin_with_isolation: unsafe extern "C" fn(Handle, c_int, *mut Handle) -> c_int;
    txn_put: unsafe extern "C" fn(Handle, Handle, Bytes, usize, Bytes, usize, i64) -> c_int;
    txn_delete: unsafe extern "C" fn(Handle, Handle, Bytes, usize) -> c_int;
    txn_get: unsafe extern "C" fn(Handle, Handle, Bytes, usize, *mut *mut u8, *mut usize) -> c_int;
    txn_commit: unsafe extern "C" fn(Handle) -> c_int;
    txn_reset: unsafe extern "C" fn(Handle, c_int) -> c_int;
    txn_free: unsafe extern "C" fn(Handle);
    iter_new: unsafe extern "C" fn(Handle, Handle, *mut Handle) -> c_int;
    iter_seek: unsafe extern "C" fn(Handle, Bytes, usize) -> c_int;
    iter_seek_to_first: unsafe extern "C" fn(Handle) -> c_int;
    iter_next: unsafe extern "C" fn(Handle) -> c_int;
    iter_key: unsafe extern "C" fn(Handle, *mut *mut u8, *mut usize) -> c_int;
    iter_key_value: unsafe extern "C" fn(Handle, *mut *mut u8, *mut usize, *mut *mut u8, *mut usize) -> c_int;
    iter_free: unsafe extern "C" fn(Handle);
    flush_memtable: unsafe extern "C" fn(Handle) -> c_int;
    is_flushing: unsafe extern "C" fn(Handle) -> c_int;
    is_compacting: unsafe extern "C" fn(Handle) -> c_int;
    sync_wal: unsafe extern "C" fn(Handle) -> c_int;
    free: unsafe extern "C" fn(Handle);
}

/// Formats an error with the meaning of its code.
#[inline]
fn checked(code: c_int, what: &str) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failure(code, what)) }
}

#[cold]
fn failure(code: c_int, what: &str) -> String {
    let word = match code {
        -1 => "memory",
        -2 => "invalid arguments",
        NOT_FOUND => "not found",
        -4 => "input or output",
        -5 => "corruption",
        -6 => "exists",
        -7 => "conflict",
        -9 => "memory limit",
        -12 => "locked",
        -14 => "busy",
        _ => "unknown",
    };
    format!("{what}: code {code} ({word})")
}

/// A loaded library with an open database and its family.
pub(crate) struct Db {
    functions: Functions,
    db: Handle,
    family: Handle,
    /// Declared last, so that it is dropped last: the functions belong to it.
    _library: Library,
}

// SAFETY: according to the interface, all threads may use the handles of databases and families at the same time. The
// other fields never change.
unsafe impl Send for Db {}
// SAFETY: as above.
unsafe impl Sync for Db {}

impl Db {
    /// Loads the library and opens a database with one family.
    pub(crate) fn open(library: &Path, dir: &Path, settings: &Settings) -> Result<Self> {
        let at = |what: String| format!("{}: {what}", library.display());
        // SAFETY: loading runs the initializers of the library; the user named the file for exactly this purpose.
        let loaded = unsafe { Library::new(library) }.map_err(|e| at(format!("cannot be loaded: {e}")))?;
        let functions = Functions::find(&loaded).map_err(at)?;
        // SAFETY: this only checks that the name exists; nothing is called.
        if unsafe { loaded.get::<Handle>(VERSION_9.to_bytes()) }.is_err() {
            return Err(at(
                "it is a libtidesdb of another version than 9, whose settings have a different layout"
                    .to_owned(),
            ));
        }
        let path = CString::new(dir.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: the function takes no arguments and returns a structure, for which there is more than enough space.
        let mut config = unsafe { (functions.default_config)() };
        config.db_path = path.as_ptr();
        (config.num_flush_threads, config.num_compaction_threads) = (1, 1);
        (config.log_level, config.block_cache_size) = (LOG_NONE, settings.cache);
        let mut db = null_mut();
        // SAFETY: both pointers are to locals. The library copies the settings, including the path.
        checked(unsafe { (functions.open)(&raw const config, &raw mut db) }, "open")?;
        let mut this = Self { functions, db, family: null_mut(), _library: loaded };
        this.family = this.find_family(settings)?;
        Ok(this)
    }

    fn find_family(&self, settings: &Settings) -> Result<Handle> {
        let f = &self.functions;
        // SAFETY: the database is open, and the name is zero-terminated.
        let get = || unsafe { (f.get_column_family)(self.db, NAME.as_ptr()) };
        let there = get();
        if !there.is_null() {
            return Ok(there);
        }
        // SAFETY: the function takes no arguments and returns a structure, for which there is more than enough space.
        let mut config = unsafe { (f.default_column_family_config)() };
        if config.write_buffer_size == 0 || !(0.0..1.0).contains(&config.bloom_fpr) {
            return Err("its default settings do not look like those of a libtidesdb of version 9".to_owned());
        }
        config.write_buffer_size = settings.memtable;
        config.klog_value_threshold = settings.apart;
        (config.compression_algorithm, config.enable_bloom_filter) = (LZ4, 1);
        config.bloom_fpr = 0.0082;
        (config.sync_mode, config.l0_queue_stall_threshold) = (settings.sync, 4);
        config.default_isolation_level = ISOLATION;
        // SAFETY: as above. The settings are copied.
        let made = unsafe { (f.create_column_family)(self.db, NAME.as_ptr(), &raw const config) };
        checked(made, "create the family")?;
        let made = get();
        if made.is_null() { Err("the family was created but cannot be found".to_owned()) } else { Ok(made) }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>> {
        let mut handle = null_mut();
        // SAFETY: the database is open as long as `self` lives.
        let code = unsafe { (self.functions.txn_begin_with_isolation)(self.db, ISOLATION, &raw mut handle) };
        checked(code, "begin")?;
        Ok(Transaction { db: self, handle, one_thread: PhantomData })
    }

    /// Starts a flush of the memtable.
    pub(crate) fn flush(&self) -> Result<()> {
        // SAFETY: the family lives as long as the database, which is open.
        checked(unsafe { (self.functions.flush_memtable)(self.family) }, "flush")
    }

    /// Syncs the log.
    pub(crate) fn sync(&self) -> Result<()> {
        // SAFETY: as for `flush`.
        checked(unsafe { (self.functions.sync_wal)(self.family) }, "sync")
    }

    /// Returns whether background work is running.
    pub(crate) fn is_busy(&self) -> bool {
        // SAFETY: as for `flush`; both functions only read state.
        unsafe { (self.functions.is_flushing)(self.family) + (self.functions.is_compacting)(self.family) > 0 }
    }

    /// Closes the database.
    pub(crate) fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        let db = std::mem::replace(&mut self.db, null_mut());
        if db.is_null() {
            return Ok(());
        }
        // SAFETY: the database is open. Transactions and iterators borrow `self`, so none is left. The handle is not
        // used again.
        checked(unsafe { (self.functions.close)(db) }, "close")
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // If `close` was called, it has reported the failure. Otherwise an earlier error is already being reported.
        let _ = self.shut();
    }
}

/// A transaction; it belongs to one thread.
pub(crate) struct Transaction<'a> {
    db: &'a Db,
    handle: Handle,
    one_thread: PhantomData<*mut ()>,
}

impl Transaction<'_> {
    /// Adds a put.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Db { functions, family, .. } = self.db;
        let (k, v) = (key.as_ptr(), value.as_ptr());
        // SAFETY: transaction and family are alive; key and value are copied during the call.
        let code = unsafe { (functions.txn_put)(self.handle, *family, k, key.len(), v, value.len(), -1) };
        checked(code, "put")
    }

    /// Adds a delete.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<()> {
        let Db { functions, family, .. } = self.db;
        // SAFETY: as for `put`.
        checked(unsafe { (functions.txn_delete)(self.handle, *family, key.as_ptr(), key.len()) }, "delete")
    }

    /// Passes the value of a key to the callback, if the key exists.
    pub(crate) fn get(&mut self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Db { functions, family, .. } = self.db;
        let (mut value, mut length) = (null_mut(), 0);
        // SAFETY: as for `put`. The result pointers are to locals.
        let code = unsafe {
            (functions.txn_get)(
                self.handle,
                *family,
                key.as_ptr(),
                key.len(),
                &raw mut value,
                &raw mut length,
            )
        };
        if code == NOT_FOUND {
            return Ok(false);
        }
        checked(code, "get")?;
        show(bytes(&value, length));
        // SAFETY: the library allocated the value for the caller, and it is not used any more.
        unsafe { (functions.free)(value.cast()) };
        Ok(true)
    }

    /// Commits.
    pub(crate) fn commit(&mut self) -> Result<()> {
        // SAFETY: the transaction is alive.
        checked(unsafe { (self.db.functions.txn_commit)(self.handle) }, "commit")
    }

    /// Restarts the transaction after a commit.
    pub(crate) fn reset(&mut self) -> Result<()> {
        // SAFETY: the transaction is alive.
        checked(unsafe { (self.db.functions.txn_reset)(self.handle, ISOLATION) }, "reset")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: the transaction is alive, its iterators are gone (see `Cursor`), and the handle is not used again.
        unsafe { (self.db.functions.txn_free)(self.handle) };
    }
}

/// Returns the result bytes of a call. If there are none, the pointer may be null.
fn bytes(at: &*mut u8, length: usize) -> &[u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: the library guarantees `length` bytes at this address. They stay valid until the next call with the
    // object they belong to, and the pointer is borrowed while they are used.
    unsafe { &*slice_from_raw_parts(*at, length) }
}

/// An iterator with its own transaction; it belongs to one thread.
pub(crate) struct Cursor<'a> {
    handle: Handle,
    transaction: Transaction<'a>,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor that sees all commits so far.
    pub(crate) fn new(db: &'a Db) -> Result<Self> {
        let transaction = db.begin()?;
        let mut handle = null_mut();
        // SAFETY: the transaction and the family are alive. The pointer for the handle is to a local.
        let code = unsafe { (db.functions.iter_new)(transaction.handle, db.family, &raw mut handle) };
        checked(code, "a new iterator")?;
        Ok(Self { handle, transaction })
    }

    /// Returns whether a move ended at a row.
    fn moved(code: c_int, what: &str) -> Result<bool> {
        match code {
            0 => Ok(true),
            NOT_FOUND => Ok(false),
            _ => Err(failure(code, what)),
        }
    }

    /// Moves to the first key at or after `key`. Returns whether there is one.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let seek = self.transaction.db.functions.iter_seek;
        // SAFETY: the iterator is alive. The key is read during the call.
        Self::moved(unsafe { seek(self.handle, key.as_ptr(), key.len()) }, "seek")
    }

    /// Moves to the first key. Returns whether there is one.
    pub(crate) fn first(&mut self) -> Result<bool> {
        // SAFETY: the iterator is alive.
        Self::moved(
            unsafe { (self.transaction.db.functions.iter_seek_to_first)(self.handle) },
            "seek to first",
        )
    }

    /// Moves to the next key. Returns whether there is one.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        // SAFETY: the iterator is alive.
        Self::moved(unsafe { (self.transaction.db.functions.iter_next)(self.handle) }, "next")
    }

    /// Passes the current key to `show`. The last move must have ended at a row.
    pub(crate) fn key(&mut self, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (mut key, mut length) = (null_mut(), 0);
        let ask = self.transaction.db.functions.iter_key;
        // SAFETY: the iterator is alive and at a row. The result pointers are to locals.
        checked(unsafe { ask(self.handle, &raw mut key, &raw mut length) }, "key")?;
        show(bytes(&key, length));
        Ok(())
    }

    /// Passes the current row to `show`. The last move must have ended at a row.
    pub(crate) fn row(&mut self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let functions = &self.transaction.db.functions;
        let (mut key, mut value) = (null_mut(), null_mut());
        let (mut keys, mut values) = (0, 0);
        // SAFETY: the iterator is alive and at a row. The result pointers are to locals.
        let code = unsafe {
            let places = (&raw mut key, &raw mut keys, &raw mut value, &raw mut values);
            (functions.iter_key_value)(self.handle, places.0, places.1, places.2, places.3)
        };
        checked(code, "key and value")?;
        show(bytes(&key, keys), bytes(&value, values));
        Ok(())
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator is alive and not used again. Its transaction is dropped after it.
        unsafe { (self.transaction.db.functions.iter_free)(self.handle) };
    }
}
