//! Rules about the disk: what fills it, and who holds it.

use std::time::Duration;

use tidesdb_io::Holder;

use super::{Evidence, Finding, HOUR_MILLIS, Severity, finding, share, size, time, worst};
use crate::family::FamilyStats;

/// Free space that lasts for less than a day at the rate of the last hour.
pub(super) fn disk_fills(seen: &Evidence<'_>) -> Option<Finding> {
    const SOON: f64 = 24.0;
    let space = seen.space?;
    (space.total > 0).then_some(())?; // some file systems of the network do not say
    let part = share(space.free as f64, space.total as f64);
    let hours = hours_left(seen, space.free);
    let is_low = part < 0.05 && space.free < 50 << 30;
    (is_low || hours.is_some_and(|hours| hours < SOON)).then_some(())?;
    let left = format!("{} of {} are free, {:.1} %", size(space.free), size(space.total), part * 100.0);
    let (linked, linked_bytes) = seen.around.linked;
    let shared = (linked > 0).then(|| {
        format!("{linked} files of {} are also in a checkpoint or another folder: their space comes back when both are gone", size(linked_bytes))
    });
    let at_rate = hours
        .filter(|hours| *hours < SOON)
        .map(|hours| format!("at the rate of the last hour that lasts for {hours:.1} hours"));
    finding(
        (if is_low { Severity::Urgent } else { Severity::Problem }, "disk-fills"),
        "the disk is nearly full, or will be within a day",
        [left].into_iter().chain(at_rate).chain(shared).collect(),
        [
            "commits that store data are refused at disk_free_min; merges stop before",
            "free space, delete rows, or grow the disk: docs/operate/disk.md. Old snapshots, cursors, checkpoints and readers hold files",
            "deletes work on a full disk, too; their space comes back by merges",
        ],
    )
}

/// The growth of an hour says what will be if it went on until then.
const RECENT_MILLIS: u64 = 300_000;

/// Hours until `free` bytes are used at the rate at which the database grew in the last hour.
fn hours_left(seen: &Evidence<'_>, free: u64) -> Option<f64> {
    let series = seen.recent("disk_bytes");
    let (first, last) = (series.first()?, series.last()?);
    // A process that has ended, or has had nothing to do for minutes, fills nothing.
    let is_over = seen.now.saturating_sub(last.0) > RECENT_MILLIS || seen.has_ended();
    (!is_over).then_some(())?;
    let hours = last.0.checked_sub(first.0)? as f64 / HOUR_MILLIS as f64;
    let bytes = last.1.saturating_sub(first.1) as f64;
    (hours > 0.05 && bytes > 0.0).then(|| free as f64 / (bytes / hours))
}

/// A snapshot or a cursor that is older hurts.
const OLD: Duration = Duration::from_secs(600);
/// One that is younger will soon be gone.
const TRANSIENT: Duration = Duration::from_secs(10);

/// A snapshot, or a transaction, that has been open for long.
pub(super) fn old_snapshot(seen: &Evidence<'_>) -> Option<Finding> {
    let age = Duration::try_from_secs_f64(seen.stats.oldest_snapshot_seconds).unwrap_or_default();
    // Of the last hour if the history says so, else since the open.
    let sum = |of: fn(&FamilyStats) -> u64| seen.stats.families.iter().map(of).fold(0, u64::saturating_add);
    let of_hour = |name, all| seen.grown(name, all).map_or(all, |(grown, _)| grown);
    let older = of_hour("older_versions", sum(|family| family.older_versions));
    let written = of_hour("entries_written", sum(|family| family.entries_written));
    let part = share(older as f64, written as f64);
    // With history_bytes, older versions are kept on purpose.
    let keeps_history = seen.setting("history_bytes").is_some();
    let keeps_much = age > TRANSIENT && older > 100_000 && part > 0.3 && !keeps_history;
    (age > OLD || keeps_much).then_some(())?;
    let kept = (older > 0).then(|| {
        format!(
            "{:.0} % of the entries that flushes and merges wrote are older versions of their keys",
            part * 100.0
        )
    });
    let open =
        format!("{} snapshots and transactions are open, the oldest for {}", seen.stats.snapshots, time(age));
    finding(
        (Severity::Problem, "old-snapshot"),
        "open snapshots or transactions keep what was overwritten and deleted",
        [open].into_iter().chain(kept).collect(),
        [
            "merges keep every version that one of them shows: disk space does not come back, and scans step over old versions",
            "find them in the program: end each snapshot, commit or drop each transaction, on its error paths too",
            "nothing",
        ],
    )
}

pub(super) fn old_cursor(seen: &Evidence<'_>) -> Option<Finding> {
    let age = Duration::try_from_secs_f64(seen.stats.oldest_cursor_seconds).unwrap_or_default();
    (age > OLD).then_some(())?;
    finding(
        (Severity::Problem, "old-cursor"),
        "a cursor or iterator has been open for long",
        vec![format!(
            "{} are open, the oldest for {}; {} snapshots",
            seen.stats.cursors,
            time(age),
            seen.stats.snapshots
        )],
        [
            "merges keep every version that it may show: disk space does not come back, and reads step over old versions",
            "find it in the program; close it, or call Cursor::refresh",
            "nothing",
        ],
    )
}

