//! What a call through C costs more than through Rust: `cargo run --release -p tidesdb-capi --example cost`.
//!
//! The same work on two databases of the same contents, in turn, through both interfaces; nanoseconds of this thread's processor
//! time per operation, in the fastest of several rounds, as flushes in the background slow some. The C functions are called as any C program calls them.

use std::ffi::{CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr::{null, null_mut};

use rustix::time::{ClockId, clock_gettime};
use tidesdb::{Db, Isolation, SyncMode};
use tidesdb_capi::abi::{Config, FamilyConfig};

type Handle = *mut c_void;

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

const KEYS: u64 = 100_000;
const OPS: u64 = 200_000;
const ROUNDS: usize = 12;

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    let mut n = n % KEYS;
    for place in key[4..].iter_mut().rev() {
        *place = b'0' + (n % 10) as u8;
        n /= 10;
    }
    key
}

/// Keys in an order without pattern.
fn nth(n: u64) -> [u8; 16] {
    key(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
}

fn nanos(mut op: impl FnMut(u64)) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let started = now();
    (0..OPS).for_each(&mut op);
    (now() - started) / OPS as f64
}

fn report(what: &str, mut rust: impl FnMut(u64), mut c: impl FnMut(u64)) {
    let (mut by_rust, mut by_c) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            by_rust.push(nanos(&mut rust));
            by_c.push(nanos(&mut c));
        } else {
            by_c.push(nanos(&mut c));
            by_rust.push(nanos(&mut rust));
        }
    }
    by_rust.sort_by(f64::total_cmp);
    by_c.sort_by(f64::total_cmp);
    let (rust, c) = (by_rust[0], by_c[0]);
    println!("{what:28} Rust {rust:7.1} ns   C {c:7.1} ns   {:+6.1} ns", c - rust);
}

struct ThroughC {
    db: Handle,
    cf: Handle,
}

impl ThroughC {
    fn open(dir: &std::path::Path) -> Self {
        let path = CString::new(dir.to_str().unwrap_or_default()).unwrap_or_default();
        let mut db = null_mut();
        // SAFETY: the functions are called as the header says.
        unsafe {
            let config = Config { db_path: path.as_ptr(), log_level: 99, ..tidesdb_default_config() };
            assert_eq!(tidesdb_open(&raw const config, &raw mut db), 0);
            let settings = tidesdb_default_column_family_config();
            assert_eq!(tidesdb_create_column_family(db, c"data".as_ptr(), &raw const settings), 0);
            Self { db, cf: tidesdb_get_column_family(db, c"data".as_ptr()) }
        }
    }

    fn begin(&self) -> Handle {
        let mut txn = null_mut();
        // SAFETY: as the header says.
        assert_eq!(unsafe { tidesdb_txn_begin(self.db, &raw mut txn) }, 0);
        txn
    }

    fn put(&self, txn: Handle, key: &[u8], value: &[u8]) {
        // SAFETY: as the header says.
        let code =
            unsafe { tidesdb_txn_put(txn, self.cf, key.as_ptr(), key.len(), value.as_ptr(), value.len(), 0) };
        assert_eq!(code, 0);
    }

    fn get(&self, txn: Handle, key: &[u8]) {
        let (mut value, mut n) = (null_mut(), 0);
        // SAFETY: as the header says.
        unsafe {
            let code = tidesdb_txn_get(txn, self.cf, key.as_ptr(), key.len(), &raw mut value, &raw mut n);
            assert_eq!((code, n), (0, 100));
            tidesdb_free(black_box(value).cast());
        }
    }
}

