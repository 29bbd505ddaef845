//! Fuzz targets for the C interface: settings as text, and calls with hostile arguments.
//!
//! Built with the feature `fuzzing` only. The input is decoded as a sequence of calls. Arguments go as far as
//! the headers allow: null pointers, stale, foreign and invented handles, key lengths out of range, any number
//! in a structure, any bytes in a string. Wild pointers, which the headers forbid, are not tried.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{CacheStats, Config, FamilyConfig, FamilyStats};
use crate::api::{
    comparators::*, config::*, families::*, iterators::*, lifecycle::*, maintenance::*, statistics::*,
    transactions::*,
};
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::settings;

/// Maximum number of calls per program.
const CALLS_MAX: usize = 48;
const SECTIONS: [&str; 3] = ["cf", "a", ""];

/// Parses settings from INI text, then writes the result and parses it again.
///
/// # Panics
/// If the settings change in the round trip.
pub fn ini(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for section in SECTIONS {
        let Ok(config) = settings::from_text("fuzz", &text, section) else { continue };
        let _ = settings::options(&config, Default::default());
        let written = settings::to_text("cf", &config);
        if let Ok(again) = settings::from_text("fuzz", &written, "cf") {
            // The lines may be in any order.
            let text = |c: &FamilyConfig| {
                let text = settings::to_text("cf", c);
                text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
            };
            let twice = settings::from_text("fuzz", &settings::to_text("cf", &again), "cf");
            assert!(
                twice.is_ok_and(|twice| text(&twice) == text(&again)),
                "settings changed in the round trip"
            );
        }
    }
}

/// Returns initial inputs for [`ini`].
pub fn ini_seeds() -> Vec<(String, Vec<u8>)> {
    let default = settings::to_text("cf", &FamilyConfig::default());
    let odd = "; a comment\n[cf]\nsync_mode = FULL\nbloom_fpr=1e-300\nmin_levels: 7\n  indented = 1\n[a]\nuse_btree=yes\n\
               skip_list_probability = inf\nwrite_buffer_size=18446744073709551615\nl1_file_count_trigger=-2147483648\n";
    vec![("default".into(), default.into()), ("odd".into(), odd.into())]
}

/// Returns initial inputs for [`arguments`]: calls in their usual order, with plain arguments.
pub fn argument_seeds() -> Vec<(String, Vec<u8>)> {
    let mut life = vec![0u8, 0];
    for call in 0..CALLS {
        life.extend([call, 1, 1, 1, 3, b'k', b'e', b'y', 5, b'v', b'a', b'l', b'u', b'e', 1, 0, 0, 0]);
    }
    let mut rows = vec![0, 0, 2, 1, 1, 4, b'n', b'a', b'm', b'e', 0];
    for n in 0..12 {
        rows.extend([8, 1, 9, 1, 1, 2, b'k', n, 3, b'v', b'v', n, 0, 12, 1, 17, 1, 1, 18, 1, 19, 1]);
    }
    vec![("life".into(), life), ("rows".into(), rows)]
}

/// The bytes that arguments are decoded from; zeros when they are used up.
struct Feed<'a> {
    data: &'a [u8],
}

impl Feed<'_> {
    fn byte(&mut self) -> u8 {
        self.data.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        let choice = self.byte();
        match choice {
            0..200 => u64::from(choice),
            200..220 => (1u64 << (choice - 200)).wrapping_mul(u64::from(self.byte())),
            220..240 => u64::MAX - u64::from(choice - 220),
            240..250 => 1 << (choice - 240 + 54),
            _ => (0..8).fold(0, |n, _| n << 8 | u64::from(self.byte())),
        }
    }

    fn int(&mut self) -> c_int {
        self.number() as c_int
    }

    /// Returns some bytes, usually few.
    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.byte() {
            255 => 70_000,
            250..255 => 4000,
            n => usize::from(n % 40),
        };
        (0..len).map(|i| if self.data.is_empty() { i as u8 } else { self.byte() }).collect()
    }

    /// Returns a zero-terminated string, or `None` for a null pointer.
    fn text(&mut self) -> Option<Vec<u8>> {
        let mut bytes = self.bytes();
        bytes.retain(|b| *b != 0);
        bytes.push(0);
        (self.byte() != 255).then_some(bytes)
    }
}

fn text(bytes: &Option<Vec<u8>>) -> In<c_char> {
    In::from_caller(bytes.as_ref().map_or(std::ptr::null(), |b| b.as_ptr().cast()))
}

