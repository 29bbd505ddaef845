//! The manifest: its edits, and the state that they add up to.

use std::path::Path;
use std::sync::Arc;

use super::{keep_damage, open, shown};
use crate::codec::hex;
use crate::compact::{self, Layout, TreeStats};
use crate::ranges::RangeTombstone;
use crate::version::{self, Change, FamilyState, PlacedTable, State};
use crate::{Error, Result};

/// Shows the manifest in force of the database in `path`: every edit with its offset, then the families, tables and
/// value logs. Returns the damage; the edits before it are shown.
///
/// # Errors
/// `NotFound` if there is no database, `Io`, `FormatTooNew`.
pub fn manifest(path: impl AsRef<Path>, show: &mut dyn FnMut(&str)) -> Result<Vec<Error>> {
    let (_, dir) = open(path.as_ref())?;
    let mut damage = Vec::new();
    let read = version::inspect(&*dir, &mut |at, edit| {
        show(&format!("  @{at}"));
        edit.changes.iter().for_each(|change| show(&format!("      {}", describe(change))));
    });
    let Some((state, report)) = keep_damage(read, &mut damage)? else { return Ok(damage) };
    show(&format!("{}: {} records in {} bytes", report.file, report.records, report.bytes));
    show(&format!("  closed cleanly: {}", if report.clean { "yes" } else { "no" }));
    if report.torn_bytes > 0 {
        show(&format!("  {} bytes of an unfinished edit", report.torn_bytes));
    }
    if report.unmarked_record || report.half_marked {
        show("  the writer stopped while it made the last edit durable");
    }
    if report.repaired_mark {
        show("  one copy of a mark is damaged; the other copy was used");
    }
    show_state(&state, show);
    Ok(damage)
}

/// Returns the tree of each family as the manifest in force records it, without opening the database. Also works while another
/// process writes the database, and if the order of a family's keys is not known.
///
/// # Errors
/// `NotFound` if there is no database, `Corrupt`, `Io`, `FormatTooNew`.
pub fn trees(path: impl AsRef<Path>) -> Result<Vec<TreeStats>> {
    of_families(path.as_ref(), compact::stored_tree)
}

/// Returns the tree of each family with its tables, as [`trees`] does: all of one moment. The keys of all tables are copied.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// db.put("whale", "blue")?;
/// db.put("zebra", "striped")?;
/// db.flush()?;
/// for layout in tidesdb::inspect::layouts(dir.path())? {
///     for table in &layout.tables {
///         println!("level {}, run {}: {} bytes", table.level, table.run, table.bytes);
///         assert_eq!((&*table.first_key, &*table.last_key), (&b"whale"[..], &b"zebra"[..]));
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`trees`].
pub fn layouts(path: impl AsRef<Path>) -> Result<Vec<Layout>> {
    of_families(path.as_ref(), compact::stored_layout)
}

fn of_families<R>(path: &Path, look: impl FnMut(&Arc<FamilyState>) -> Result<R>) -> Result<Vec<R>> {
    let (_, dir) = open(path)?;
    let manifest = version::ManifestTail::open(&*dir)?;
    manifest.state().families.values().map(look).collect()
}

fn show_state(state: &State, show: &mut dyn FnMut(&str)) {
    show(&format!("state: log from segment {}, durable below {}", state.log_start.0, state.durable_mark));
    for family in state.families.values() {
        let (id, name) = (family.id.0, &family.name);
        let (compression, order) = (family.options.compression.name(), family.options.comparator.name());
        show(&format!("  family {id} {name:?}: {compression}, {order}, flushed to {}", family.flushed_to));
        for PlacedTable { level, generation, meta } in family.tables.iter() {
            let (low, high) = (shown(&meta.smallest), shown(&meta.largest));
            let (table, entries, bytes) = (meta.id.0, meta.entries, meta.file_bytes);
            show(&format!(
                "    table {table:06} level {level}, generation {generation}, {entries} entries, {bytes} bytes, {low} .. {high}"
            ));
        }
        family.ranges.values().for_each(|range| show(&format!("    {}", shown_range(range))));
        for (vlog, info) in &family.vlogs {
            let state = if info.sealed_at.is_some() { "sealed" } else { "open" };
            let (bytes, live) = (info.bytes, info.live_bytes);
            show(&format!("    value log {:06} {state}, {bytes} bytes, {live} live", vlog.0));
        }
    }
}

fn describe(change: &Change) -> String {
    let what = match change {
        Change::CreateFamily { name, .. } => format!("create {name:?}"),
        Change::DropFamily { .. } => "drop".to_owned(),
        Change::RenameFamily { name, .. } => format!("rename to {name:?}"),
        Change::SetOptions { .. } => "set options".to_owned(),
        Change::AddTable { level, generation, meta, .. } => format!(
            "add table {:06} in level {level}, generation {generation}: {} entries, {} bytes, salt {}",
            meta.id.0,
            meta.entries,
            meta.file_bytes,
            hex(&meta.salt)
        ),
        Change::RemoveTable { level, table, .. } => format!("remove table {:06} from level {level}", table.0),
        Change::AddVlog { vlog, .. } => format!("add value log {:06}", vlog.0),
        Change::SealVlog { vlog, bytes, sealed_at, .. } => {
            format!("seal value log {:06} at {bytes} bytes, seqno {sealed_at}", vlog.0)
        }
        Change::RemoveVlog { vlog, .. } => format!("remove value log {:06}", vlog.0),
        Change::NextIds { table, vlog, family } => {
            format!("next numbers: table {}, value log {}, family {}", table.0, vlog.0, family.0)
        }
        Change::LogStart { wal } => format!("log begins at segment {}", wal.0),
        Change::FlushedTo { seq, .. } => format!("flushed to {seq}"),
        Change::AddRange { range, .. } => format!("add {}", shown_range(range)),
        Change::RemoveRange { seq, .. } => format!("remove range tombstone {seq}"),
        Change::LastSeq { seq } => format!("last seqno {seq}"),
        Change::DurableMark { seq } => format!("durable below {seq}"),
        Change::ClockMark { wall_secs } => format!("clock {wall_secs}"),
        Change::CleanShutdown => "closed cleanly".to_owned(),
        Change::LogTakesTables => "the log may take tables".to_owned(),
        Change::Unknown { tag, .. } => format!("a change of a newer version, tag {tag}"),
    };
    match change.family() {
        Some(family) => format!("family {}: {what}", family.0),
        None => what,
    }
}

fn shown_range(range: &RangeTombstone) -> String {
    let border = |key: &Option<Box<[u8]>>| key.as_ref().map_or_else(|| "no end".to_owned(), |key| shown(key));
    format!("range tombstone {}, {} .. {}", range.seq, border(&range.start), border(&range.end))
}
