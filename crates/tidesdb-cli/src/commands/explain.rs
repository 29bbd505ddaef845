//! `tidesdb explain`: what one read does, and why it shows what it shows.

use std::ffi::OsString;
use std::ops::Bound;
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use tidesdb::{
    ExplainedRangeTombstone, ExplainedSource, ExplainedVersion, Explanation, KeyBounds, Outcome,
    RangeExplanation, ReadStep, ReadWork, ScannedSource, SourceName, Verdict,
};

use crate::failure::{Exit, Failure, Outcome as Run};
use crate::format;
use crate::output::{Out, put_bytes};
use crate::session::Session;
use crate::text;

/// Rows that an explanation of a scan reads unless told otherwise.
const ROWS: usize = 10_000;

/// Explain what a read of a key does, or a scan: what it looks into, what it reads, and why each version is shown or not
///
/// Reads the key as `get` does, and prints each source that may have it, in the order in which a get looks into them: memtables, tables by level, with the
/// answers of filter and index, the blocks and where they came from, the versions of the key, and what a merge would save. With --scan it does the same for
/// a scan, without the values in value logs. Changes nothing, and puts nothing into the block cache.
///
/// If another process has the database open for writing, this explains the view of this command: memtables and cache of the writer are not known to it.
/// Without a writer, the commits that are in the log only are a memtable of this command. The exit code is 1 if there is no such key.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Explain {
    /// The key
    #[arg(required_unless_present = "scan", conflicts_with = "scan")]
    key: Option<OsString>,
    /// Explain a scan from key A to the last key before B; each may be left out. With --escapes, \x2e is a dot within a key
    #[arg(long, value_name = "A..B")]
    scan: Option<OsString>,
    /// Stop the scan after this many rows
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = ROWS, requires = "scan")]
    limit: usize,
}

impl Explain {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Run {
        let family = session.family()?;
        let as_json = session.common.json;
        if let Some(scan) = &self.scan {
            let explained = family.explain_range(bounds(session, scan)?, self.limit)?;
            match as_json {
                true => out.json(&with_view(range_json(&explained), session))?,
                false => print(&explained.to_string(), session, out)?,
            }
            return Ok(Exit::Done);
        }
        let key = session.bytes(self.key.as_deref().unwrap_or_default())?;
        let explained = family.explain(key)?;
        match as_json {
            true => out.json(&with_view(key_json(&explained), session))?,
            false => print(&explained.to_string(), session, out)?,
        }
        Ok(if explained.outcome.value().is_some() { Exit::Done } else { Exit::No })
    }
}

/// The bounds that `A..B` stands for.
fn bounds(session: &Session, scan: &OsString) -> Run<KeyBounds> {
    let wrong = |what: String| {
        Failure::usage(what)
            .next("write --scan A..B; A or B may be left out; with --escapes, \\x2e is a dot in a key")
    };
    let bytes =
        tidesdb_io::program::bytes_of(scan).ok_or_else(|| wrong(format!("the range {scan:?} is no text")))?;
    let dots: Vec<usize> =
        (0..bytes.len().saturating_sub(1)).filter(|at| bytes[*at..].starts_with(b"..")).collect();
    let [at] = dots[..] else {
        let range = text::printable(bytes);
        return Err(wrong(format!("the range {range:?} does not have two dots at exactly one place")));
    };
    let side = |bytes: &[u8]| -> Run<Option<Vec<u8>>> {
        let mut key = Vec::new();
        match session.common.escapes {
            true => text::unescape(bytes, &mut key)
                .map_err(|e| wrong(format!("the key {:?}: {e}", text::printable(bytes))))?,
            false => key.extend_from_slice(bytes),
        }
        Ok((!key.is_empty()).then_some(key))
    };
    let (low, high) = (side(&bytes[..at])?, side(&bytes[at + 2..])?);
    Ok((low.map_or(Bound::Unbounded, Bound::Included), high.map_or(Bound::Unbounded, Bound::Excluded)))
}

