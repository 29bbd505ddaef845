//! What a maintainer needs to know of a database, in one file, without its keys and values.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tidesdb::{ChangedSetting, Db, History};

use crate::failure::{Failure, Outcome};
use crate::look::events::tails;
use crate::new_file::NewFile;

/// Families whose history is taken: those to which users wrote most.
const FAMILIES_MAX: usize = 50;
/// Members of the figures that are keys.
const KEYS: [&str; 2] = ["first_key", "last_key"];
/// A text that begins so ends with what a merge operator reported. That may be a value.
const OF_OPERATOR: &str = "the merge operator ";

/// Writes a bundle to `path`: the `figures` and what was found in them, the settings, the history and the event log of the database in `dir`.
pub(super) fn write(
    path: &Path,
    dir: &Path,
    figures: Map<String, Value>,
    settings: &[ChangedSetting],
) -> Outcome<()> {
    let mut all = json!({
        "what": "a report on a TidesDB database, by `tidesdb doctor --bundle`; without keys and values",
        "program": env!("CARGO_PKG_VERSION"),
        "system": std::env::consts::OS,
        "processor": std::env::consts::ARCH,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "settings": settings.iter().map(setting_json).collect::<Vec<_>>(),
        "figures": figures,
        "files": files(dir),
        "events": events(dir),
    });
    clean(&mut all);
    let past = Db::options(dir).read_only(true).writer_history().unwrap_or_default();
    let mut file = NewFile::create(path)?;
    let mut out = BufWriter::new(&mut file);
    let written = object(&all, &past, &mut out).and_then(|()| out.flush());
    drop(out);
    written.map_err(|e| Failure::file("write", path, &e))?;
    file.finish()
}

/// Writes the members of `all`, and the history of seconds and of minutes as one more.
fn object(all: &Value, [seconds, minutes]: &[History; 2], out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "{{")?;
    for (name, value) in all.as_object().into_iter().flatten() {
        write!(out, "\n{}: ", Value::from(name.as_str()))?;
        serde_json::to_writer_pretty(&mut *out, value)?;
        write!(out, ",")?;
    }
    write!(out, "\n\"history\": {{ \"seconds\": ")?;
    history(seconds, out)?;
    write!(out, ",\n\"minutes\": ")?;
    history(minutes, out)?;
    writeln!(out, " }}\n}}")
}

fn setting_json(setting: &ChangedSetting) -> Value {
    json!({ "family": setting.family, "name": setting.name, "value": setting.value })
}

/// A history as columns, each as pairs of the number of a sample and the value that it has. Not as a [`Value`]: that would take many times the memory.
fn history(history: &History, out: &mut impl Write) -> std::io::Result<()> {
    let left_out = families_left_out(history);
    let is_left_out = |name: &str| family_of(name).is_some_and(|(family, _)| left_out.contains(family));
    let mut columns: Vec<Vec<(usize, i64)>> = vec![Vec::new(); history.names.len()];
    for (row, sample) in history.samples.iter().enumerate() {
        for (name, value) in &sample.values {
            if let Some(column) = columns.get_mut(*name as usize) {
                column.push((row, *value));
            }
        }
    }
    let named = history.names.iter().map(String::as_str).zip(&columns);
    let figures: BTreeMap<&str, _> = named.filter(|(name, _)| !is_left_out(name)).collect();
    let millis: Vec<u64> = history.samples.iter().map(|sample| sample.millis).collect();
    write!(out, "{{\"families_left_out\":{},\"millis\":", left_out.len())?;
    serde_json::to_writer(&mut *out, &millis)?;
    write!(out, ",\"figures\":")?;
    serde_json::to_writer(&mut *out, &figures)?;
    write!(out, "}}")
}

/// The family and the figure of a name of the history; `None` if it is not that of a family.
fn family_of(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("family.")?.rsplit_once('.')
}

/// The families whose history is left out.
fn families_left_out(history: &History) -> HashSet<&str> {
    let families: Vec<_> = history.names.iter().map(|name| family_of(name)).collect();
    let mut most: HashMap<&str, i64> = families.iter().flatten().map(|(family, _)| (*family, 0)).collect();
    for (name, value) in history.samples.iter().flat_map(|sample| &sample.values) {
        if let Some(Some((family, "user_bytes"))) = families.get(*name as usize) {
            let most = most.entry(family).or_default();
            *most = (*most).max(*value);
        }
    }
    let mut all: Vec<(&str, i64)> = most.into_iter().collect();
    all.sort_by_key(|(family, bytes)| (std::cmp::Reverse(*bytes), *family));
    all.into_iter().skip(FAMILIES_MAX).map(|(family, _)| family).collect()
}

/// The names and lengths of the files in `dir`.
fn files(dir: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(String, u64)> = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?.len())))
        .collect();
    files.sort();
    files.into_iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect()
}

/// The lines of the event log that are whole.
fn events(dir: &Path) -> Vec<Value> {
    let lines = |bytes: Vec<u8>| {
        let parsed = bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        parsed.collect::<Vec<Value>>()
    };
    tails(dir).flat_map(lines).collect()
}

/// Takes out keys, and what merge operators reported.
fn clean(value: &mut Value) {
    match value {
        Value::Object(members) => {
            KEYS.iter().for_each(|key| drop(members.remove(*key)));
            members.values_mut().for_each(clean);
        }
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::String(text) => {
            if let Some(at) = text.find(OF_OPERATOR) {
                text.replace_range(at + OF_OPERATOR.len().., "of a family failed");
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use tidesdb::Sample;

    use super::*;

    #[test]
    fn keys_and_what_a_merge_operator_reported_are_taken_out() {
        let text =
            r#"a merge failed: the merge operator "x" of family "f" failed: SECRET; the operands are kept"#;
        let mut all = json!({
            "causes": [text],
            "levels": [{ "first_key": "SECRET", "last_key": "SECRET", "tables": 1 }],
        });
        clean(&mut all);
        let causes = ["a merge failed: the merge operator of a family failed"];
        assert_eq!(all, json!({ "causes": causes, "levels": [{ "tables": 1 }] }));
    }

    /// Sixty families, each in one sample of its own, as when ten thousand take turns.
    #[test]
    fn the_history_has_what_was_recorded_of_the_busiest_families() {
        let mut history = History::default();
        history.names.push("wal_bytes".to_owned());
        for n in 0..60_u32 {
            history.names.push(format!("family.a.b{n}.user_bytes"));
            history.names.push(format!("family.a.b{n}.tombstones"));
            let mut sample = Sample::default();
            sample.millis = u64::from(n);
            sample.values = vec![(0, 7), (2 * n + 1, i64::from(n)), (2 * n + 2, 1 << 40)];
            history.samples.push(sample);
        }
        let mut out = Vec::new();
        object(&json!({ "what": "\"" }), &[history, History::default()], &mut out).unwrap();
        let all: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(all["what"], "\"");
        let seconds = &all["history"]["seconds"];
        assert_eq!((&seconds["families_left_out"], &seconds["millis"][59]), (&json!(10), &json!(59)));
        let figures = seconds["figures"].as_object().unwrap();
        assert_eq!(figures.len(), 1 + 2 * FAMILIES_MAX);
        assert_eq!(figures["family.a.b59.user_bytes"], json!([[59, 59]]));
        assert!(
            figures.contains_key("family.a.b10.tombstones")
                && !figures.contains_key("family.a.b9.tombstones")
        );
        assert_eq!(figures["wal_bytes"][59], json!([59, 7]));
    }
}
