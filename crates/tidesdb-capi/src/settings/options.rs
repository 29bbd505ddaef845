//! Conversion of C's settings to the engine's.

use std::ffi::c_int;
use std::time::Duration;

use tidesdb::{Comparator, Compression, FamilyOptions, SyncMode};

use crate::abi::{Config, FamilyConfig, SYNC_FULL, SYNC_INTERVAL, SYNC_NONE};
use crate::failure::{Answer, invalid};
use crate::pointer::{put_text, text_of};

/// Checks that settings are in their domains.
///
/// # Errors
/// `ERR_INVALID_ARGS`.
fn check(config: &FamilyConfig) -> Answer {
    compression(config)?;
    match config.sync_mode {
        SYNC_NONE | SYNC_FULL => {}
        SYNC_INTERVAL if config.sync_interval_us > 0 => {}
        SYNC_INTERVAL => return Err(invalid!("sync mode INTERVAL needs sync_interval_us above 0")),
        _ => return Err(invalid!("sync_mode must be NONE, FULL or INTERVAL")),
    }
    if config.enable_bloom_filter != 0 && !(config.bloom_fpr > 0.0 && config.bloom_fpr < 1.0) {
        return Err(invalid!("bloom_fpr must be above 0 and below 1"));
    }
    if !(0..=4).contains(&config.default_isolation_level) {
        return Err(invalid!("default_isolation_level must be 0 to 4"));
    }
    Ok(())
}

fn compression(config: &FamilyConfig) -> Answer<Compression> {
    let known = u8::try_from(config.compression_algorithm).ok().and_then(Compression::from_u8);
    known.ok_or(invalid!("compression_algorithm is unknown"))
}

/// Returns when commits that write to the family become durable.
pub(crate) fn sync_mode(config: &FamilyConfig) -> SyncMode {
    mode(config.sync_mode, config.sync_interval_us)
}

fn mode(number: c_int, interval_us: u64) -> SyncMode {
    match number {
        SYNC_FULL => SyncMode::Full,
        SYNC_INTERVAL => SyncMode::Interval(Duration::from_micros(interval_us)),
        _ => SyncMode::None,
    }
}

/// Returns when every commit of a database becomes durable at the latest, whatever its families ask for: the
/// sync mode of the unified memtable, if that is enabled. An interval of 0 means the default of a family.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid mode.
pub(crate) fn unified_sync_mode(config: &Config) -> Answer<SyncMode> {
    if config.unified_memtable == 0 {
        return Ok(SyncMode::None);
    }
    if !(SYNC_NONE..=SYNC_INTERVAL).contains(&config.unified_memtable_sync_mode) {
        return Err(invalid!("unified_memtable_sync_mode must be NONE, FULL or INTERVAL"));
    }
    let interval = match config.unified_memtable_sync_interval_us {
        0 => FamilyConfig::default().sync_interval_us,
        n => n,
    };
    Ok(mode(config.unified_memtable_sync_mode, interval))
}

/// Returns the bytes that the memtables of all families may take together, if the unified memtable is enabled; else 0, which is no limit. A
/// size of 0 means the default size of the memtable of a family.
pub(crate) fn unified_bytes(config: &Config) -> u64 {
    match config.unified_memtable_write_buffer_size {
        _ if config.unified_memtable == 0 => 0,
        0 => FamilyOptions::default().write_buffer_bytes as u64,
        n => n as u64,
    }
}

/// Returns the engine's settings of a family. Settings without a C field come from `base`. A size of 0 means
/// the default.
///
/// # Errors
/// Errors of [`check`].
pub(crate) fn options(config: &FamilyConfig, base: FamilyOptions) -> Answer<FamilyOptions> {
    check(config)?;
    let defaults = FamilyOptions::default();
    let buffer = match config.write_buffer_size {
        0 => defaults.write_buffer_bytes,
        n => n,
    };
    let mut options = base
        .write_buffer_bytes(buffer.max(4096))
        .value_threshold(config.klog_value_threshold.max(1))
        .compression(compression(config)?)
        .filter_bits_per_key(filter_bits(config));
    options.l1_tables_trigger = match config.l1_file_count_trigger {
        n @ 1.. => n.unsigned_abs() as usize,
        _ => defaults.l1_tables_trigger,
    };
    options.level_size_ratio = match config.level_size_ratio {
        0 => defaults.level_size_ratio,
        n => (n as u64).min(LEVEL_SIZE_RATIO_MAX),
    };
    options.min_levels = levels(config.min_levels);
    options.dividing_level_offset = levels(config.dividing_level_offset);
    // A density above 0 becomes at least a thousandth, because 0 switches the setting off.
    let density = config.tombstone_density_trigger.clamp(0.0, 1.0) * 1000.0;
    options.tombstone_density_permille = if density > 0.0 { (density.round() as u32).max(1) } else { 0 };
    options.tombstone_density_min_entries = config.tombstone_density_min_entries;
    Ok(options)
}

