//! The texts of explanations.

use std::fmt::{self, Display, Formatter};
use std::time::SystemTime;

use super::{
    ExplainedRangeTombstone, ExplainedSource, ExplainedVersion, Explanation, FilterAnswer, Outcome,
    RangeExplanation, ReadWork, ScannedSource, SourceName, Verdict, VersionKind,
};
use crate::sst::{ReadOrigin, ReadStep};
use crate::types::Slice;

/// `n` with the word for one or for many.
fn count(n: u64, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {many}") }
}

fn bytes(n: u64) -> String {
    count(n, "byte", "bytes")
}

/// A key in quotes, with escapes, so that it prints on one line whatever it holds.
fn quoted(key: &[u8]) -> String {
    format!("\"{}\"", key.escape_ascii())
}

/// When something expires, seen from `now`.
fn expires(at: SystemTime, now: SystemTime) -> String {
    match at.duration_since(now) {
        Ok(left) if !left.is_zero() => format!("expires in {:.1} s", left.as_secs_f64()),
        _ => {
            format!("expired {:.1} s ago", now.duration_since(at).unwrap_or_default().as_secs_f64())
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { value, .. } => write!(f, "found, a value of {}", bytes(value.len() as u64)),
            Self::NoVersion => write!(f, "not found: no source has a version that this reader sees"),
            Self::Deleted { seq } => write!(f, "not found: version {seq} deletes the key"),
            Self::DeletedByRange { seq } => {
                write!(f, "not found: range tombstone {seq} deletes the key and those around it")
            }
            Self::Expired { seq, .. } => write!(f, "not found: version {seq} has expired"),
            Self::Failed { error } => write!(f, "fails: {error}"),
        }
    }
}

impl Display for SourceName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memtable { is_active: true, .. } => write!(f, "memtable, active"),
            Self::Memtable { number, .. } => write!(f, "memtable {number}, which waits for its flush"),
            Self::Table { level, table } => write!(f, "level {level}, table {}", table.0),
            Self::Run { level, tables } => {
                write!(f, "level {level}, a run of {}", count(*tables, "table", "tables"))
            }
        }
    }
}

impl Display for ReadOrigin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "in the memory of the table",
            Self::Cache => "from the block cache",
            Self::PageCache => "read, from the page cache of the system",
            Self::Device if std::env::consts::OS == "linux" => "read from the device",
            Self::Device => "read from the file",
        })
    }
}

/// `, N bytes`, if there are any.
fn and_bytes(n: u64) -> String {
    if n == 0 { String::new() } else { format!(", {}", bytes(n)) }
}

impl Display for ReadStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memtable { has_version: true, .. } => write!(f, "searched: it has a version"),
            Self::Memtable { .. } => write!(f, "searched: no version that this reader sees"),
            Self::Table(_) => write!(f, "its range of keys contains the key"),
            Self::Filter { passes: true } => write!(f, "filter: the key may be there"),
            Self::Filter { .. } => write!(f, "filter: the key is not there"),
            Self::FilterPart { from, bytes } => write!(f, "part of the filter: {from}{}", and_bytes(*bytes)),
            Self::IndexPart { from, bytes } => write!(f, "part of the index: {from}{}", and_bytes(*bytes)),
            Self::Index { block, of } => write!(f, "index: block {block} may have it; there are {of}"),
            Self::Block { block, from, bytes } => write!(f, "block {block}: {from}{}", and_bytes(*bytes)),
            Self::Values { from, bytes } => write!(f, "values of the block: {from}{}", and_bytes(*bytes)),
            Self::Answer { found: Some(seq) } => write!(f, "found version {seq}"),
            Self::Answer { .. } => write!(f, "no version that this reader sees"),
            Self::Stored { vlog, bytes } => {
                write!(f, "value: read from value log {}{}", vlog.0, and_bytes(*bytes))
            }
        }
    }
}

