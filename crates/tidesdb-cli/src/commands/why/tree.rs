//! The tree of a family at a moment of the past: the tree that is known last, with what the event log says of each flush and merge since then
//! taken back.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tidesdb::TreeStats;

use crate::look::Look;
use crate::look::events::{Event, Events};
use crate::text::printable;

/// Tables and bytes of each level.
pub(super) type Levels = BTreeMap<u64, (i64, i64)>;

/// Returns the trees of all families at `millis`, by name.
///
/// # Errors
/// Says why they are not known.
pub(super) fn at(look: &Look, events: &Events, millis: u64) -> Result<BTreeMap<String, Levels>, String> {
    let stats = &look.figures.stats;
    if stats.events_lost > 0 {
        return Err(format!("{} events were lost", stats.events_lost));
    }
    let written = look.figures.written.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    let written = written.as_millis() as u64;
    let since = |event: &&Event| event.millis > millis && event.millis <= written;
    if millis < written && events.all.first().is_none_or(|first| first.millis > millis) {
        return Err("EVENTS does not go back so far".to_owned());
    }
    let mut past = Past {
        trees: stats.trees.iter().map(|tree| (tree.family.clone(), levels(tree))).collect(),
        left_out: look.figures.families_left_out > 0,
    };
    for event in events.all.iter().rev().filter(since) {
        past.take_back(event)?;
    }
    past.check_families(look, events, millis)?;
    let is_sound = |(tables, bytes): &(i64, i64)| *tables >= 0 && *bytes >= 0;
    match past.trees.values().flat_map(Levels::values).all(is_sound) {
        true => Ok(past.trees),
        false => Err("EVENTS lacks some of what happened since".to_owned()),
    }
}

fn levels(tree: &TreeStats) -> Levels {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let of = |level: &tidesdb::LevelStats| {
        (level.level as u64, (number(level.tables as u64), number(level.bytes)))
    };
    tree.levels.iter().map(of).collect()
}

/// Families that the history has at most in a sample: with fewer, it has all.
const RECORDED_MAX: usize = 10;

/// The trees of a moment, as far as they are taken back to it.
struct Past {
    trees: BTreeMap<String, Levels>,
    /// Some families are not known.
    left_out: bool,
}

impl Past {
    /// Checks that the families of `millis`, as far as the history recorded them, are those that were found: an older version wrote no event
    /// when one was made, dropped or renamed.
    fn check_families(&self, look: &Look, events: &Events, millis: u64) -> Result<(), String> {
        let paces = [&look.seconds, &look.minutes];
        let before = paces.into_iter().find_map(|track| Some((track, track.at_or_before(millis)?)));
        let Some((track, at)) = before else { return Ok(()) };
        let of = |at: usize| -> BTreeMap<&str, i64> {
            let all = track.values(at, "family.");
            all.filter_map(|(rest, n)| Some((rest.strip_suffix(".user_bytes")?, n))).collect()
        };
        let (then, last) = (of(at), of(track.len() - 1));
        let is_told = |event: &&Event| event.name.starts_with("family_") && event.millis > track.millis(at);
        let told = events.all.iter().filter(is_told);
        let told: BTreeSet<&str> =
            told.flat_map(|event| [event.text("family"), event.text("before")]).collect();
        let is_untold = |name: &str| !told.contains(name);
        let unknown = then.keys().find(|name| !self.trees.contains_key(**name) && is_untold(name));
        if let Some(name) = unknown.filter(|_| !self.left_out) {
            return Err(gone(name));
        }
        let has_all = !then.is_empty() && then.len() < RECORDED_MAX;
        let is_session = !(at + 1..track.len()).any(|at| track.is_break(at));
        let has_fallen =
            |name: &str| then.get(name).zip(last.get(name)).is_some_and(|(then, last)| last < then);
        let is_new = |name: &&String| {
            is_untold(name)
                && (has_all && !then.contains_key(name.as_str()) || is_session && has_fallen(name))
        };
        match self.trees.keys().find(is_new) {
            Some(name) => Err(format!("family {} was made since then", printable(name.as_bytes()))),
            None => Ok(()),
        }
    }