/// A key or value, and a byte that may replace its pointer by null or its length by an invalid one.
struct Span(Vec<u8>, u8);

impl Span {
    fn of(feed: &mut Feed<'_>) -> Self {
        Self(feed.bytes(), feed.byte())
    }

    fn pointer(&self) -> In<u8> {
        In::from_caller(if self.1 == 251 { std::ptr::null() } else { self.0.as_ptr() })
    }

    fn key_size(&self) -> usize {
        match self.1 {
            252 => 0,
            253 => usize::MAX,
            254 => 65_537,
            _ => self.0.len(),
        }
    }

    fn value_size(&self) -> usize {
        if self.1 == 253 { usize::MAX } else { self.0.len() }
    }
}

/// Handles by kind, including closed ones.
#[derive(Default)]
struct World {
    folder: PathBuf,
    all: [Vec<Handle>; 4],
}

const DB: usize = 0;
const FAMILY: usize = 1;
const TXN: usize = 2;
const ITER: usize = 3;

impl World {
    fn pick(&self, kind: usize, feed: &mut Feed<'_>) -> Handle {
        let choice = feed.byte();
        let from = |handles: &[Handle], n: usize| handles.get(n % handles.len().max(1)).copied();
        let found = match choice {
            0..230 => from(&self.all[kind], self.all[kind].len().wrapping_sub(usize::from(choice % 4))),
            230..245 => from(&self.all[usize::from(feed.byte()) % 4], feed.byte().into()),
            245..250 => Some(Handle::invented(feed.number() as usize)),
            _ => None,
        };
        found.unwrap_or(Handle::NULL)
    }

    fn keep(&mut self, kind: usize, handle: Handle) {
        if handle != Handle::NULL {
            self.all[kind].push(handle);
        }
    }

    fn path(&self, feed: &mut Feed<'_>) -> Option<Vec<u8>> {
        let name = format!("{}/d{}", self.folder.display(), feed.byte() % 3);
        let mut path = name.into_bytes();
        match feed.byte() {
            250 => return Some(vec![0]),
            251 => path.extend([b'x'; 5000]),
            252 => path.extend([0xff, 0xfe]),
            _ => {}
        }
        path.push(0);
        Some(path)
    }
}

fn config(feed: &mut Feed<'_>, path: In<c_char>) -> Config {
    let mut config = Config { db_path: path.pointer(), log_level: 99, ..Config::default() };
    let fields = feed.byte();
    if fields & 1 != 0 {
        config.num_flush_threads = feed.int().clamp(-2, 3);
        config.num_compaction_threads = feed.int().clamp(-2, 3);
        config.log_level = feed.int();
        config.log_to_file = feed.int();
        config.log_truncation_at = feed.number() as usize;
    }
    if fields & 2 != 0 {
        config.block_cache_size = feed.number() as usize;
        config.max_open_sstables = feed.number() as usize;
        config.max_memory_usage = feed.number() as usize;
    }
    if fields & 4 != 0 {
        config.unified_memtable = feed.int();
        config.unified_memtable_sync_mode = feed.int();
        config.unified_memtable_skip_list_probability = f32::from_bits(feed.number() as u32);
        config.max_concurrent_flushes = feed.int();
        config.finish_compactions_on_close = feed.int();
    }
    config
}

fn family_config(feed: &mut Feed<'_>) -> FamilyConfig {
    let mut c = FamilyConfig { min_disk_space: 0, ..FamilyConfig::default() };
    let fields = feed.byte();
    if fields & 1 != 0 {
        c.write_buffer_size = feed.number() as usize;
        c.klog_value_threshold = feed.number() as usize;
        c.compression_algorithm = feed.int();
        c.bloom_fpr = f64::from_bits(feed.number());
    }
    if fields & 2 != 0 {
        c.sync_mode = feed.int();
        c.sync_interval_us = feed.number();
        c.default_isolation_level = feed.int();
        c.l1_file_count_trigger = feed.int();
        c.min_disk_space = feed.number();
    }
    if fields & 4 != 0 {
        for array in [&mut c.name[..], &mut c.comparator_name, &mut c.comparator_ctx_str] {
            let bytes = feed.bytes();
            let long = bytes.len() > 30;
            for (i, to) in array.iter_mut().enumerate() {
                let byte = bytes.get(i % bytes.len().max(1)).copied().unwrap_or(0);
                *to = if long || i < bytes.len() { byte as c_char } else { 0 };
            }
        }
    }
    c
}

