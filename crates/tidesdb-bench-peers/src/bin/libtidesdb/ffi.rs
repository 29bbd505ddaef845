//! The functions of a libtidesdb of version 9, found by name, behind a safe interface.
//!
//! Trust ends here: that the file is such a library and keeps to its interface, nobody can prove. What can be seen is
//! refused: a function that is missing, settings that look unlike those of version 9. Handles of the database and of its
//! family may be shared by threads; a transaction or iterator belongs to one.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::path::Path;
use std::ptr::{null_mut, slice_from_raw_parts};

use libloading::Library;

/// An error in words.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The code of a missing key, and of the end of an iteration.
const NOT_FOUND: c_int = -3;
/// Read committed.
const ISOLATION: c_int = 1;
const LZ4: c_int = 2;
/// No messages.
const LOG_NONE: c_int = 99;
const NAME: &CStr = c"default";
/// A function that later versions do not have.
const VERSION_9: &CStr = c"tidesdb_purge_cf";

/// Settings of a family. The library may know more of them than we do: it has room to fill them in.
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

/// Settings of a database, with room as above.
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

/// How to open a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// 0 with the system, 1 synced.
    pub(crate) sync: c_int,
    pub(crate) cache: usize,
    pub(crate) memtable: usize,
    /// Values of this size and more are kept apart.
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
                        // SAFETY: the type is that of the function of this name in the interface of version 9; the
                        // pointer is used no longer than the library is loaded, see `Db`.
                        let found = unsafe { library.get::<$type>(name.as_bytes()) };
                        *found.map_err(|_| format!("it has no function {name}: it is no libtidesdb of version 9"))?
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

/// The meaning of a code.
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

/// A library, loaded, with an open database and its family.
pub(crate) struct Db {
    functions: Functions,
    db: Handle,
    family: Handle,
    /// Last: the functions are in it.
    _library: Library,
}

// SAFETY: the interface says that handles of databases and families may be used by all threads at once; everything else
// in here is never changed.
unsafe impl Send for Db {}
// SAFETY: as above.
unsafe impl Sync for Db {}

impl Db {
    /// Loads the library and opens a database with one family.
    pub(crate) fn open(library: &Path, dir: &Path, settings: &Settings) -> Result<Self> {
        let at = |what: String| format!("{}: {what}", library.display());
        // SAFETY: loading runs the library's own initialisers; the user named the file for exactly this.
        let loaded = unsafe { Library::new(library) }.map_err(|e| at(format!("cannot be loaded: {e}")))?;
        let functions = Functions::find(&loaded).map_err(at)?;
        // SAFETY: it is only asked whether the name is there; nothing is called.
        if unsafe { loaded.get::<Handle>(VERSION_9.to_bytes()) }.is_err() {
            return Err(at(
                "it is a libtidesdb of another version than 9, which lays out its settings otherwise"
                    .to_owned(),
            ));
        }
        let path = CString::new(dir.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: it takes nothing and fills the structure it is given a place for, with room to spare.
        let mut config = unsafe { (functions.default_config)() };
        config.db_path = path.as_ptr();
        (config.num_flush_threads, config.num_compaction_threads) = (1, 1);
        (config.log_level, config.block_cache_size) = (LOG_NONE, settings.cache);
        let mut db = null_mut();
        // SAFETY: both pointers are to locals; the library copies the settings, the path included.
        checked(unsafe { (functions.open)(&raw const config, &raw mut db) }, "open")?;
        let mut this = Self { functions, db, family: null_mut(), _library: loaded };
        this.family = this.find_family(settings)?;
        Ok(this)
    }

    fn find_family(&self, settings: &Settings) -> Result<Handle> {
        let f = &self.functions;
        // SAFETY: the database is open, the name ends with a zero.
        let get = || unsafe { (f.get_column_family)(self.db, NAME.as_ptr()) };
        let there = get();
        if !there.is_null() {
            return Ok(there);
        }
        // SAFETY: it takes nothing and fills the structure it is given a place for, with room to spare.
        let mut config = unsafe { (f.default_column_family_config)() };
        if config.write_buffer_size == 0 || !(0.0..1.0).contains(&config.bloom_fpr) {
            return Err("its settings look unlike those of a libtidesdb of version 9".to_owned());
        }
        config.write_buffer_size = settings.memtable;
        config.klog_value_threshold = settings.apart;
        (config.compression_algorithm, config.enable_bloom_filter) = (LZ4, 1);
        config.bloom_fpr = 0.0082;
        (config.sync_mode, config.l0_queue_stall_threshold) = (settings.sync, 4);
        config.default_isolation_level = ISOLATION;
        // SAFETY: as above; the settings are copied.
        let made = unsafe { (f.create_column_family)(self.db, NAME.as_ptr(), &raw const config) };
        checked(made, "create the family")?;
        let made = get();
        if made.is_null() { Err("the family that was made is not there".to_owned()) } else { Ok(made) }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>> {
        let mut handle = null_mut();
        // SAFETY: the database is open as long as this lives.
        let code = unsafe { (self.functions.txn_begin_with_isolation)(self.db, ISOLATION, &raw mut handle) };
        checked(code, "begin")?;
        Ok(Transaction { db: self, handle, one_thread: PhantomData })
    }

    /// Starts to write out the memtable.
    pub(crate) fn flush(&self) -> Result<()> {
        // SAFETY: the family lives as long as the database, which is open.
        checked(unsafe { (self.functions.flush_memtable)(self.family) }, "flush")
    }

    /// Syncs the log.
    pub(crate) fn sync(&self) -> Result<()> {
        // SAFETY: as for `flush`.
        checked(unsafe { (self.functions.sync_wal)(self.family) }, "sync")
    }

    /// Whether background work goes on.
    pub(crate) fn is_busy(&self) -> bool {
        // SAFETY: as for `flush`; both only ask.
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
        // SAFETY: it is open, nobody borrows it: transactions and iterators do, and are gone; the handle is forgotten.
        checked(unsafe { (self.functions.close)(db) }, "close")
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // A failure was reported if `close` was called; else something else had failed before.
        let _ = self.shut();
    }
}

/// A transaction, for one thread.
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

    /// Shows the value of a key.
    pub(crate) fn get(&mut self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Db { functions, family, .. } = self.db;
        let (mut value, mut length) = (null_mut(), 0);
        // SAFETY: as for `put`; the places for the answer are locals.
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
        // SAFETY: the value was allocated by the library for us and is not used any more.
        unsafe { (functions.free)(value.cast()) };
        Ok(true)
    }

    /// Commits.
    pub(crate) fn commit(&mut self) -> Result<()> {
        // SAFETY: the transaction is alive.
        checked(unsafe { (self.db.functions.txn_commit)(self.handle) }, "commit")
    }

    /// Begins again after a commit.
    pub(crate) fn reset(&mut self) -> Result<()> {
        // SAFETY: the transaction is alive.
        checked(unsafe { (self.db.functions.txn_reset)(self.handle, ISOLATION) }, "reset")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: it is alive, iterators on it are gone (see `Cursor`), and the handle is not used again.
        unsafe { (self.db.functions.txn_free)(self.handle) };
    }
}

/// Bytes that the library answered with; none may come as a null pointer.
fn bytes(at: &*mut u8, length: usize) -> &[u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: the library says that so many bytes are there; they stay until it is called again with the object they belong
    // to, and the pointer is borrowed for as long as they are used.
    unsafe { &*slice_from_raw_parts(*at, length) }
}

/// An iterator with its own transaction, for one thread.
pub(crate) struct Cursor<'a> {
    handle: Handle,
    transaction: Transaction<'a>,
}