impl Display for ReadWork {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} in memory", count(self.in_memory, "block", "blocks"))?;
        if self.table_reads() == 0 {
            write!(f, ", no read of a table")?;
        } else {
            let reads = count(self.table_reads(), "read", "reads");
            write!(f, ", {reads} of tables ({}", bytes(self.table_bytes))?;
            match self.from_page_cache {
                0 => write!(f, ")")?,
                n => write!(f, "; the page cache of the system had {n} of them)")?,
            }
        }
        match self.log_values {
            0 => Ok(()),
            n => write!(
                f,
                ", {} from value logs ({})",
                count(n, "value", "values"),
                bytes(self.log_value_bytes)
            ),
        }
    }
}

impl Display for ExplainedRangeTombstone {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bound = |key: &Option<Slice>, none: &str| key.as_deref().map_or(none.to_owned(), quoted);
        let (start, end) = (bound(&self.start, "the first key"), bound(&self.end, "the last key, included"));
        write!(f, "range tombstone {}: hides older versions from {start} up to {end}", self.seq)
    }
}

impl Display for VersionKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Put => "put",
            Self::PutInValueLog => "put, in a value log",
            Self::Delete => "delete",
            Self::SingleDelete => "single delete",
            Self::Operand => "operand",
        })
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shown => write!(f, "shown"),
            Self::Combined => write!(f, "combined with the others to the value that is shown"),
            Self::TooNew => write!(f, "not shown: newer than this reader"),
            Self::Deletes => write!(f, "it deletes the key"),
            Self::Expired => write!(f, "not shown: it has expired, and hides what is older"),
            Self::HiddenByRange { by } => write!(f, "not shown: range tombstone {by} hides it"),
            Self::Overwritten { by } => write!(f, "not shown: version {by} is newer"),
        }
    }
}

/// Writes the line of a version.
fn write_version(f: &mut Formatter<'_>, version: &ExplainedVersion, now: SystemTime) -> fmt::Result {
    write!(f, "    version {}: {}", version.seq, version.kind)?;
    if !matches!(version.kind, VersionKind::Delete | VersionKind::SingleDelete) {
        write!(f, ", {}", bytes(version.value_bytes))?;
    }
    if let Some(at) = version.expiry {
        write!(f, ", {}", expires(at, now))?;
    }
    writeln!(f, "; {}", version.verdict)
}

fn write_source(f: &mut Formatter<'_>, source: &ExplainedSource, now: SystemTime) -> fmt::Result {
    let ExplainedSource { name, entries, versions, .. } = source;
    writeln!(f, "{name} ({}, {})", bytes(source.bytes), count(*entries, "entry", "entries"))?;
    if !source.is_searched {
        writeln!(f, "    not looked into: the get had its answer before")?;
        match source.filter {
            FilterAnswer::None => {}
            FilterAnswer::Passed => writeln!(f, "    its filter would say: the key may be there")?,
            FilterAnswer::Excluded => writeln!(f, "    its filter would say: the key is not there")?,
        }
    }
    source.steps.iter().try_for_each(|step| writeln!(f, "    {step}"))?;
    if let Some(tombstone) = &source.range_tombstone {
        writeln!(f, "    {tombstone}")?;
    }
    if versions.is_empty() && source.filter == FilterAnswer::Passed {
        writeln!(f, "    there is no version: the filter let pass a key that the table does not have")?;
    }
    versions.iter().try_for_each(|version| write_version(f, version, now))
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "get {} at sequence number {}: {}", quoted(&self.key), self.seq, self.outcome)?;
        match &self.outcome {
            Outcome::Found { expiry: Some(at), .. } => writeln!(f, ", {}", expires(*at, self.now))?,
            _ => writeln!(f)?,
        }
        let (searched, all) = (self.sources_searched(), self.sources.len() as u64);
        writeln!(f, "looked into {searched} of {}: {}", count(all, "source", "sources"), self.work())?;
        for level in &self.levels {
            let runs = match level.level {
                1 => String::new(),
                _ => format!(" in {}", count(level.runs, "run", "runs")),
            };
            let tables = count(level.tables, "table", "tables");
            writeln!(
                f,
                "level {}: {tables}{runs}, {} with a range of keys that contains the key",
                level.level, level.covering
            )?;
        }
        if let Some(tombstone) = &self.range_tombstone {
            writeln!(f, "of all tables: {tombstone}")?;
        }
        self.sources.iter().try_for_each(|source| write_source(f, source, self.now))?;
        if self.has_more_versions {
            writeln!(f, "older versions are left out: a source has more than {}", Self::VERSIONS_MAX)?;
        }
        self.write_saving(f)?;
        match self.extra_reads {
            0 => writeln!(f, "this explanation read nothing more, and put nothing into the block cache"),
            n => writeln!(
                f,
                "to show the versions this explanation made {} ({}), and put nothing into the block cache",
                count(n, "more read", "more reads"),
                bytes(self.extra_bytes)
            ),
        }
    }
}