/// Number of kinds of calls.
const CALLS: u8 = 36;

/// Runs a program of calls and closes everything it opened.
pub fn arguments(data: &[u8]) {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let n = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tidesdb-fuzz-{}-{n}", std::process::id()));
    if std::fs::create_dir_all(&folder).is_err() {
        return;
    }
    let mut world = World { folder: folder.clone(), ..World::default() };
    let mut feed = Feed { data };
    for _ in 0..CALLS_MAX {
        if feed.data.is_empty() {
            break;
        }
        let call = feed.byte() % CALLS;
        make_call(call, &mut world, &mut feed);
        let _ = tidesdb_last_error();
    }
    world.all[ITER].iter().for_each(|iter| tidesdb_iter_free(*iter));
    world.all[TXN].iter().for_each(|txn| tidesdb_txn_free(*txn));
    for db in &world.all[DB] {
        let _ = tidesdb_close(*db);
    }
    remove(&folder);
}

fn remove(folder: &Path) {
    if let Err(e) = std::fs::remove_dir_all(folder) {
        eprintln!("{}: {e}", folder.display());
    }
}

fn make_call(call: u8, world: &mut World, feed: &mut Feed<'_>) {
    match call {
        0..8 => databases(call, world, feed),
        8..17 => transactions(call, world, feed),
        17..25 => iterators(call, world, feed),
        _ => families(call, world, feed),
    }
}

fn databases(call: u8, world: &mut World, feed: &mut Feed<'_>) {
    let mut handle = Handle::NULL;
    if call == 0 {
        // More databases would only take time.
        if world.all[DB].len() < 3 {
            let path = world.path(feed);
            let config = config(feed, text(&path));
            let out = if feed.byte() == 255 { Out::none() } else { Out::to(&mut handle) };
            let _ = tidesdb_open(In::from_caller(&config), out);
            world.keep(DB, handle);
        }
        return;
    }
    let db = world.pick(DB, feed);
    match call {
        1 => {
            let (name, config) = (feed.text(), family_config(feed));
            let config = if feed.byte() == 255 { std::ptr::null() } else { &raw const config };
            let _ = tidesdb_create_column_family(db, text(&name), In::from_caller(config));
            let family = tidesdb_get_column_family(db, text(&name));
            world.keep(FAMILY, family);
        }
        2 => {
            let name = feed.text();
            let _ = tidesdb_create_column_family(db, text(&name), In::from_caller(&FamilyConfig::default()));
            world.keep(FAMILY, tidesdb_get_column_family(db, text(&name)));
        }
        3 => drop(tidesdb_drop_column_family(db, text(&feed.text()))),
        4 => {
            let (old, new) = (feed.text(), feed.text());
            let _ = tidesdb_rename_column_family(db, text(&old), text(&new));
        }
        5 => {
            let (old, new) = (feed.text(), feed.text());
            let _ = tidesdb_clone_column_family(db, text(&old), text(&new));
        }
        6 => {
            let path = world.path(feed);
            let _ = tidesdb_checkpoint(db, text(&path));
            let _ = tidesdb_backup(db, text(&world.path(feed)));
        }
        _ => {
            let _ = tidesdb_register_comparator(
                db,
                text(&feed.text()),
                Some(tidesdb_comparator_reverse_memcmp),
                text(&feed.text()),
                std::ptr::null_mut(),
            );
        }
    }
}

fn transactions(call: u8, world: &mut World, feed: &mut Feed<'_>) {
    let mut handle = Handle::NULL;
    if call == 8 {
        let _ = tidesdb_txn_begin_with_isolation(
            world.pick(DB, feed),
            c_int::from(feed.byte() % 7),
            Out::to(&mut handle),
        );
        return world.keep(TXN, handle);
    }
    let txn = world.pick(TXN, feed);
    let family = world.pick(FAMILY, feed);
    match call {
        9 => {
            let (key, value) = (Span::of(feed), Span::of(feed));
            let ttl = feed.number() as i64;
            let (at, size) = (key.pointer(), key.key_size());
            let _ = tidesdb_txn_put(txn, family, at, size, value.pointer(), value.value_size(), ttl);
        }
        10 => {
            let key = Span::of(feed);
            let _ = tidesdb_txn_delete(txn, family, key.pointer(), key.key_size());
            let _ = tidesdb_txn_single_delete(txn, family, key.pointer(), key.key_size());
        }
        11 => {
            let key = Span::of(feed);
            let (mut value, mut size) = (std::ptr::null_mut(), 0);
            let out = if feed.byte() == 255 { Out::none() } else { Out::to(&mut value) };
            if tidesdb_txn_get(txn, family, key.pointer(), key.key_size(), out, Out::to(&mut size)) == 0 {
                tidesdb_free(value.cast());
            }
            let _ = tidesdb_txn_contains(txn, family, key.pointer(), key.key_size());
        }
        12 => drop(tidesdb_txn_commit(txn)),
        13 => drop(tidesdb_txn_rollback(txn)),
        14 => drop(tidesdb_txn_reset(txn, feed.int())),
        15 => {
            let name = feed.text();
            let _ = tidesdb_txn_savepoint(txn, text(&name));
            let _ = tidesdb_txn_rollback_to_savepoint(txn, text(&feed.text()));
            let _ = tidesdb_txn_release_savepoint(txn, text(&name));
        }
        _ => tidesdb_txn_free(txn),
    }
}