impl<'a> Cursor<'a> {
    /// A cursor that sees what is committed.
    pub(crate) fn new(db: &'a Db) -> Result<Self> {
        let transaction = db.begin()?;
        let mut handle = null_mut();
        // SAFETY: the transaction and the family are alive; the place for the handle is a local.
        let code = unsafe { (db.functions.iter_new)(transaction.handle, db.family, &raw mut handle) };
        checked(code, "a new iterator")?;
        Ok(Self { handle, transaction })
    }

    /// Whether a move came to a row.
    fn moved(code: c_int, what: &str) -> Result<bool> {
        match code {
            0 => Ok(true),
            NOT_FOUND => Ok(false),
            _ => Err(failure(code, what)),
        }
    }

    /// Moves to the first key at or after `key`; whether there is one.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let seek = self.transaction.db.functions.iter_seek;
        // SAFETY: the iterator is alive; the key is read during the call.
        Self::moved(unsafe { seek(self.handle, key.as_ptr(), key.len()) }, "seek")
    }

    /// Moves to the first key; whether there is one.
    pub(crate) fn first(&mut self) -> Result<bool> {
        // SAFETY: the iterator is alive.
        Self::moved(
            unsafe { (self.transaction.db.functions.iter_seek_to_first)(self.handle) },
            "seek to first",
        )
    }

    /// Moves to the next key; whether there is one.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        // SAFETY: the iterator is alive.
        Self::moved(unsafe { (self.transaction.db.functions.iter_next)(self.handle) }, "next")
    }

    /// Shows the key it is at; the last move came to one.
    pub(crate) fn key(&mut self, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (mut key, mut length) = (null_mut(), 0);
        let ask = self.transaction.db.functions.iter_key;
        // SAFETY: the iterator is alive and at a row; the places for the answer are locals.
        checked(unsafe { ask(self.handle, &raw mut key, &raw mut length) }, "key")?;
        show(bytes(&key, length));
        Ok(())
    }

    /// Shows the row it is at; the last move came to one.
    pub(crate) fn row(&mut self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let functions = &self.transaction.db.functions;
        let (mut key, mut value) = (null_mut(), null_mut());
        let (mut keys, mut values) = (0, 0);
        // SAFETY: the iterator is alive and at a row; the places for the answer are locals.
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
        // SAFETY: it is alive and not used again; its transaction is dropped after it.
        unsafe { (self.transaction.db.functions.iter_free)(self.handle) };
    }
}