/// What the explanation does not know if another process writes.
const BESIDE: &str = "another process writes this database: this is what a read of this command does. Its memtables are what it read of the log, and its \
                      cache is new; memtables and cache of the writer are not known to it";

fn print(explained: &str, session: &Session, out: &mut Out<'_>) -> Run<()> {
    if session.beside.is_some() {
        out.line(BESIDE)?;
    }
    explained.lines().try_for_each(|line| out.line(text::plain(line)))
}

fn with_view(mut all: Map<String, Value>, session: &Session) -> Value {
    let (of, unknown) = match session.beside {
        Some(_) => ("this reader", json!(["memtables of the writer", "block cache of the writer"])),
        None => ("this process", json!([])),
    };
    all.insert("view_of".into(), of.into());
    all.insert("not_known".into(), unknown);
    all.into()
}

fn key_json(explained: &Explanation) -> Map<String, Value> {
    let mut key = Map::new();
    put_bytes(&mut key, "key", &explained.key);
    let levels = explained.levels.iter().map(|level| {
        json!({ "level": level.level, "tables": level.tables, "runs": level.runs, "covering": level.covering })
    });
    let all = json!({
        "seq": explained.seq,
        "now": millis(explained.now),
        "outcome": outcome_json(&explained.outcome),
        "sources_searched": explained.sources_searched(),
        "work": work_json(&explained.work()),
        "levels": levels.collect::<Vec<_>>(),
        "range_tombstone": explained.range_tombstone.as_ref().map(tombstone_json),
        "sources": explained.sources.iter().map(source_json).collect::<Vec<_>>(),
        "has_more_versions": explained.has_more_versions,
        "dead_versions": explained.dead_versions(),
        "extra_reads": explained.extra_reads,
        "extra_bytes": explained.extra_bytes,
    });
    key.extend(object(all));
    key
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(all) => all,
        _ => Map::new(),
    }
}

fn millis(at: SystemTime) -> u64 {
    format::millis_of(at)
}

fn outcome_json(outcome: &Outcome) -> Value {
    let mut all = object(json!({ "name": outcome.name(), "text": outcome.to_string() }));
    match outcome {
        Outcome::Found { value, expiry, .. } => {
            all.insert("value_bytes".into(), value.len().into());
            all.insert("expiry".into(), expiry.map(millis).into());
        }
        Outcome::Deleted { seq, .. } | Outcome::DeletedByRange { seq, .. } | Outcome::Expired { seq, .. } => {
            all.insert("by".into(), (*seq).into());
        }
        _ => {}
    }
    all.into()
}

fn work_json(work: &ReadWork) -> Value {
    json!({
        "in_memory": work.in_memory,
        "from_page_cache": work.from_page_cache,
        "from_device": work.from_device,
        "table_bytes": work.table_bytes,
        "log_values": work.log_values,
        "log_value_bytes": work.log_value_bytes,
    })
}

fn name_json(name: SourceName) -> Map<String, Value> {
    object(match name {
        SourceName::Memtable { number, is_active, .. } => {
            json!({ "source": "memtable", "number": number, "is_active": is_active })
        }
        SourceName::Table { level, table, .. } => {
            json!({ "source": "table", "level": level, "table": table.0 })
        }
        SourceName::Run { level, tables, .. } => json!({ "source": "run", "level": level, "tables": tables }),
        other => json!({ "source": other.to_string() }),
    })
}

fn source_json(source: &ExplainedSource) -> Value {
    let mut all = name_json(source.name);
    all.extend(object(json!({
        "bytes": source.bytes,
        "entries": source.entries,
        "is_searched": source.is_searched,
        "filter": source.filter.name(),
        "steps": source.steps.iter().map(step_json).collect::<Vec<_>>(),
        "work": work_json(&source.work()),
        "range_tombstone": source.range_tombstone.as_ref().map(tombstone_json),
        "versions": source.versions.iter().map(version_json).collect::<Vec<_>>(),
    })));
    all.into()
}