    /// Takes back what `event` did to the families and their trees.
    fn take_back(&mut self, event: &Event) -> Result<(), String> {
        let family = event.text("family");
        match event.name.as_str() {
            "open" if !event.is("clean") => {
                Err("a recovery since then wrote tables that EVENTS does not list".to_owned())
            }
            "flush" | "merge" | "move" | "drop" => self.take_back_tables(event),
            "family_created" => self
                .trees
                .remove(family)
                .map(drop)
                .or(self.left_out.then_some(()))
                .ok_or_else(|| gone(family)),
            "family_dropped" => {
                let levels = parts(event, "levels").map(|(level, tables, bytes)| (level, (tables, bytes)));
                match self.trees.insert(family.to_owned(), levels.collect()) {
                    None => Ok(()),
                    Some(_) => Err(format!("family {} was made since then", printable(family.as_bytes()))),
                }
            }
            "family_renamed" => {
                let before = event.text("before").to_owned();
                match self.trees.remove(family) {
                    Some(tree) => drop(self.trees.insert(before, tree)),
                    None if self.left_out => {}
                    None => return Err(gone(family)),
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_back_tables(&mut self, event: &Event) -> Result<(), String> {
        let family = event.text("family");
        let Some(tree) = self.trees.get_mut(family) else {
            return if self.left_out { Ok(()) } else { Err(gone(family)) };
        };
        let mut change = |level: u64, tables: i64, bytes: i64| {
            let (in_level, of_level) = tree.entry(level).or_default();
            *in_level = in_level.saturating_add(tables);
            *of_level = of_level.saturating_add(bytes);
        };
        let number = |field: &str| event.number(field) as i64;
        parts(event, "inputs").for_each(|(level, tables, bytes)| change(level, tables, bytes));
        let target = event.number("target") as u64;
        match event.name.as_str() {
            "flush" => change(1, number("outputs").saturating_neg(), number("bytes").saturating_neg()),
            "merge" => change(target, number("outputs").saturating_neg(), number("bytes").saturating_neg()),
            "move" => parts(event, "inputs").for_each(|(_, tables, bytes)| {
                change(target, tables.saturating_neg(), bytes.saturating_neg())
            }),
            _ => {}
        }
        Ok(())
    }
}

fn gone(family: &str) -> String {
    format!("family {} was dropped or renamed since then", printable(family.as_bytes()))
}

/// The level, the tables and the bytes of each part in a list of an event.
fn parts<'a>(event: &'a Event, field: &str) -> impl Iterator<Item = (u64, i64, i64)> + 'a {
    event.list(field).iter().map(|part| {
        let number = |field: &str| part.get(field).and_then(Value::as_f64).unwrap_or(0.0);
        (number("level") as u64, number("tables") as i64, number("bytes") as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::tests::look;
    use crate::look::track::Track;
    use crate::look::track::tests::{BASE, track};

    fn events(lines: &[&str]) -> Events {
        let mut events = Events::default();
        for line in lines {
            // Each second of the minute before the last figures.
            events.add(format!(r#"{{"time":"2026-11-30T11:59:{line}}}"#).as_bytes());
        }
        assert_eq!(events.damaged, 0);
        events
    }

    fn known(levels: &[(u64, usize, u64)]) -> Look {
        let mut look = look(Track::default());
        let tree = &mut look.figures.stats.trees[0];
        tree.levels.truncate(1);
        for (level, tables, bytes) in levels {
            let mut stats = tree.levels[0].clone();
            (stats.level, stats.tables, stats.bytes) = (*level as usize, *tables, *bytes);
            tree.levels.push(stats);
        }
        tree.levels.remove(0);
        look
    }

    const OPEN: &str = r#"01Z","at":0,"event":"open","clean":true"#;
    const FLUSH: &str = r#"10Z","at":9,"event":"flush","family":"default","outputs":2,"bytes":100"#;
    const MERGE: &str = r#"20Z","at":19,"event":"merge","family":"default","inputs":[{"level":1,"tables":5,"bytes":300},{"level":2,"tables":1,"bytes":50}],"target":2,"outputs":3,"bytes":320"#;
    const MOVE: &str = r#"30Z","at":29,"event":"move","family":"default","inputs":[{"level":1,"tables":1,"bytes":7}],"target":3"#;

    #[test]
    fn each_flush_and_merge_is_taken_back() {
        let look = known(&[(1, 0, 0), (2, 3, 320), (3, 1, 7)]);
        let events = events(&[OPEN, FLUSH, MERGE, MOVE]);
        let at = |before: u64| at(&look, &events, BASE - before * 1000).map(|trees| trees["default"].clone());
        let tree = |levels: [(u64, i64, i64); 3]| {
            Ok(levels.into_iter().map(|(level, tables, bytes)| (level, (tables, bytes))).collect::<Levels>())
        };
        assert_eq!(at(0), tree([(1, 0, 0), (2, 3, 320), (3, 1, 7)]));
        assert_eq!(at(35), tree([(1, 1, 7), (2, 3, 320), (3, 0, 0)]));
        assert_eq!(at(45), tree([(1, 6, 307), (2, 1, 50), (3, 0, 0)]));
        assert_eq!(at(55), tree([(1, 4, 207), (2, 1, 50), (3, 0, 0)]));
        assert!(at(3600).is_err_and(|why| why.contains("does not go back")));
    }

    #[test]
    fn a_tree_that_cannot_be_known_is_not_made_up() {
        let fresh = known(&[(1, 0, 0)]);
        let why = |look: &Look, lines: &[&str]| at(look, &events(lines), BASE - 55_000).unwrap_err();
        assert!(
            why(&fresh, &[OPEN, FLUSH]).contains("lacks some"),
            "it would have a negative number of tables"
        );
        let killed = r#"20Z","at":0,"event":"open","clean":false"#;
        assert!(why(&fresh, &[OPEN, killed]).contains("recovery"));
        let mut lossy = known(&[(1, 0, 0)]);
        lossy.figures.stats.events_lost = 3;
        assert!(why(&lossy, &[OPEN]).contains("3 events were lost"));
        assert!(why(&fresh, &[]).contains("does not go back"));
        let other = r#"20Z","at":19,"event":"flush","family":"be\u001bfore","outputs":1,"bytes":9"#;
        let said = why(&fresh, &[OPEN, other]);
        assert!(said.contains(r"family be\x1bfore was dropped or renamed"), "{said:?}");
        let mut many = known(&[(1, 0, 0)]);
        many.figures.families_left_out = 1;
        assert!(at(&many, &events(&[OPEN, other]), BASE - 55_000).is_ok(), "it may be one of those left out");
        let hostile = r#"20Z","at":"x","event":"merge","family":"default","inputs":{"a":[]},"target":-1e300,"outputs":1e300,"bytes":null"#;
        assert!(at(&fresh, &events(&[OPEN, hostile]), BASE - 55_000).is_err());
    }

    #[test]
    fn families_that_were_made_renamed_and_dropped_have_the_trees_of_then() {
        let mut look = known(&[(1, 1, 7)]);
        look.figures.stats.trees[0].family = "now".to_owned();
        let mut copy = look.figures.stats.trees[0].clone();
        copy.family = "copy".to_owned();
        look.figures.stats.trees.push(copy);
        let events = events(&[
            OPEN,
            r#"10Z","at":9,"event":"flush","family":"a\u001bb","outputs":1,"bytes":5"#,
            r#"20Z","at":19,"event":"family_dropped","family":"a\u001bb","levels":[{"level":1,"tables":1,"bytes":5},{"level":3,"tables":2,"bytes":9}]"#,
            r#"30Z","at":29,"event":"family_renamed","family":"now","before":"then""#,
            r#"40Z","at":39,"event":"family_created","family":"copy","source":"now""#,
            r#"50Z","at":49,"event":"flush","family":"copy","outputs":1,"bytes":7"#,
        ]);
        let at = |secs: u64| {
            let trees = at(&look, &events, BASE - 60_000 + secs * 1000).unwrap();
            trees
                .into_iter()
                .map(|(name, levels)| (name, levels.into_values().map(|level| level.1).collect()))
        };
        let tree = |name: &str, bytes: &[i64]| (name.to_owned(), bytes.to_vec());
        let is = |secs, wanted: &[(String, Vec<i64>)]| assert!(at(secs).eq(wanted.iter().cloned()), "{secs}");
        is(55, &[tree("copy", &[7]), tree("now", &[7])]);
        is(45, &[tree("copy", &[0]), tree("now", &[7])]);
        is(35, &[tree("now", &[7])]);
        is(25, &[tree("then", &[7])]);
        is(15, &[tree("a\u{1b}b", &[5, 9]), tree("then", &[7])]);
        is(5, &[tree("a\u{1b}b", &[0, 9]), tree("then", &[7])]);
    }

    /// The history has the families of each second, too: what events tell of is no contradiction.
    #[test]
    fn a_family_of_which_events_tell_contradicts_no_sample() {
        let mut look = known(&[(1, 1, 7)]);
        look.seconds = track(&[
            (0, &[("family.default.user_bytes", 50), ("family.old.user_bytes", 9)]),
            (9, &[("family.default.user_bytes", 50)]),
        ]);
        look.figures.written += std::time::Duration::from_secs(9);
        let all = |lines: &[&str]| {
            let mut events = events(&[OPEN]);
            lines
                .iter()
                .for_each(|line| events.add(format!(r#"{{"time":"2026-11-30T12:00:{line}}}"#).as_bytes()));
            assert_eq!(events.damaged, 0);
            at(&look, &events, BASE + 2000).map(|trees| trees.into_keys().collect::<Vec<_>>())
        };
        let dropped =
            |secs| format!(r#"0{secs}Z","at":60,"event":"family_dropped","family":"old","levels":[]"#);
        assert!(all(&[]).is_err_and(|why| why.contains("old was dropped or renamed")));
        assert_eq!(all(&[&dropped(4)]), Ok(vec!["default".to_owned(), "old".to_owned()]));
        assert_eq!(all(&[&dropped(1)]), Ok(vec!["default".to_owned()]), "between the sample and the moment");
        let made = r#"05Z","at":65,"event":"family_created","family":"old","source":"""#;
        assert!(all(&[&dropped(4), made]).is_err(), "it would be there now");
        let huge = r#"05Z","at":65,"event":"move","family":"default","inputs":[{"level":1,"tables":-1e300,"bytes":-1e300}],"target":2"#;
        assert!(all(&[&dropped(4), huge]).is_err(), "hostile numbers end no answer");
    }

    /// No event tells of it, and the tree of today is not that of then.
    #[test]
    fn a_family_that_was_made_dropped_or_renamed_since_then_has_no_tree() {
        let events = events(&[OPEN]);
        let mut look = known(&[(1, 1, 7)]);
        let mut since = |figures: &[(&str, i64)]| {
            look.seconds = track(&[(0, figures), (1, &[("family.default.user_bytes", 50)])]);
            at(&look, &events, BASE).map(drop)
        };
        assert_eq!(since(&[("family.default.user_bytes", 50)]), Ok(()));
        assert_eq!(since(&[("wal_bytes", 50)]), Ok(()), "nothing is known of its families");
        for (figures, why) in [
            (&[("family.before.user_bytes", 50)][..], "before was dropped or renamed since then"),
            (&[("family.default.user_bytes", 60)], "default was made since then"),
        ] {
            assert!(since(figures).is_err_and(|said| said.contains(why)), "{why}");
        }
        let mut copy = look.figures.stats.trees[0].clone();
        copy.family = "copy".to_owned();
        look.figures.stats.trees.push(copy);
        look.seconds = track(&[(0, &[("family.default.user_bytes", 50)])]);
        assert!(at(&look, &events, BASE).is_err_and(|said| said.contains("copy was made since then")));
    }
}
