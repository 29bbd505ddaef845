//! The events and their fields: one table, from which the type, the JSON, the tracing events and the documentation follow.

use std::sync::Arc;
use std::time::Duration;

use super::json::Json;

/// The target of all tracing events and spans of this module.
pub const TARGET: &str = "tidesdb::event";

/// Tables of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelPart {
    /// The level.
    pub level: u8,
    /// Number of tables.
    pub tables: u64,
    /// Bytes of the tables.
    pub bytes: u64,
}

/// Describes one kind of event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EventInfo {
    /// Its name, in the field `event` of a line.
    pub name: &'static str,
    /// When it is recorded.
    pub help: &'static str,
    /// Its fields, each with its meaning.
    pub fields: &'static [(&'static str, &'static str)],
}

macro_rules! events {
    ($(
        $name:literal $variant:ident $level:ident $help:literal {
            $($field:ident: $ty:ty, $field_help:literal;)*
        }
    )*) => {
        /// Something that happened in the background.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Event {
            $(
                #[doc = $help]
                $variant {
                    $(#[doc = $field_help] $field: $ty,)*
                },
            )*
        }

        impl Event {
            /// All kinds of events.
            pub const TABLE: &[EventInfo] = &[$(EventInfo {
                name: $name,
                help: $help,
                fields: &[$((stringify!($field), $field_help),)*],
            },)*];

            /// The name in the field `event`.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)*
                }
            }

            /// Appends `,"field":value` for each field.
            pub(super) fn fields(&self, out: &mut String) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        $(
                            out.push_str(concat!(",\"", stringify!($field), "\":"));
                            $field.json(out);
                        )*
                    })*
                }
            }

            /// Emits the event for subscribers of `tracing`.
            pub(super) fn trace(&self) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        tracing::event!(target: TARGET, tracing::Level::$level, event = $name, $($field = ?$field),*);
                    })*
                }
            }
        }
    };
}

