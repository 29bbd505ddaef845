//! The settings of a family in force: the key order and the kind of memtable are fixed, the others may change under way.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use super::{FamilyOptions, MemtableKind};
use crate::codec::Compression;
use crate::types::Comparator;
use crate::{Error, Result};

/// Settings of an open family. Each is read on its own, and whoever needs the same one twice keeps it.
#[derive(Debug)]
pub struct LiveOptions {
    /// Order of the keys.
    pub comparator: Comparator,
    /// Which map the memtable uses.
    pub memtable: MemtableKind,
    write_buffer_bytes: AtomicUsize,
    value_threshold: AtomicUsize,
    compression: AtomicU8,
    filter_bits_per_key: AtomicU32,
    table_bytes: AtomicU64,
    l1_tables_trigger: AtomicUsize,
    vlog_file_bytes: AtomicU64,
}

impl LiveOptions {
    /// `options`, in force.
    pub fn new(options: FamilyOptions) -> Self {
        Self {
            write_buffer_bytes: options.write_buffer_bytes.into(),
            value_threshold: options.value_threshold.into(),
            compression: (options.compression as u8).into(),
            filter_bits_per_key: options.filter_bits_per_key.into(),
            table_bytes: options.table_bytes.into(),
            l1_tables_trigger: options.l1_tables_trigger.into(),
            vlog_file_bytes: options.vlog_file_bytes.into(),
            memtable: options.memtable,
            comparator: options.comparator,
        }
    }

    /// The settings now.
    pub fn now(&self) -> FamilyOptions {
        FamilyOptions {
            comparator: self.comparator.clone(),
            write_buffer_bytes: self.write_buffer_bytes(),
            value_threshold: self.value_threshold(),
            compression: self.compression(),
            filter_bits_per_key: self.filter_bits_per_key(),
            table_bytes: self.table_bytes(),
            l1_tables_trigger: self.l1_tables_trigger(),
            memtable: self.memtable,
            vlog_file_bytes: self.vlog_file_bytes.load(Relaxed),
        }
    }

    /// Whether `options` differ from these only in what may change.
    ///
    /// # Errors
    /// `InvalidArgument` if not.
    pub fn check_change(&self, options: &FamilyOptions) -> Result<()> {
        if options.comparator.name() != self.comparator.name() {
            return Err(Error::invalid("the key order of a family cannot change"));
        }
        if options.memtable != self.memtable {
            return Err(Error::invalid("the kind of memtable of a family cannot change"));
        }
        if let Some(what) = options.outside() {
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    /// Puts in force what may change of `options`.
    pub fn change(&self, options: &FamilyOptions) {
        self.write_buffer_bytes.store(options.write_buffer_bytes, Relaxed);
        self.value_threshold.store(options.value_threshold, Relaxed);
        self.compression.store(options.compression as u8, Relaxed);
        self.filter_bits_per_key.store(options.filter_bits_per_key, Relaxed);
        self.table_bytes.store(options.table_bytes, Relaxed);
        self.l1_tables_trigger.store(options.l1_tables_trigger, Relaxed);
        self.vlog_file_bytes.store(options.vlog_file_bytes, Relaxed);
    }

    /// Bytes of memtable after which it is flushed.
    #[inline]
    pub fn write_buffer_bytes(&self) -> usize {
        self.write_buffer_bytes.load(Relaxed)
    }

    /// Values of at least this many bytes go to the value log.
    #[inline]
    pub fn value_threshold(&self) -> usize {
        self.value_threshold.load(Relaxed)
    }

    /// Compression of blocks and of values in the value log.
    pub fn compression(&self) -> Compression {
        Compression::from_u8(self.compression.load(Relaxed)).unwrap_or_default()
    }

    /// Bits of filter for each key.
    pub fn filter_bits_per_key(&self) -> u32 {
        self.filter_bits_per_key.load(Relaxed)
    }

    /// Size a table of the largest level aims at, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.table_bytes.load(Relaxed)
    }

    /// Number of tables in level 1 that starts a compaction.
    #[inline]
    pub fn l1_tables_trigger(&self) -> usize {
        self.l1_tables_trigger.load(Relaxed)
    }
}