fn step_json(step: &ReadStep) -> Value {
    let text = step.to_string();
    match *step {
        ReadStep::Memtable { has_version, .. } => json!({ "step": "memtable", "has_version": has_version }),
        ReadStep::Table(table) => json!({ "step": "table", "table": table.0 }),
        ReadStep::Filter { passes, .. } => json!({ "step": "filter", "passes": passes }),
        ReadStep::FilterPart { from, bytes, .. } => {
            json!({ "step": "filter_part", "from": from.name(), "bytes": bytes })
        }
        ReadStep::IndexPart { from, bytes, .. } => {
            json!({ "step": "index_part", "from": from.name(), "bytes": bytes })
        }
        ReadStep::Index { block, of, .. } => json!({ "step": "index", "block": block, "of": of }),
        ReadStep::Block { block, from, bytes, .. } => {
            json!({ "step": "block", "block": block, "from": from.name(), "bytes": bytes })
        }
        ReadStep::Values { from, bytes, .. } => {
            json!({ "step": "values", "from": from.name(), "bytes": bytes })
        }
        ReadStep::Answer { found, .. } => json!({ "step": "answer", "found": found }),
        ReadStep::Stored { vlog, bytes, .. } => json!({ "step": "stored", "vlog": vlog.0, "bytes": bytes }),
        _ => json!({ "step": text }),
    }
}

fn tombstone_json(tombstone: &ExplainedRangeTombstone) -> Value {
    let mut all = object(json!({ "seq": tombstone.seq }));
    for (name, bound) in [("start", &tombstone.start), ("end", &tombstone.end)] {
        bound.iter().for_each(|key| put_bytes(&mut all, name, key));
    }
    all.into()
}

fn version_json(version: &ExplainedVersion) -> Value {
    let by = match version.verdict {
        Verdict::HiddenByRange { by, .. } | Verdict::Overwritten { by, .. } => Some(by),
        _ => None,
    };
    json!({
        "seq": version.seq,
        "kind": version.kind.name(),
        "value_bytes": version.value_bytes,
        "expiry": version.expiry.map(millis),
        "verdict": version.verdict.name(),
        "by": by,
    })
}

fn range_json(explained: &RangeExplanation) -> Map<String, Value> {
    let mut all = object(json!({
        "seq": explained.seq,
        "now": millis(explained.now),
        "rows": explained.keys.len(),
        "is_complete": explained.is_complete,
        "row_bytes": explained.row_bytes,
        "log_values": explained.log_values,
        "log_value_bytes": explained.log_value_bytes,
        "failed_values": explained.failed_values,
        "range_tombstones": explained.range_tombstones,
        "entries": explained.total(|source| source.entries),
        "sources": explained.sources.iter().map(scanned_json).collect::<Vec<_>>(),
    }));
    for (name, key) in [("first", explained.keys.first()), ("last", explained.keys.last())] {
        key.into_iter().for_each(|key| put_bytes(&mut all, name, key));
    }
    all
}

