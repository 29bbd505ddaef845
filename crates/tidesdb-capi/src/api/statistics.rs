//! Statistics of a family, a database and the cache; the estimated cost of a range.

use std::ffi::c_int;
use std::ops::Bound;
use std::ptr::null;

use tidesdb::{MachineMemory, StatInfo, StatValue};

use crate::abi::{CacheStats, Code, DbStats, FamilyStats};
use crate::callback;
use crate::failure::{Answer, answer};
use crate::handle::Handle;
use crate::memory;
use crate::pointer::{In, Out};
use crate::state::{self, Database, Family, SETTINGS_FAMILY};

/// Relative costs: reading one compressed or plain block, an entry, a table, an entry of a memtable. A memtable costs its entries only:
/// query planners compare the cost of a small table that was never flushed with the cost of their index reads.
const BLOCK_COMPRESSED: f64 = 1.5;
const BLOCK_PLAIN: f64 = 1.0;
const ENTRY: f64 = 0.01;
const TABLE: f64 = 0.5;
const MEMTABLE_ENTRY: f64 = 0.001;

/// The cache takes no locks, so it is not divided.
const CACHE_PARTITIONS: usize = 1;

/// Sets fields of a C struct to the figures that the table of the engine names for them; a field with several sources gets their sum.
macro_rules! set_from_table {
    ($shown:ident from $sources:expr; $($field:ident)*) => {
        $($shown.$field = $sources.map(|of| number(of.figures(), stringify!($field))).sum::<u64>() as _;)*
    };
}

