//! The settings that differ from their defaults, as text: what a reader of figures needs to know of them.

use super::{DbOptions, FamilyOptions, SyncMode};
use crate::stats;

/// A setting that differs from its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedSetting {
    /// The family, empty for a setting of the database.
    pub family: String,
    /// Its name, as in [`DbOptions`] or [`FamilyOptions`].
    pub name: String,
    /// Its value: a number in the unit of the setting, or a word.
    pub value: String,
}

impl ChangedSetting {
    pub(crate) fn new(family: &str, name: &str, value: String) -> Self {
        Self { family: family.to_owned(), name: name.to_owned(), value }
    }
}

impl DbOptions {
    /// Returns the settings that differ from their defaults. Those that only say how to open are not among them, and
    /// not `memory_limit`, whose default depends on the machine: [`Stats::memory_limit_bytes`](crate::Stats::memory_limit_bytes).
    pub(crate) fn changed(&self) -> Vec<ChangedSetting> {
        fn or_none<T: ToString>(value: Option<T>) -> String {
            value.map_or_else(|| "none".to_owned(), |value| value.to_string())
        }
        let words = |options: &Self| {
            let sync = match options.sync {
                SyncMode::None => "none".to_owned(),
                SyncMode::Full => "full".to_owned(),
                SyncMode::Interval(every) => format!("interval {}", stats::time(every.as_secs_f64())),
            };
            [
                ("sync", sync),
                ("cache_bytes", options.cache_bytes.to_string()),
                ("memtables_bytes_max", options.memtables_bytes_max.to_string()),
                ("active_memtables_bytes_max", options.active_memtables_bytes_max.to_string()),
                ("wal_bytes_max", options.wal_bytes_max.to_string()),
                ("wal_segment_bytes", options.wal_segment_bytes.to_string()),
                ("background_threads", or_none(options.background_threads)),
                ("compaction_bytes_per_second", options.compaction_bytes_per_second.to_string()),
                ("disk_free_min", options.disk_free_min.to_string()),
                ("disk_reserve_bytes", or_none(options.disk_reserve_bytes)),
                ("history_bytes", options.history_bytes.to_string()),
                ("mmap_wal", options.mmap_wal.to_string()),
                ("slow_sync", stats::time(options.slow_sync.as_secs_f64())),
                (
                    "slow_operation",
                    or_none(options.slow_operation.map(|time| stats::time(time.as_secs_f64()))),
                ),
                ("remote", or_none(options.remote.as_ref().map(|_| "an object store"))),
            ]
        };
        let changed =
            words(self).into_iter().zip(words(&Self::default())).filter(|(now, default)| now != default);
        changed.map(|((name, value), _)| ChangedSetting::new("", name, value)).collect()
    }
}

impl FamilyOptions {
    /// Returns the settings of the family `name` that differ from their defaults, key order and merge operator apart.
    pub(crate) fn changed(&self, family: &str) -> Vec<ChangedSetting> {
        let values = Self::TABLE.iter().filter_map(|info| Some((info, self.get(info.name)?)));
        let changed = values.filter(|(info, value)| *value != info.default);
        changed.map(|(info, value)| ChangedSetting::new(family, info.name, value.to_string())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_from_its_default_is_named() {
        assert_eq!(DbOptions::default().changed(), []);
        assert_eq!(FamilyOptions::default().changed("films"), []);
        let options = DbOptions {
            sync: SyncMode::Interval(std::time::Duration::from_millis(50)),
            background_threads: Some(3),
            ..DbOptions::default()
        };
        let said: Vec<_> = options.changed().into_iter().map(|one| (one.name, one.value)).collect();
        let wanted = [("sync", "interval 50.00 ms"), ("background_threads", "3")];
        assert_eq!(said, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let changed = FamilyOptions::default().filter_bits_per_key(0).changed("films");
        assert_eq!(changed, [ChangedSetting::new("films", "filter_bits_per_key", "0".to_owned())]);
    }
}