fn iterators(call: u8, world: &mut World, feed: &mut Feed<'_>) {
    let mut handle = Handle::NULL;
    if call == 17 {
        let (txn, family) = (world.pick(TXN, feed), world.pick(FAMILY, feed));
        let _ = tidesdb_iter_new(txn, family, Out::to(&mut handle));
        return world.keep(ITER, handle);
    }
    let iter = world.pick(ITER, feed);
    let key = if matches!(call, 20 | 21) { Span::of(feed) } else { Span(Vec::new(), 0) };
    match call {
        18 => drop(tidesdb_iter_seek_to_first(iter)),
        19 => (0..feed.byte() % 20).for_each(|_| {
            let _ = tidesdb_iter_next(iter);
        }),
        20 => drop(tidesdb_iter_seek(iter, key.pointer(), key.key_size())),
        21 => drop(tidesdb_iter_seek_for_prev(iter, key.pointer(), key.key_size())),
        22 => drop(tidesdb_iter_seek_to_last(iter)),
        23 => drop(tidesdb_iter_prev(iter)),
        _ => return tidesdb_iter_free(iter),
    }
    let (mut at, mut size) = (std::ptr::null(), 0);
    let _ = tidesdb_iter_valid(iter);
    let _ = tidesdb_iter_key(iter, Out::to(&mut at), Out::to(&mut size));
    let out = if feed.byte() == 255 { Out::none() } else { Out::to(&mut at) };
    let _ = tidesdb_iter_value(iter, out, Out::to(&mut size));
}

fn families(call: u8, world: &mut World, feed: &mut Feed<'_>) {
    let family = world.pick(FAMILY, feed);
    match call {
        25 => drop(tidesdb_flush_memtable(family)),
        26 => drop(tidesdb_compact(family)),
        27 => {
            let (a, b) = (Span::of(feed), Span::of(feed));
            let _ = tidesdb_compact_range(family, a.pointer(), a.key_size(), b.pointer(), b.key_size());
        }
        28 => {
            let (a, b) = (Span::of(feed), Span::of(feed));
            let mut cost = 0.0;
            let (at, size) = (a.pointer(), a.key_size());
            let _ = tidesdb_range_cost(family, at, size, b.pointer(), b.key_size(), Out::to(&mut cost));
        }
        29 => {
            let mut stats: *mut FamilyStats = std::ptr::null_mut();
            if tidesdb_get_stats(family, Out::to(&mut stats)) == 0 {
                tidesdb_free_stats(Out::to(stats));
            }
        }
        30 => drop(tidesdb_sync_wal(family)),
        31 => {
            let config = family_config(feed);
            let _ = tidesdb_cf_update_runtime_config(family, In::from_caller(&config), feed.int());
        }
        32 => {
            let (file, section, config) = (world.path(feed), feed.text(), family_config(feed));
            let _ = tidesdb_cf_config_save_to_ini(text(&file), text(&section), In::from_caller(&config));
            let mut back = FamilyConfig::default();
            let _ = tidesdb_cf_config_load_from_ini(text(&file), text(&section), Out::to(&mut back));
        }
        33 => drop(tidesdb_delete_column_family(world.pick(DB, feed), family)),
        34 => {
            let mut keys = 0;
            let _ = tidesdb_cf_estimate_cardinality(family, Out::to(&mut keys));
            let mut stats = CacheStats::default();
            let _ = tidesdb_get_cache_stats(world.pick(DB, feed), Out::to(&mut stats));
        }
        _ => drop(tidesdb_close(world.pick(DB, feed))),
    }
}
