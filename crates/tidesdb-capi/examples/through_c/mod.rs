//! The C functions, called as a C program calls them.
#![allow(unsafe_code, reason = "calls the C interface")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr::{null, null_mut};

use tidesdb_capi::abi::{Config, FamilyConfig};

/// A handle returned by the library.
pub(crate) type Handle = *mut c_void;

unsafe extern "C" {
    fn tidesdb_default_config() -> Config;
    fn tidesdb_default_column_family_config() -> FamilyConfig;
    fn tidesdb_open(config: *const Config, db: *mut Handle) -> c_int;
    fn tidesdb_close(db: Handle) -> c_int;
    fn tidesdb_create_column_family(db: Handle, name: *const c_char, config: *const FamilyConfig) -> c_int;
    fn tidesdb_get_column_family(db: Handle, name: *const c_char) -> Handle;
    fn tidesdb_purge(db: Handle) -> c_int;
    fn tidesdb_txn_begin(db: Handle, txn: *mut Handle) -> c_int;
    fn tidesdb_txn_put(
        txn: Handle,
        cf: Handle,
        key: *const u8,
        n: usize,
        value: *const u8,
        m: usize,
        ttl: i64,
    ) -> c_int;
    fn tidesdb_txn_get(
        txn: Handle,
        cf: Handle,
        key: *const u8,
        n: usize,
        value: *mut *mut u8,
        m: *mut usize,
    ) -> c_int;
    fn tidesdb_txn_commit(txn: Handle) -> c_int;
    fn tidesdb_txn_reset(txn: Handle, isolation: c_int) -> c_int;
    fn tidesdb_txn_free(txn: Handle);
    fn tidesdb_iter_new(txn: Handle, cf: Handle, iter: *mut Handle) -> c_int;
    fn tidesdb_iter_seek(iter: Handle, key: *const u8, n: usize) -> c_int;
    fn tidesdb_iter_next(iter: Handle) -> c_int;
    fn tidesdb_iter_key(iter: Handle, key: *mut *const u8, n: *mut usize) -> c_int;
    fn tidesdb_iter_key_value(
        iter: Handle,
        key: *mut *const u8,
        n: *mut usize,
        value: *mut *const u8,
        m: *mut usize,
    ) -> c_int;
    fn tidesdb_iter_free(iter: Handle);
    fn tidesdb_free(memory: *mut c_void);
}

/// An open database with one family. Handles passed to its functions must be valid.
pub(crate) struct ThroughC {
    db: Handle,
    cf: Handle,
}

impl ThroughC {
    pub(crate) fn open(dir: &std::path::Path) -> Self {
        let path = CString::new(dir.to_str().unwrap_or_default()).unwrap_or_default();
        let mut db = null_mut();
        // SAFETY: the functions are called as the header requires; the same holds for all calls below.
        unsafe {
            let config = Config { db_path: path.as_ptr(), log_level: 99, ..tidesdb_default_config() };
            assert_eq!(tidesdb_open(&raw const config, &raw mut db), 0);
            let settings = tidesdb_default_column_family_config();
            assert_eq!(tidesdb_create_column_family(db, c"data".as_ptr(), &raw const settings), 0);
            Self { db, cf: tidesdb_get_column_family(db, c"data".as_ptr()) }
        }
    }

    /// Flushes and merges everything into tables.
    pub(crate) fn purge(&self) {
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_purge(self.db) }, 0);
    }

    pub(crate) fn close(self) {
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_close(self.db) }, 0);
    }

    pub(crate) fn begin(&self) -> Handle {
        let mut txn = null_mut();
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_txn_begin(self.db, &raw mut txn) }, 0);
        txn
    }

    #[inline(always)]
    pub(crate) fn put(&self, txn: Handle, key: &[u8], value: &[u8]) {
        let (k, v) = (key.as_ptr(), value.as_ptr());
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_txn_put(txn, self.cf, k, key.len(), v, value.len(), 0) }, 0);
    }

    /// Gets a value of 100 bytes.
    #[inline(always)]
    pub(crate) fn get(&self, txn: Handle, key: &[u8]) {
        let (mut value, mut n) = (null_mut(), 0);
        // SAFETY: see `open`.
        unsafe {
            let code = tidesdb_txn_get(txn, self.cf, key.as_ptr(), key.len(), &raw mut value, &raw mut n);
            assert_eq!((code, n), (0, 100));
            tidesdb_free(black_box(value).cast());
        }
    }

    #[inline(always)]
    pub(crate) fn commit(&self, txn: Handle) {
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_txn_commit(txn) }, 0);
    }

    /// Restarts the transaction at read committed.
    #[inline(always)]
    pub(crate) fn reset(&self, txn: Handle) {
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_txn_reset(txn, 1) }, 0);
    }

    pub(crate) fn end(&self, txn: Handle) {
        // SAFETY: see `open`.
        unsafe { tidesdb_txn_free(txn) };
    }

    pub(crate) fn iterator(&self, txn: Handle) -> Rows {
        let mut iter = null_mut();
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_iter_new(txn, self.cf, &raw mut iter) }, 0);
        Rows { iter, key: (null(), 0), value: (null(), 0) }
    }
}

/// An iterator, and the outputs for its current row.
pub(crate) struct Rows {
    iter: Handle,
    key: (*const u8, usize),
    value: (*const u8, usize),
}

/// Uses the parts one by one: a pair would be loaded as one word of 16 bytes, which waits for the two preceding 8-byte
/// stores.
#[inline(always)]
fn shown((pointer, length): (*const u8, usize)) {
    black_box(pointer);
    black_box(length);
}

impl Rows {
    #[inline(always)]
    pub(crate) fn seek(&self, key: &[u8]) {
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_iter_seek(self.iter, key.as_ptr(), key.len()) }, 0);
    }

    #[inline(always)]
    pub(crate) fn next(&self) {
        // SAFETY: see `open`.
        unsafe { tidesdb_iter_next(self.iter) };
    }

    #[inline(always)]
    pub(crate) fn key(&mut self) {
        // SAFETY: see `open`.
        assert_eq!(unsafe { tidesdb_iter_key(self.iter, &raw mut self.key.0, &raw mut self.key.1) }, 0);
        shown(self.key);
    }

    #[inline(always)]
    pub(crate) fn key_and_value(&mut self) {
        let (key, value) = (&mut self.key, &mut self.value);
        let places = (&raw mut key.0, &raw mut key.1, &raw mut value.0, &raw mut value.1);
        // SAFETY: see `open`.
        let code = unsafe { tidesdb_iter_key_value(self.iter, places.0, places.1, places.2, places.3) };
        assert_eq!(code, 0);
        shown(self.key);
        shown(self.value);
    }

    pub(crate) fn free(self) {
        // SAFETY: see `open`.
        unsafe { tidesdb_iter_free(self.iter) };
    }
}
