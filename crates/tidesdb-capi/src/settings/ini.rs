//! Settings as an INI file: one section, a key for each field. Unknown keys are skipped, so files of other
//! versions can be read.
//!
//! A name or context that a line cannot hold (control characters, blanks at an end, not UTF-8) is written in
//! hexadecimal, under the field's key with the suffix `_hex`. Programs that do not know that key skip it; the
//! form of all other values is unchanged.

use std::io::Write as _;
use std::path::Path;

use configparser::ini::Ini;
use tidesdb_io::{Disk, RealDisk};

use super::fields::{Field, Shown, fields, is_plain};
use crate::abi::{Code, ERR_CORRUPTION, ERR_INVALID_ARGS, ERR_IO, FamilyConfig};
use crate::failure::{Answer, Failure};

fn failure(code: Code, what: impl std::fmt::Display) -> Failure {
    Failure::text_of(code, what.to_string())
}

/// Section of the keys before the first section header. No section can have this name, so every section is
/// written with a header.
const HEADLESS: &str = "\n";
/// The section that older files write without a header.
const DEFAULT: &str = "default";
/// Suffix of the key of a hexadecimal value.
const HEX: &str = "_hex";

/// Returns an empty file. Names are case-sensitive and a value extends to the end of its line, because
/// comparator names may contain any character.
fn empty() -> Ini {
    let mut ini = Ini::new_cs();
    ini.set_default_section(HEADLESS);
    ini.set_inline_comment_symbols(Some(&[]));
    ini
}

/// Returns the settings as text, in the order of the fields: the same settings are the same bytes.
pub(crate) fn to_text(section: &str, config: &FamilyConfig) -> String {
    let mut config = *config;
    let lines = fields(&mut config).into_iter().map(|(key, field)| match field.show() {
        Shown::Plain(text) => format!("{key}={text}\n"),
        Shown::Hex(text) => format!("{key}{HEX}={text}\n"),
    });
    format!("[{section}]\n{}", lines.collect::<String>())
}

/// Returns the default settings, overridden by the section. A missing section overrides nothing.
///
/// # Errors
/// `ERR_CORRUPTION` if the text is not INI or a value is invalid for its field; the message names `file`.
pub(crate) fn from_text(file: &str, text: &str, section: &str) -> Answer<FamilyConfig> {
    let mut ini = empty();
    ini.read(text.to_owned()).map_err(|e| failure(ERR_CORRUPTION, format!("{file}: {e}")))?;
    let sections = || [section, HEADLESS].into_iter().take(if section == DEFAULT { 2 } else { 1 });
    let keys = || sections().filter_map(|name| ini.get_map_ref().get(name));
    if let Some((key, _)) = keys().flatten().find(|(_, value)| value.is_none()) {
        return Err(failure(ERR_CORRUPTION, format!("{file}: section {section:?}: {key:?} has no value")));
    }
    let find = |key: &str| keys().find_map(|keys| keys.get(key).and_then(Option::as_deref));
    let mut config = FamilyConfig::default();
    for (key, mut field) in fields(&mut config) {
        let hex = format!("{key}{HEX}");
        let (value, read) = match (find(&hex), find(key)) {
            (Some(value), _) if matches!(field, Field::Text(_)) => (value, field.read_hex(value)),
            (_, Some(value)) => (value, field.read(value)),
            _ => continue,
        };
        read.ok_or_else(|| {
            failure(ERR_CORRUPTION, format!("{file}: section {section:?}: {key} cannot be {value:?}"))
        })?;
    }
    Ok(config)
}

/// Reads the settings in a section of a file.
///
/// # Errors
/// `ERR_IO`; otherwise as for [`from_text`].
pub(crate) fn load(file: &Path, section: &str) -> Answer<FamilyConfig> {
    let name = file.display();
    let text = std::fs::read(file).map_err(|e| failure(ERR_IO, format!("read of {name}: {e}")))?;
    let text =
        String::from_utf8(text).map_err(|_| failure(ERR_CORRUPTION, format!("{name} is not UTF-8")))?;
    from_text(&name.to_string(), &text, section)
}

/// Writes a file with one section, durably. An existing file is replaced atomically.
///
/// # Errors
/// `ERR_INVALID_ARGS` for a section name that a line cannot hold, `ERR_IO`.
pub(crate) fn save(file: &Path, section: &str, config: &FamilyConfig) -> Answer {
    if section.is_empty() || section.contains(']') || !is_plain(section) {
        tracing::warn!(section, "settings not saved: a line of the file cannot hold the section name");
        let what =
            "a section name must not be empty or have brackets, control characters or blanks at its ends";
        return Err(failure(ERR_INVALID_ARGS, what));
    }
    let name = file.display().to_string();
    let io = |op: &'static str| {
        let name = name.clone();
        move |e: std::io::Error| failure(ERR_IO, format!("{op} of {name}: {e}"))
    };
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    let mut new = std::fs::File::create(&beside).map_err(io("create"))?;
    new.write_all(to_text(section, config).as_bytes()).map_err(io("write"))?;
    new.sync_all().map_err(io("sync"))?;
    std::fs::rename(&beside, file).map_err(io("rename"))?;
    let parent = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    let parent = RealDisk::new().open_dir(parent.unwrap_or(Path::new(".")), false);
    parent.and_then(|dir| dir.sync()).map_err(io("sync of the directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines were in the order of a hash map, another one in each call.
    #[test]
    fn the_same_settings_are_the_same_bytes() {
        let mut config = FamilyConfig { min_levels: 7, ..FamilyConfig::default() };
        let text = to_text("cf", &config);
        let read = from_text("file", &text, "cf").map(|again| to_text("cf", &again));
        assert!(read.is_ok_and(|again| again == text), "{text}");
        let keys: Vec<&str> = text.lines().skip(1).filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert_eq!(text.lines().next(), Some("[cf]"));
        assert_eq!(keys, fields(&mut config).map(|(key, _)| key));
    }
}