/// The number that the field `field` of a C struct shows.
fn number(mut figures: impl Iterator<Item = (&'static StatInfo, StatValue)>, field: &str) -> u64 {
    match figures.find(|(info, _)| info.c == Some(field)) {
        Some((_, StatValue::Number(n))) => n,
        _ => unreachable!("no table names a number for {field}"),
    }
}

/// Returns `a / b`, or 0 if `b` is 0.
fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

fn int(n: impl TryInto<c_int>) -> c_int {
    n.try_into().unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_get_stats(cf: Handle, stats: Out<*mut FamilyStats>) -> Code {
    answer(|| {
        stats.check()?;
        callback::not_in_order()?; // the figures are behind locks of merges
        let family = state::family(cf)?;
        let database = family.database()?;
        let of = family.engine().stats();
        let mut shown = figures(&database, &family, &of)?;
        let made = fill_arrays(&family, &of, &mut shown).and_then(|()| memory::copy_all(&[shown]));
        if made.is_err() {
            free_arrays(&shown);
        }
        stats.set(made?);
        Ok(())
    })
}

/// Bytes of all tables of a family, including their values in value logs.
fn table_bytes(of: &tidesdb::FamilyStats) -> u64 {
    of.level_bytes.iter().chain(&of.level_value_log_bytes).sum()
}

/// Fills all fields except the arrays.
fn figures(database: &Database, family: &Family, of: &tidesdb::FamilyStats) -> Answer<FamilyStats> {
    let all = database.engine()?.stats();
    let entries = of.table_entries + of.memtable_entries;
    let deeper = of.level_tables.iter().skip(1).filter(|n| **n > 0).count();
    let mut shown = FamilyStats {
        // A family that was never flushed reports one level, because programs read the first entry without a
        // check.
        num_levels: int(of.level_tables.len().max(1)),
        total_keys: entries,
        total_data_size: table_bytes(of) + of.memtable_bytes,
        avg_key_size: ratio(of.key_bytes, of.table_entries),
        avg_value_size: ratio(of.value_bytes, of.table_entries),
        read_amp: (1 + of.immutables + of.level_tables.first().copied().unwrap_or(0) + deeper) as f64,
        hit_rate: all.cache_hit_share,
        use_btree: family.config().use_btree,
        tombstone_ratio: ratio(of.tombstones, of.table_entries),
        max_sst_density: of.tombstone_share_max,
        max_sst_density_level: int(of.tombstone_share_level),
        wal_bytes_written: of.user_bytes,
        ..FamilyStats::default()
    };
    set_from_table!(shown from [of].into_iter();
        memtable_size total_tombstones flush_bytes_written compaction_bytes_written compaction_bytes_read
        user_bytes_written flush_count compaction_count);
    Ok(shown)
}

/// Fills the arrays, one entry per level, and the settings.
fn fill_arrays(family: &Family, of: &tidesdb::FamilyStats, shown: &mut FamilyStats) -> Answer {
    let levels = shown.num_levels as usize;
    let exact = |list: &[u64]| (0..levels).map(|i| list.get(i).copied().unwrap_or(0)).collect::<Vec<_>>();
    let sizes = exact(&of.level_bytes).into_iter().zip(exact(&of.level_value_log_bytes));
    let sizes: Vec<usize> = sizes.map(|(tables, values)| (tables + values) as usize).collect();
    let tables: Vec<c_int> = (0..levels).map(|i| of.level_tables.get(i).map_or(0, |n| int(*n))).collect();
    shown.level_sizes = memory::copy_all(&sizes)?;
    shown.level_num_sstables = memory::copy_all(&tables)?;
    shown.level_key_counts = memory::copy_all(&exact(&of.level_entries))?;
    shown.level_tombstone_counts = memory::copy_all(&exact(&of.level_tombstones))?;
    shown.config = memory::copy_all(&[family.config()])?;
    Ok(())
}

fn free_arrays(stats: &FamilyStats) {
    memory::free(stats.level_sizes);
    memory::free(stats.level_num_sstables);
    memory::free(stats.level_key_counts);
    memory::free(stats.level_tombstone_counts);
    memory::free(stats.config);
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_free_stats(stats: Out<FamilyStats>) {
    answer(|| {
        if let Ok(shown) = stats.get() {
            free_arrays(&shown);
            memory::free(stats.address());
        }
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_get_db_stats(db: Handle, stats: Out<DbStats>) -> Code {
    answer(|| {
        stats.check()?;
        callback::not_in_order()?; // the figures are behind locks of merges
        let database = state::database(db)?;
        stats.set(totals(&database)?);
        Ok(())
    })
}

fn totals(database: &Database) -> Answer<DbStats> {
    let all = database.engine()?.stats();
    // The library's own family is not counted.
    let families = || all.families.iter().filter(|f| f.name != SETTINGS_FAMILY);
    let sum = |of: fn(&tidesdb::FamilyStats) -> u64| families().map(of).sum::<u64>();
    let memtables = sum(|f| f.memtable_bytes);
    let active = sum(|f| f.active_memtable_bytes);
    let tables: usize = families().map(|f| f.level_tables.iter().sum::<usize>()).sum();
    let immutables: usize = families().map(|f| f.immutables).sum();
    let machine = MachineMemory::now();
    // There is one log for all families. It is reported in the field for the mode that the caller asked for.
    let unified = |n: u64| if database.is_unified() { n } else { 0 };
    let mut shown = DbStats {
        num_column_families: int(database.names()?.len()),
        total_memory: machine.total,
        available_memory: machine.available,
        flush_pending_count: int(immutables),
        total_memtable_bytes: memtables as i64,
        total_immutable_count: int(immutables),
        total_sstable_count: int(tables),
        total_data_size_bytes: sum(table_bytes),
        num_open_sstables: int(tables),
        txn_memory_bytes: transaction_memory(database.transaction_bytes(), all.memory_transactions_bytes)
            as i64,
        compaction_queue_size: families().filter(|f| f.compacting).count(),
        flush_queue_size: immutables,
        unified_memtable_enabled: c_int::from(database.is_unified()),
        unified_memtable_bytes: unified(active) as i64,
        unified_immutable_count: int(unified(immutables as u64)),
        unified_is_flushing: c_int::from(unified(immutables as u64) > 0),
        unified_next_cf_index: if database.is_unified() { database.next_family()? } else { 0 },
        unified_wal_generation: unified(all.wal_segment),
        object_store_enabled: c_int::from(all.remote.is_some()),
        object_store_connector: database.connector().map_or(null(), |name| name.as_ptr()),
        uwal_bytes_written: unified(all.wal_bytes),
        wal_bytes_written: all.wal_bytes - unified(all.wal_bytes),
        ..DbStats::default()
    };
    set_from_table!(shown from [&all].into_iter(); global_seq resolved_memory_limit memory_pressure_level);
    set_from_table!(shown from all.remote.iter();
        local_cache_bytes_used local_cache_bytes_max local_cache_num_files last_uploaded_generation
        upload_queue_depth total_uploads total_upload_failures);
    set_from_table!(shown from families();
        flush_bytes_written compaction_bytes_written compaction_bytes_read user_bytes_written flush_count
        compaction_count);
    Ok(shown)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_get_cache_stats(db: Handle, stats: Out<CacheStats>) -> Code {
    answer(|| {
        stats.check()?;
        callback::not_in_order()?;
        let database = state::database(db)?;
        let all = database.engine()?.stats();
        let enabled = database.has_cache();
        let mut shown = CacheStats {
            enabled: 1,
            hit_rate: all.cache_hit_share,
            num_partitions: CACHE_PARTITIONS,
            ..CacheStats::default()
        };
        set_from_table!(shown from [&all].into_iter(); total_entries total_bytes hits misses);
        stats.set(if enabled { shown } else { CacheStats::default() });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_range_cost(
    cf: Handle,
    a: In<u8>,
    a_size: usize,
    b: In<u8>,
    b_size: usize,
    cost: Out<f64>,
) -> Code {
    answer(|| {
        cost.check()?;
        let (mut a, mut b) = (a.key(a_size)?, b.key(b_size)?);
        let family = state::family(cf)?;
        let options = family.engine().current_options();
        if options.comparator.compare(a, b).is_gt() {
            (a, b) = (b, a);
        }
        let range = family.engine().estimate_range((Bound::Included(a), Bound::Included(b)));
        let plain = options.compression == tidesdb::Compression::None;
        let block = if plain { BLOCK_PLAIN } else { BLOCK_COMPRESSED };
        cost.set(
            range.blocks as f64 * block
                + range.entries as f64 * ENTRY
                + range.tables as f64 * TABLE
                + range.memtable_entries as f64 * MEMTABLE_ENTRY,
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cf_estimate_cardinality(cf: Handle, keys: Out<u64>) -> Code {
    answer(|| {
        keys.check()?;
        keys.set(state::family(cf)?.engine().key_count_max());
        Ok(())
    })
}

/// The memory of transactions that have not ended: what they have written, or what their buffers take if that is more.
/// Buffers that ended transactions leave for later ones are not included.
fn transaction_memory(written: u64, buffers: u64) -> u64 {
    if written == 0 { 0 } else { written.max(buffers) }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use tidesdb::Isolation;

    use super::totals;
    use crate::abi::{Config, FamilyConfig};
    use crate::api::lifecycle;
    use crate::state::{DATABASES, Transaction};

    /// A test of the Go binding: 500 rows in one transaction left more than the buffer in memtables.
    #[test]
    fn the_buffer_of_the_unified_memtable_bounds_all_memtables() {
        const BUFFER: usize = 8 << 10;
        for unified in [0, 1] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = CString::new(dir.path().to_str().expect("text")).expect("a path");
            let config = Config {
                db_path: path.as_ptr(),
                unified_memtable: unified,
                unified_memtable_write_buffer_size: BUFFER,
                log_level: 99,
                ..Config::default()
            };
            let database = DATABASES.share(lifecycle::open(&config).expect("open")).expect("a database");
            for name in ["one", "two"] {
                database.create(name, &FamilyConfig::default()).expect("a family");
            }
            let (family, shared) = database.family("one").expect("the family");
            let mut transaction = Transaction::new(&database, Isolation::ReadCommitted).expect("begin");
            for i in 0..500 {
                let (key, value) = (format!("stats_key_{i}"), format!("stats_value_{i}"));
                transaction.put(family, key.as_bytes(), value.as_bytes(), -1).expect("put");
            }
            transaction.commit().expect("commit");
            let shown = totals(&database).expect("figures");
            assert_eq!((shown.num_column_families, shown.unified_memtable_enabled), (2, unified));
            let active = shared.engine().stats().active_memtable_bytes;
            if unified == 1 {
                assert!(shown.unified_memtable_bytes <= BUFFER as i64, "{}", shown.unified_memtable_bytes);
                assert!(active <= BUFFER as u64, "{active}");
            } else {
                assert!(shown.unified_memtable_bytes == 0 && active > BUFFER as u64, "{active}");
            }
            database.close().expect("close");
        }
    }
}