fn scanned_json(source: &ScannedSource) -> Value {
    let mut all = name_json(source.name);
    all.extend(object(json!({
        "seeks": source.seeks,
        "entries": source.entries,
        "shown": source.shown,
        "operands": source.operands,
        "older": source.older,
        "too_new": source.too_new,
        "tombstones": source.tombstones,
        "expired": source.expired,
        "hidden_by_range": source.hidden_by_range,
        "blocks_in_memory": source.blocks_in_memory,
        "table_reads": source.table_reads,
        "table_bytes": source.table_bytes,
    })));
    all.into()
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    fn json_of(stage: &Stage, words: &[&str]) -> Value {
        let (_, out) = stage.try_run(&[words, &["--json"]].concat(), false).unwrap();
        serde_json::from_str(&out).unwrap()
    }

    #[test]
    fn a_key_is_explained_from_the_newest_source_to_the_oldest() {
        let stage = Stage::with(&["a", "b"]);
        stage.db.flush().unwrap();
        stage.db.put("a", "newer").unwrap();
        let text = stage.run(&["explain", "a"]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("get \"a\" at sequence number "), "{text}");
        assert!(lines[0].ends_with(": found, a value of 5 bytes"), "{text}");
        assert_eq!(lines[1], "looked into 1 of 2 sources: 0 blocks in memory, no read of a table");
        let at = |part: &str| {
            lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"))
        };
        assert!(at("memtable, active") < at("put, 5 bytes; shown"), "{text}");
        assert!(at("put, 5 bytes; shown") < at("level 1, table "), "{text}");
        assert!(at("not looked into") < at("its filter would say: the key may be there"), "{text}");
        assert!(at("put, 1 byte; not shown: version ") < at("after a merge of everything"), "{text}");
        let (exit, text) = stage.try_run(&["explain", "none"], false).unwrap();
        assert_eq!(exit, Exit::No);
        assert!(text.contains("not found: no source has a version that this reader sees"), "{text}");
    }

    #[test]
    fn the_json_has_the_steps_with_their_origins() {
        let stage = Stage::with(&["a", "b"]);
        stage.db.flush().unwrap();
        let first = json_of(&stage, &["explain", "a"]);
        assert_eq!((&first["key"], &first["outcome"]["name"]), (&json!("a"), &json!("found")), "{first}");
        assert_eq!(first["view_of"], "this process");
        let table = first["sources"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&table["source"], &table["level"], &table["filter"]),
            (&json!("table"), &json!(1), &json!("passed"))
        );
        let steps: Vec<&str> =
            table["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
        assert_eq!(steps, ["table", "filter", "index", "block", "answer"]);
        assert_eq!(table["versions"][0]["verdict"], "shown");
        let gone = json_of(&stage, &["explain", "zz"]);
        assert_eq!(gone["outcome"]["name"], "no_version");
        assert_eq!(gone["levels"][0], json!({ "level": 1, "tables": 1, "runs": 1, "covering": 0 }));
    }

    #[test]
    fn a_scan_is_explained_by_source() {
        let stage = Stage::with(&["a", "b", "c", "d"]);
        stage.db.flush().unwrap();
        stage.db.delete("b").unwrap();
        let all = json_of(&stage, &["explain", "--scan", "a..d"]);
        assert_eq!(
            (&all["rows"], &all["first"], &all["last"]),
            (&json!(2), &json!("a"), &json!("c")),
            "{all}"
        );
        assert_eq!(
            (&all["sources"][0]["tombstones"], &all["sources"][1]["older"]),
            (&json!(1), &json!(1)),
            "{all}"
        );
        let text = stage.run(&["explain", "--scan", ".."]);
        assert!(text.contains(": 3 rows, ") && text.contains("from \"a\" to \"d\""), "{text}");
        let text = stage.run(&["explain", "--scan", "..", "-n", "1"]);
        assert!(text.contains("it was ended there: the range has more rows"), "{text}");
        let text = stage.run(&["explain", "-e", "--scan", "\\x62..\\x64"]);
        assert!(text.contains(": 1 row, "), "{text}");
    }

    #[test]
    fn a_range_without_its_dots_is_a_usage_error() {
        let stage = Stage::new();
        for range in ["a", "a.b", "a...b", "a..b..c", ""] {
            let failure = stage.fails(&["explain", "--scan", range]);
            assert_eq!(failure.exit, Exit::Usage, "{range}");
            assert!(failure.message().contains("two dots at exactly one place"), "{}", failure.message());
        }
    }

    #[test]
    fn hostile_keys_are_shown_with_escapes() {
        let stage = Stage::new();
        stage.db.put(b"\x1b[2Jx\n\xff", b"v").unwrap();
        let text = stage.run(&["explain", "-e", "\\x1b[2Jx\\n\\xff"]);
        assert!(text.starts_with("get \"\\x1b[2Jx\\n\\xff\" at "), "{text:?}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