impl Explanation {
    fn write_saving(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (searched, dead) = (self.sources_searched(), self.dead_versions());
        if searched <= 1 && dead == 0 {
            return writeln!(f, "a merge of everything (`compact`) would save this get nothing");
        }
        writeln!(
            f,
            "after a merge of everything (`compact`) this get looks into at most 1 table, now into {}; {} of the key {}, unless a snapshot \
             needs them",
            count(searched, "source", "sources"),
            count(dead, "version", "versions"),
            if dead == 1 { "goes" } else { "go" },
        )
    }
}

/// Writes `n` with `what`, unless it is 0.
fn write_part(f: &mut Formatter<'_>, n: u64, what: &str) -> fmt::Result {
    if n > 0 { write!(f, ", {n} {what}") } else { Ok(()) }
}

impl Display for ScannedSource {
    /// One line.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, count(self.entries, "entry", "entries"))?;
        let parts = [
            (self.shown, "shown"),
            (self.operands, if self.operands == 1 { "operand" } else { "operands" }),
            (self.older, "older than another version"),
            (self.tombstones, if self.tombstones == 1 { "tombstone" } else { "tombstones" }),
            (self.expired, "expired"),
            (self.hidden_by_range, "hidden by range tombstones"),
            (self.too_new, "newer than this reader"),
        ];
        parts.iter().try_for_each(|(n, what)| write_part(f, *n, what))?;
        write!(f, "; {}", count(self.seeks, "search", "searches"))?;
        let blocks = if self.blocks_in_memory == 1 { "block in memory" } else { "blocks in memory" };
        write_part(f, self.blocks_in_memory, blocks)?;
        if self.table_reads > 0 {
            write!(f, ", {} ({})", count(self.table_reads, "read", "reads"), bytes(self.table_bytes))?;
        }
        Ok(())
    }
}

impl Display for RangeExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = count(self.keys.len() as u64, "row", "rows");
        write!(f, "scan at sequence number {}: {rows}, {}", self.seq, bytes(self.row_bytes))?;
        match (self.keys.first(), self.keys.last()) {
            (Some(first), Some(last)) => writeln!(f, ", from {} to {}", quoted(first), quoted(last))?,
            _ => writeln!(f)?,
        }
        if !self.is_complete {
            writeln!(f, "it was ended there: the range has more rows")?;
        }
        let (entries, shown) = (self.total(|s| s.entries), self.keys.len() as u64);
        writeln!(
            f,
            "merged {}, and came to {} for {rows}",
            count(self.sources.len() as u64, "source", "sources"),
            count(entries, "entry", "entries"),
        )?;
        if self.range_tombstones > 0 {
            writeln!(
                f,
                "the family has {}",
                count(self.range_tombstones, "range tombstone", "range tombstones")
            )?;
        }
        self.sources.iter().try_for_each(|source| writeln!(f, "  {source}"))?;
        if self.log_values > 0 {
            writeln!(
                f,
                "{} in value logs ({}), which this explanation does not read",
                count(self.log_values, "value is", "values are"),
                bytes(self.log_value_bytes)
            )?;
        }
        if self.failed_values > 0 {
            writeln!(
                f,
                "{} cannot be had: the merge operator fails",
                count(self.failed_values, "value", "values")
            )?;
        }
        match self.sources.len() <= 1 && entries == shown {
            true => writeln!(f, "a merge of everything (`compact`) would save this scan nothing"),
            false => writeln!(
                f,
                "after a merge of everything (`compact`) this scan reads 1 source and comes to about {}, unless a snapshot needs more",
                count(shown, "entry", "entries"),
            ),
        }
    }
}