/// Largest size ratio that the engine takes.
const LEVEL_SIZE_RATIO_MAX: u64 = 1 << 20;
/// Maximum number of levels of a tree.
const LEVELS_MAX: u32 = 64;

/// A number of levels; a negative one is treated as 0.
fn levels(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0).min(LEVELS_MAX)
}

/// Returns the bits per key for a false positive rate p: log2(1/p) / ln 2, as in Bloom's paper of 1970.
fn filter_bits(config: &FamilyConfig) -> u32 {
    if config.enable_bloom_filter == 0 {
        return 0;
    }
    (-config.bloom_fpr.log2() / std::f64::consts::LN_2).ceil().clamp(1.0, 32.0) as u32
}

/// C's names of the built-in comparators.
pub(crate) const BUILT_IN: [&str; 6] =
    ["memcmp", "lexicographic", "uint64", "int64", "reverse", "case_insensitive"];

/// Returns the engine's comparator for one of C's built-in names.
pub(crate) fn engine_order(name: &str) -> Option<Comparator> {
    match name {
        "" | "memcmp" => Some(Comparator::bytewise()),
        "lexicographic" => Some(Comparator::c_string()),
        "uint64" => Some(Comparator::u64_le()),
        "int64" => Some(Comparator::i64_le()),
        "reverse" => Some(Comparator::reverse_bytewise()),
        "case_insensitive" => Some(Comparator::case_insensitive()),
        _ => None,
    }
}

/// Returns the settings of a family that C did not create, as far as the engine's options determine them.
pub(crate) fn of_engine(options: &FamilyOptions) -> FamilyConfig {
    let mut config = FamilyConfig {
        write_buffer_size: options.write_buffer_bytes,
        klog_value_threshold: options.value_threshold,
        compression_algorithm: c_int::from(options.compression as u8),
        enable_bloom_filter: c_int::from(options.filter_bits_per_key > 0),
        l1_file_count_trigger: c_int::try_from(options.l1_tables_trigger).unwrap_or(c_int::MAX),
        level_size_ratio: options.level_size_ratio as usize,
        min_levels: c_int::try_from(options.min_levels).unwrap_or(c_int::MAX),
        dividing_level_offset: c_int::try_from(options.dividing_level_offset).unwrap_or(c_int::MAX),
        tombstone_density_trigger: f64::from(options.tombstone_density_permille) / 1000.0,
        tombstone_density_min_entries: options.tombstone_density_min_entries,
        ..FamilyConfig::default()
    };
    put_text(&mut config.comparator_name, c_name(options.comparator.name()));
    config
}

/// Sets the comparator name in `config` to that of the family. Settings stored by an older version may name
/// another one, because its text format could not hold every name.
pub(crate) fn correct_order(config: &mut FamilyConfig, options: &FamilyOptions) {
    let name = text_of(&config.comparator_name).unwrap_or_default();
    let named = engine_order(&name).map_or_else(|| engine_name(&name), |order| order.name().to_owned());
    if named != options.comparator.name() {
        tracing::warn!(
            named,
            order = options.comparator.name(),
            "the stored settings of a family name another comparator"
        );
        put_text(&mut config.comparator_name, c_name(options.comparator.name()));
    }
}

/// Prefix of the names of user-defined comparators in the engine, which has its own names for the built-in
/// ones.
const USERS: &str = "c:";

/// Returns the engine's name of a user-defined comparator.
pub(crate) fn engine_name(name: &str) -> String {
    format!("{USERS}{name}")
}

/// Returns C's name of one of the engine's comparators.
pub(crate) fn c_name(engine: &str) -> &str {
    let is = |name: &&str| engine_order(name).is_some_and(|order| order.name() == engine);
    let users = || engine.strip_prefix(USERS).unwrap_or(engine);
    BUILT_IN.iter().copied().find(is).unwrap_or_else(users)
}