events! {
    "open" Open INFO "The database was opened for writing." {
        seconds: Duration, "Duration of the recovery.";
        clean: bool, "True if the database had been closed and nothing was recovered.";
        log_bytes: u64, "Bytes of log that were replayed.";
        commits: u64, "Commits that were replayed.";
        operations: u64, "Operations that were replayed.";
        unfinished: u64, "Commits that were being written when the process died.";
        discarded: u64, "Complete commits behind damage that were given up.";
        orphans: u64, "Files that were set aside because the manifest does not name them.";
        sync_failed: bool, "True if a sync of the log or of values had failed before.";
        damage: String, "Damage that the recovery mode tolerated; empty if there was none.";
    }
    "replay" Replay INFO "The open has read part of a long log." {
        bytes: u64, "Bytes of commits that were replayed so far.";
        total: u64, "Bytes of the log: at most this much is replayed.";
        commits: u64, "Commits that were replayed so far.";
    }
    "recovered" Recovered INFO "Recovered commits were written to tables after the open had returned." {
        seconds: Duration, "Duration since the open returned.";
        orphans: u64, "Files that were set aside because the manifest does not name them.";
        error: String, "Why it failed; empty if it did not. Writes are refused then, and the next open recovers again.";
    }
    "close" Close INFO "The database was closed." {
        seconds: Duration, "Duration of the close, with the last flushes.";
        error: String, "Why the close failed; empty if it did not.";
    }
    "family_created" FamilyCreated INFO "A family was created. The default family of a new database has no such line." {
        family: Arc<str>, "Its name.";
        source: Arc<str>, "Name of the family of which it is a clone; empty if it is none.";
    }
    "family_renamed" FamilyRenamed INFO "A family was renamed. Earlier lines have its name before." {
        family: Arc<str>, "Its name from now on.";
        before: Arc<str>, "Its name until now.";
    }
    "family_dropped" FamilyDropped INFO "A family was dropped." {
        family: Arc<str>, "Its name.";
        levels: Vec<LevelPart>, "The tables that it had, per level: `level`, `tables`, `bytes`.";
    }
    "flush" Flush DEBUG "A memtable was written as tables of level 1." {
        family: Arc<str>, "Name of the family.";
        memtable_bytes: u64, "Bytes of the memtable.";
        entries: u64, "Entries of the memtable.";
        dropped: u64, "Entries that were dropped by a rule.";
        outputs: u64, "Number of new tables.";
        tables: Vec<u64>, "Their numbers; of more than 16 the first 16.";
        bytes: u64, "Bytes of the new tables.";
        seconds: Duration, "Duration.";
    }
    "ingest" Ingest INFO "Tables that were built outside of the database were taken." {
        family: Arc<str>, "Name of the family.";
        tables: u64, "Number of tables.";
        entries: u64, "Their entries.";
        bytes: u64, "Bytes of the tables and of their value logs.";
        seconds: Duration, "Duration, with the checks of all bytes, for all families together.";
    }
    "merge" Merge DEBUG "Tables were merged." {
        family: Arc<str>, "Name of the family.";
        kind: &'static str, "How: `Full`, `Tiered` or `Partitioned`; see compaction.md.";
        cause: String, "Why: `Level1`, `Capacity`, `Tombstones`, `Expired`, `Probes`, `Levels`, `Ranges`, `Values`, `Idle` or `Manual`.";
        inputs: Vec<LevelPart>, "Input tables per level: `level`, `tables`, `bytes`.";
        read_bytes: u64, "Bytes of all inputs.";
        target: u8, "Level of the outputs.";
        outputs: u64, "Number of new tables.";
        tables: Vec<u64>, "Their numbers; of more than 16 the first 16.";
        bytes: u64, "Bytes of the new tables.";
        entries: u64, "Entries that were read.";
        dropped: u64, "Entries that were dropped by a rule.";
        parts: u64, "Key ranges that it was divided into, so that several threads could work on it.";
        write_amp: f64, "Bytes written per byte of the inputs above the target level.";
        seconds: Duration, "Duration.";
    }
    "move" Move DEBUG "Tables changed their level and were not rewritten." {
        family: Arc<str>, "Name of the family.";
        cause: String, "Why, as in `merge`, or `Disjoint`.";
        inputs: Vec<LevelPart>, "The tables per level: `level`, `tables`, `bytes`.";
        target: u8, "Their new level.";
    }
    "drop" Drop DEBUG "Tables were dropped without being read, because no reader can see a row of them." {
        family: Arc<str>, "Name of the family.";
        cause: String, "Why: `Expired` or `Ranges`.";
        inputs: Vec<LevelPart>, "The tables per level: `level`, `tables`, `bytes`.";
    }
    "stall_begin" StallBegin WARN "Writers are being delayed. One line covers all commits until `stall_end`." {
        cause: &'static str, "Why: `memtables` (too many bytes wait for a flush), `tables` (too many tables in level 1), `memory` (memory is scarce), `values` (value logs hold much garbage), `log` (the log was not prepared), `device` (the system accepted bytes late) or `lock` (another commit held the order of commits).";
        memtable_bytes: u64, "Bytes of memtables that wait for a flush.";
        jobs: u64, "Background jobs that are queued or run.";
    }
    "stall_end" StallEnd WARN "No writer was delayed for one second." {
        cause: &'static str, "As in `stall_begin`.";
        seconds: Duration, "Time since `stall_begin`.";
        delayed: u64, "Commits that were slowed down.";
        stopped: u64, "Commits that were stopped.";
        gave_up: u64, "Commits that failed with `Busy`.";
        delay_seconds: Duration, "Total delay, summed over all threads.";
        longest: Duration, "The longest delay.";
    }
    "slow_sync" SlowSync WARN "Syncs of the log took as long as `slow_sync` or longer; at most one line per second." {
        syncs: u64, "How many since the last line.";
        longest: Duration, "The longest of them.";
    }
    "slow_operation" SlowOperation WARN "Operations of users took as long as `slow_operation` or longer; at most one line per second and kind." {
        operation: &'static str, "The kind: `get`, `multi_get`, `seek`, `put` or `commit`.";
        operations: u64, "How many since the last line.";
        longest: Duration, "The longest of them.";
    }
    "job_failed" JobFailed WARN "A background job failed; its inputs are kept." {
        job: String, "The job.";
        family: Arc<str>, "Name of the family; empty if the job has none.";
        error: String, "The error.";
        retry: Duration, "Pause before the job is tried again; 0 if the database refuses writes from now on.";
    }
    "health" Health ERROR "The health of the database changed." {
        state: &'static str, "`healthy`, `degraded` or `poisoned`; see `Db::health`.";
        causes: Vec<String>, "Why it is not healthy.";
    }
}
