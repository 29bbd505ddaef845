//! `tidesdb levels`: draws the tree of a family.

use serde_json::Value;
use tidesdb::{LevelStats, TreeStats, inspect};

use crate::failure::{Exit, Failure, Outcome};
use crate::names::nearest;
use crate::output::{Out, Style, figures_json, put_bytes};
use crate::session::{Common, Place, Target, no_database};
use crate::text::{count, grouped, printable, size};

/// Width of a full bar. A level over its capacity is drawn wider, up to `BAR_MAX`.
const BAR: usize = 20;
const BAR_MAX: usize = 30;
/// Longest part of a key that is shown, in characters.
const KEY_SHOWN_MAX: usize = 20;

/// Draw the levels of a family, or of all
///
/// Reads the manifest only, takes no lock, and also works if the comparator of a family is not known or if the database is open.
/// Rows that are not flushed yet are not shown. Each level has a bar of its bytes against its capacity: the bytes above which merges move
/// rows to the next level, for level 1 those of as many memtables as start a merge, whatever the other levels hold. The capacity of the
/// largest level is the size above which the tree gets another level: in a tree of two levels half of that of level 1.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Levels {
    #[command(flatten)]
    target: Target,
    /// Column family [default: all]
    family_name: Option<String>,
}

impl Levels {
    pub(crate) fn run(&self, place: &Place, common: &Common, out: &mut Out<'_>) -> Outcome {
        let place = place.or_at(self.target.dir.as_ref());
        let path = place.path()?;
        let wanted = self.family_name.as_ref().or(common.family.as_ref());
        let mut trees = inspect::trees(path).map_err(|e| no_database(e, path))?;
        if let Some(name) = wanted {
            if !trees.iter().any(|tree| tree.family == *name) {
                let meant = nearest(name, trees.iter().map(|tree| &tree.family));
                return Err(Failure::usage(format!("family {name:?} does not exist")).meant(meant));
            }
            trees.retain(|tree| tree.family == *name);
        }
        for tree in &trees {
            if common.json {
                out.json(&tree_json(tree))?;
            } else {
                draw(tree, out)?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Draws a tree.
fn draw(tree: &TreeStats, out: &mut Out<'_>) -> Outcome<()> {
    out.line(out.paint(Style::Strong, &format!("family {:?}", tree.family)))?;
    let partitions = match tree.partitions {
        0 => String::new(),
        n => format!(", {}", count(n as u64, "partition", "partitions")),
    };
    out.line(format!(
        "{}, {}, {}{partitions}, {} to merge",
        count(tree.levels.len() as u64, "level", "levels"),
        count(tree.tables as u64, "table", "tables"),
        size(tree.bytes),
        size(tree.debt_bytes),
    ))?;
    if !tree.order_is_known {
        let order = printable(tree.order.as_bytes());
        out.line(format!(
            "the order {order} is not known here: first and last keys and runs are those in byte order"
        ))?;
    }
    let bars = tree.levels.iter().map(|level| bar(level.fill)).collect::<Vec<_>>();
    let width = bars.iter().map(|bar| bar.chars().count()).max().unwrap_or(BAR);
    out.line(format!(
        "  level {:<width$} {:>7} {:>11} {:>11} {:>5} {:>7} {:>14} {:>8}  keys",
        "", "fill", "bytes", "capacity", "runs", "tables", "entries", "deleted"
    ))?;
    for (level, bar) in tree.levels.iter().zip(bars) {
        let mark = mark(tree, level.level);
        let deleted = level.tombstones as f64 / level.entries.max(1) as f64 * 100.0;
        out.line(
            format!(
                "{mark} {:>4}  {bar:<width$} {:>6.1}% {:>11} {:>11} {:>5} {:>7} {:>14} {:>7.1}%  {}",
                level.level,
                level.fill * 100.0,
                size(level.bytes),
                size(level.capacity_bytes),
                grouped(level.runs as u64),
                grouped(level.tables as u64),
                grouped(level.entries),
                deleted,
                keys(level),
            )
            .trim_end(),
        )?;
    }
    out.line("T: tiered level, L: largest level")
}

/// Marks the tiered level and the largest level.
fn mark(tree: &TreeStats, level: usize) -> char {
    match level {
        level if level == tree.largest_level => 'L',
        level if level == tree.tiered_level => 'T',
        _ => ' ',
    }
}

/// A bar for a level that is `fill` full. The part over its capacity is drawn with `+`.
fn bar(fill: f64) -> String {
    let filled = ((fill * BAR as f64).round() as usize).max(usize::from(fill > 0.0));
    let over = filled.saturating_sub(BAR).min(BAR_MAX - BAR);
    let filled = filled.min(BAR);
    format!("[{}{}]{}", "#".repeat(filled), ".".repeat(BAR - filled), "+".repeat(over))
}

/// First and last key of a level.
fn keys(level: &LevelStats) -> String {
    let shown = |key: &[u8]| {
        let text = printable(key.get(..KEY_SHOWN_MAX * 4).unwrap_or(key));
        let is_whole = key.len() <= KEY_SHOWN_MAX * 4 && text.chars().count() <= KEY_SHOWN_MAX;
        if is_whole {
            text
        } else {
            format!("{}..", text.chars().take(KEY_SHOWN_MAX - 2).collect::<String>())
        }
    };
    if level.tables == 0 {
        String::new()
    } else {
        format!("{} .. {}", shown(&level.first_key), shown(&level.last_key))
    }
}

/// A tree as an object.
pub(crate) fn tree_json(tree: &TreeStats) -> Value {
    let level = |level: &LevelStats| {
        let mut all = figures_json(level.figures());
        put_bytes(&mut all, "first_key", &level.first_key);
        put_bytes(&mut all, "last_key", &level.last_key);
        Value::from(all)
    };
    let mut all = figures_json(tree.figures());
    all.insert("family".into(), tree.family.as_str().into());
    all.insert("order".into(), tree.order.as_str().into());
    all.insert("order_is_known".into(), tree.order_is_known.into());
    all.insert("levels".into(), tree.levels.iter().map(level).collect());
    all.into()
}

#[cfg(test)]
mod tests {
    use tidesdb::{Comparator, FamilyOptions};

    use super::super::stage::Stage;
    use super::*;

    fn run(stage: &Stage, family: Option<&str>, json: bool) -> Outcome<String> {
        let command = Levels { target: Target::default(), family_name: family.map(Into::into) };
        let place = Place { db: Some(stage.dir.path().join("db")), ..Place::default() };
        let common = Common { json, ..Common::default() };
        let mut bytes = Vec::new();
        command.run(&place, &common, &mut Out::new(&mut bytes, false))?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_levels_of_an_open_database() {
        let stage = Stage::with(&["apple", "pear"]);
        stage.db.compact().unwrap();
        stage.db.put(b"fig", b"v").unwrap();
        stage.db.delete(b"a key that is much longer than a line has room for").unwrap();
        stage.db.flush().unwrap();
        let text = run(&stage, None, false).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "family \"default\"");
        assert!(
            lines[1].starts_with("2 levels, 2 tables, ") && lines[1].ends_with(", 1 partition, 0 B to merge"),
            "{text}"
        );
        assert!(
            lines[3].starts_with("     1  [#") && lines[3].ends_with("50.0%  a key that is much.. .. fig"),
            "{text}"
        );
        assert!(lines[4].starts_with("L    2  [#") && lines[4].ends_with("apple .. pear"), "{text}");
        let json: Value = serde_json::from_str(&run(&stage, Some("default"), true).unwrap()).unwrap();
        assert_eq!(json["levels"][0]["tombstones"], 1);
        let capacity = |level: usize| json["levels"][level]["capacity_bytes"].as_u64().unwrap();
        let options = stage.db.default_family().current_options();
        let memtables = options.write_buffer_bytes as u64 * options.l1_tables_trigger as u64;
        assert_eq!((capacity(0), capacity(1)), (memtables, memtables / 2), "as the help says");
        assert_eq!(json["levels"][1]["first_key"], "apple");
        assert_eq!(run(&stage, Some("missing"), false).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_family_with_an_unknown_comparator() {
        let stage = Stage::new();
        let by_length = Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
        let options = FamilyOptions::default().comparator(by_length);
        let family = stage.db.create_family("odd", options).unwrap();
        family.put(b"zz", b"v").unwrap();
        family.put(b"aaaa", b"v").unwrap();
        stage.db.flush().unwrap();
        let text = run(&stage, Some("odd"), false).unwrap();
        assert!(text.contains("the order by-length is not known here"), "{text}");
        assert!(!text.contains("partition") && text.contains(" .. "), "{text}");
    }

    #[test]
    fn bars() {
        assert_eq!(bar(0.0), format!("[{}]", ".".repeat(20)));
        assert_eq!(bar(0.001), format!("[#{}]", ".".repeat(19)));
        assert_eq!(bar(0.5), format!("[{}{}]", "#".repeat(10), ".".repeat(10)));
        assert_eq!(bar(1.1), format!("[{}]++", "#".repeat(20)));
        assert_eq!(bar(f64::MAX).len(), 32);
    }
}
