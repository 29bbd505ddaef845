//! Settings as an INI file: one section, a key for each field. Keys that nobody knows are skipped, so that a file of another
//! version can be read.

use std::io::Write as _;
use std::path::Path;

use configparser::ini::Ini;

use super::fields::fields;
use crate::abi::{Code, ERR_CORRUPTION, ERR_INVALID_ARGS, ERR_IO, FamilyConfig};
use crate::failure::{Answer, Failure};

fn failure(code: Code, what: impl std::fmt::Display) -> Failure {
    Failure::text_of(code, what.to_string())
}

/// Names are told apart by case, and a value goes to the end of its line: names of orders may hold any sign.
fn empty() -> Ini {
    let mut ini = Ini::new_cs();
    ini.set_inline_comment_symbols(Some(&[]));
    ini
}

/// The settings as text.
pub(crate) fn to_text(section: &str, config: &FamilyConfig) -> String {
    let mut config = *config;
    let mut ini = empty();
    for (key, field) in fields(&mut config) {
        ini.setstr(section, key, Some(&field.show()));
    }
    ini.writes()
}

/// The default settings with what the section says otherwise; a section that is not there says nothing.
///
/// # Errors
/// `ERR_CORRUPTION` for what is no INI or no value of its field; the text names `file`.
pub(crate) fn from_text(file: &str, text: &str, section: &str) -> Answer<FamilyConfig> {
    let mut ini = empty();
    ini.read(text.to_owned()).map_err(|e| failure(ERR_CORRUPTION, format!("{file}: {e}")))?;
    let bare = ini.get_map_ref().get(section).and_then(|keys| keys.iter().find(|(_, value)| value.is_none()));
    if let Some((key, _)) = bare {
        return Err(failure(ERR_CORRUPTION, format!("{file}: section {section:?}: {key:?} has no value")));
    }
    let mut config = FamilyConfig::default();
    for (key, mut field) in fields(&mut config) {
        let Some(value) = ini.get(section, key) else { continue };
        field.read(&value).ok_or_else(|| {
            failure(ERR_CORRUPTION, format!("{file}: section {section:?}: {key} cannot be {value:?}"))
        })?;
    }
    Ok(config)
}

/// Reads the settings in a section of a file.
///
/// # Errors
/// `ERR_IO`; as [`from_text`].
pub(crate) fn load(file: &str, section: &str) -> Answer<FamilyConfig> {
    let text = std::fs::read(file).map_err(|e| failure(ERR_IO, format!("read of {file}: {e}")))?;
    let text =
        String::from_utf8(text).map_err(|_| failure(ERR_CORRUPTION, format!("{file} is not UTF-8")))?;
    from_text(file, &text, section)
}

/// Writes a file with one section, durable. A file that was there is replaced whole or not at all.
///
/// # Errors
/// `ERR_INVALID_ARGS` for a section without a name, `ERR_IO`.
pub(crate) fn save(file: &str, section: &str, config: &FamilyConfig) -> Answer {
    if section.is_empty() || section.contains([']', '\n', '\r']) {
        return Err(failure(ERR_INVALID_ARGS, "a section needs a name without brackets and line ends"));
    }
    let io = |op: &'static str| move |e: std::io::Error| failure(ERR_IO, format!("{op} of {file}: {e}"));
    let beside = format!("{file}.new");
    let mut new = std::fs::File::create(&beside).map_err(io("create"))?;
    new.write_all(to_text(section, config).as_bytes()).map_err(io("write"))?;
    new.sync_all().map_err(io("sync"))?;
    std::fs::rename(&beside, file).map_err(io("rename"))?;
    let parent = Path::new(file).parent().filter(|dir| !dir.as_os_str().is_empty());
    sync_directory(parent.unwrap_or(Path::new("."))).map_err(io("sync of the directory"))
}

fn sync_directory(dir: &Path) -> std::io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a file of the caller's, outside of every database")]
    std::fs::File::open(dir)?.sync_all()
}