pub(super) fn garbage(seen: &Evidence<'_>) -> Option<Finding> {
    let dead = |family: &FamilyStats| {
        share(family.value_log_garbage_bytes as f64, family.value_log_file_bytes as f64)
    };
    let is_bad = |family: &FamilyStats| dead(family) > 0.6 && family.value_log_garbage_bytes > 256 << 20;
    let (family, _) = worst(seen, |family| if is_bad(family) { dead(family) } else { 0.0 })?;
    finding(
        (Severity::Problem, "garbage"),
        format!("value logs of family {:?} are mostly garbage", family.name),
        vec![format!(
            "{} of {} are overwritten or deleted values, or of rows that are not flushed yet",
            size(family.value_log_garbage_bytes),
            size(family.value_log_file_bytes)
        )],
        [
            "the collection is behind, or snapshots and cursors keep old values",
            "end old snapshots and cursors; a lower value_garbage_percent",
            "values are written again by the collection",
        ],
    )
}

pub(super) fn long_log(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.stats.wal_live_bytes > 4 << 30).then_some(())?;
    finding(
        (Severity::Advice, "long-log"),
        "an open after a crash would replay a long log",
        vec![format!("{} of log", size(seen.stats.wal_live_bytes))],
        [
            "a family that is seldom written keeps its rows in memory, and the log with them",
            "a lower wal_bytes_max, or Db::flush from time to time",
            "a few small tables",
        ],
    )
}

/// Bytes that are worth a finding if a process holds them in removed files.
const HELD_MIN: u64 = 64 << 20;

/// Space that does not come back because processes have removed files open.
pub(super) fn removed_files(seen: &Evidence<'_>) -> Option<Finding> {
    let around = seen.around;
    let holders: Vec<_> = around.holders.iter().filter(|holder| holder.bytes >= HELD_MIN).collect();
    let first = holders.first()?;
    let line = |holder: &&Holder| {
        let name = &holder.name;
        let (process, files, bytes) = (holder.process, holder.files, size(holder.bytes));
        let who = if Some(process) == seen.process { ", the one that writes," } else { "" };
        format!("process {process} ({name}){who} holds {files} removed files of {bytes}")
    };
    let hidden = (around.hidden > 0)
        .then(|| format!("{} processes of other users could not be looked at", around.hidden));
    let advice = match Some(first.process) == seen.process {
        true => [
            "a cursor, an iterator or a snapshot of the writer shows rows of files that merges have replaced",
            "find it in the program; close it, or call Cursor::refresh",
            "nothing; the space comes back at once",
        ],
        false => [
            "a reader beside the writer shows rows of files that merges have replaced, or a program copies them",
            "let it call Reader::refresh or close its views and cursors; or end it",
            "nothing; the space comes back at once",
        ],
    };
    finding(
        (Severity::Problem, "removed-files"),
        "a process holds disk space of files that were removed",
        holders.iter().map(line).chain(hidden).collect(),
        advice,
    )
}

/// Kinds of file systems that are another machine's.
const REMOTE: [&str; 9] =
    ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.s3fs"];
/// Kinds of file systems that do not outlive the machine or the container.
const FLEETING: [&str; 3] = ["tmpfs", "ramfs", "overlay"];
/// A database that is smaller, or was open for less, may be a trial.
const OF_A_TRIAL: (u64, Duration) = (256 << 20, Duration::from_secs(600));

/// A file system that is slow, or breaks the promise of a sync.
pub(super) fn mount(seen: &Evidence<'_>) -> Option<Finding> {
    let mount = seen.around.mount.as_ref()?;
    let has = |wanted: &[&str]| mount.options.iter().find(|option| wanted.contains(&option.as_str()));
    let about = |what: &str| format!("{} at {} {what}", mount.kind, mount.point.display());
    if let Some(option) = has(&["nobarrier", "barrier=0"]) {
        return finding(
            (Severity::Problem, "mount"),
            "a power failure may lose what was acknowledged as durable",
            vec![about(&format!("is mounted with {option}"))],
            [
                "the file system does not flush the cache of the device when it syncs",
                "mount it without this option, unless the device has a cache that keeps its content without power",
                "slower syncs",
            ],
        );
    }
    if let Some(option) = has(&["sync", "dirsync"]) {
        return finding(
            (Severity::Problem, "mount"),
            "the file system writes each byte at once",
            vec![about(&format!("is mounted with {option}"))],
            [
                "each write waits for the device; flushes and merges write with many",
                "mount it without this option: the database syncs what must be durable by itself",
                "nothing",
            ],
        );
    }
    if REMOTE.contains(&mount.kind.as_str()) {
        return finding(
            (Severity::Advice, "mount"),
            "the database lies on another machine",
            vec![about("belongs to another machine")],
            [
                "each read that misses the cache and each sync is a round trip, and locks of files may not work between machines",
                "put it on a local disk, and copy it with backup or an object store",
                "a copy of the data",
            ],
        );
    }
    let is_trial = seen.stats.written_bytes < OF_A_TRIAL.0 || seen.open_for < OF_A_TRIAL.1;
    (FLEETING.contains(&mount.kind.as_str()) && !is_trial && seen.stats.syncs.count > 0).then_some(())?;
    finding(
        (Severity::Advice, "mount"),
        "the database does not outlive its machine or container",
        vec![about("keeps nothing after that")],
        [
            "commits are synced, but the file system is memory, or a layer of a container",
            "put it on a volume, or set sync to none",
            "nothing",
        ],
    )
}
