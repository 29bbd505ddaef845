//! What a maintainer needs to know of a database, in one file, without its keys and values.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tidesdb::{ChangedSetting, Db, History};

use crate::failure::{Failure, Outcome};
use crate::host;
use crate::new_file::NewFile;

/// The files of the event log, the older one first.
const EVENT_LOGS: [&str; 2] = ["EVENTS.old", "EVENTS"];
/// Bytes of each that are taken, from its end. It does not grow longer by itself.
const EVENTS_BYTES_MAX: u64 = 8 << 20;
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
    let history = Db::options(dir).read_only(true).writer_history().ok();
    let [seconds, minutes] = history.unwrap_or_default();
    let mut all = json!({
        "what": "a report on a TidesDB database, by `tidesdb doctor --bundle`; without keys and values",
        "program": env!("CARGO_PKG_VERSION"),
        "system": std::env::consts::OS,
        "processor": std::env::consts::ARCH,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "settings": settings.iter().map(setting_json).collect::<Vec<_>>(),
        "figures": figures,
        "history": { "seconds": history_json(&seconds), "minutes": history_json(&minutes) },
        "files": files(dir),
        "events": events(dir),
    });
    clean(&mut all);
    let mut file = NewFile::create(path)?;
    let written = serde_json::to_writer_pretty(&mut file, &all).map_err(std::io::Error::from);
    written.and_then(|()| file.write_all(b"\n")).map_err(|e| Failure::file("write", path, &e))?;
    file.finish()
}

fn setting_json(setting: &ChangedSetting) -> Value {
    json!({ "family": setting.family, "name": setting.name, "value": setting.value })
}

/// A history as columns: each figure once, with `null` where it was not recorded.
fn history_json(history: &History) -> Value {
    let millis: Vec<u64> = history.samples.iter().map(|sample| sample.millis).collect();
    let mut columns = vec![vec![Value::Null; millis.len()]; history.names.len()];
    for (row, sample) in history.samples.iter().enumerate() {
        for (name, value) in &sample.values {
            if let Some(column) = columns.get_mut(*name as usize) {
                column[row] = (*value).into();
            }
        }
    }
    let figures: Map<String, Value> =
        history.names.iter().cloned().zip(columns.into_iter().map(Value::from)).collect();
    json!({ "millis": millis, "figures": figures })
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
    let mut all = Vec::new();
    for name in EVENT_LOGS {
        let text = last_bytes(&dir.join(name)).unwrap_or_default();
        all.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
    }
    all
}

fn last_bytes(path: &Path) -> std::io::Result<String> {
    let mut file = host::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(EVENTS_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(EVENTS_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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