/// One by one: a pair would be loaded as one word of 16 bytes, which waits for the two stores of 8 bytes behind it.
fn shown((pointer, length): (*const u8, usize)) {
    black_box(pointer);
    black_box(length);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (dir, c_dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let db = Db::options(dir.path()).sync(SyncMode::None).open()?;
    let data = db.create_family("data", tidesdb::FamilyOptions::default())?;
    let c = ThroughC::open(c_dir.path());
    let mut tx = db.begin(Isolation::ReadCommitted);
    let txn = c.begin();
    for n in 0..KEYS {
        tx.put(&data, &key(n), &[7; 100])?;
        c.put(txn, &key(n), &[7; 100]);
    }
    tx.commit()?;
    // SAFETY: as the header says.
    unsafe { assert_eq!(tidesdb_txn_commit(txn), 0) };

    reads(&db, &data, &c, "in memory");
    db.compact()?;
    // SAFETY: as the header says.
    unsafe { assert_eq!(tidesdb_purge(c.db), 0) };
    reads(&db, &data, &c, "in tables");

    report(
        "put in a batch of 1000",
        |n| {
            if n % 1000 == 0 {
                let _ = tx.commit();
                tx.reset_at(Isolation::ReadCommitted);
            }
            let _ = tx.put(&data, &nth(n), &[7; 100]);
        },
        |n| {
            if n % 1000 == 0 {
                // SAFETY: as the header says.
                unsafe { (tidesdb_txn_commit(txn), tidesdb_txn_reset(txn, 1)) };
            }
            c.put(txn, &nth(n), &[7; 100]);
        },
    );
    report(
        "begin, put, commit, free",
        |n| {
            let mut tx = db.begin(Isolation::ReadCommitted);
            let _ = (tx.put(&data, &nth(n), &[7; 100]), tx.commit());
        },
        |n| {
            let txn = c.begin();
            c.put(txn, &nth(n), &[7; 100]);
            // SAFETY: as the header says.
            unsafe {
                tidesdb_txn_commit(txn);
                tidesdb_txn_free(txn);
            }
        },
    );
    // SAFETY: as the header says.
    unsafe {
        tidesdb_txn_free(txn);
        assert_eq!(tidesdb_close(c.db), 0);
    }
    Ok(())
}

fn reads(db: &Db, data: &tidesdb::Family, c: &ThroughC, place: &str) {
    let tx = db.begin(Isolation::ReadCommitted);
    let txn = c.begin();
    report(&format!("get {place}"), |n| drop(black_box(tx.get(data, &nth(n)))), |n| c.get(txn, &nth(n)));
    let Ok(mut cursor) = tx.cursor(data) else { return };
    let mut iter = null_mut();
    // SAFETY: as the header says.
    unsafe { assert_eq!(tidesdb_iter_new(txn, c.cf, &raw mut iter), 0) };
    let mut at = (null(), 0);
    report(
        &format!("seek {place}"),
        |n| {
            let _ = cursor.seek(&nth(n));
            black_box(cursor.key());
        },
        |n| {
            let key = nth(n);
            // SAFETY: as the header says.
            unsafe {
                tidesdb_iter_seek(iter, key.as_ptr(), key.len());
                tidesdb_iter_key(iter, &raw mut at.0, &raw mut at.1);
            }
            shown(at);
        },
    );
    report(
        &format!("next, key, value {place}"),
        |n| {
            if n % 50_000 == 0 {
                let _ = cursor.seek(&key(0));
            }
            let _ = cursor.next();
            black_box(cursor.entry()).ok();
        },
        |n| {
            let mut value = (null(), 0);
            // SAFETY: as the header says.
            unsafe {
                if n % 50_000 == 0 {
                    tidesdb_iter_seek(iter, key(0).as_ptr(), 16);
                }
                tidesdb_iter_next(iter);
                let places = (&raw mut at.0, &raw mut at.1, &raw mut value.0, &raw mut value.1);
                tidesdb_iter_key_value(iter, places.0, places.1, places.2, places.3);
            }
            shown(at);
            shown(value);
        },
    );
    // SAFETY: as the header says.
    unsafe {
        tidesdb_iter_free(iter);
        tidesdb_txn_free(txn);
    }
}
