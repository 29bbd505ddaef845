//! Names of objects: file names, followed by the offset for parts of files.

use crate::files::{self, CURRENT, FileKind};

/// Minimum number of digits of an offset.
const OFFSET_DIGITS: usize = 12;

/// The file that an object holds, in full or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Name of the file.
    pub(super) file: String,
    /// Offset in the file at which the object begins.
    pub(super) offset: u64,
}

/// Returns whether files of this kind are stored in parts.
fn has_parts(kind: FileKind) -> bool {
    matches!(kind, FileKind::Vlog(_) | FileKind::Wal(_))
}

/// Returns whether the file `name` is a table or a value log, which may be removed from the folder and fetched again.
pub(super) fn is_cached(name: &str) -> bool {
    matches!(files::parse(name), Some(FileKind::Table(_) | FileKind::Vlog(_)))
}

/// Returns the name of the object for the bytes of `file` from `offset` on.
pub(super) fn object_name(file: &str, offset: u64) -> String {
    match files::parse(file) {
        Some(kind) if has_parts(kind) => format!("{file}.{offset:0OFFSET_DIGITS$}"),
        _ => file.to_owned(),
    }
}

/// Parses the name of an object. Returns `None` for names that the engine never writes; such objects are ignored.
pub(super) fn parse(name: &str) -> Option<Stored> {
    let whole = |file: &str| Stored { file: file.to_owned(), offset: 0 };
    match files::parse(name) {
        Some(FileKind::Current) => return (name == CURRENT).then(|| whole(name)),
        Some(FileKind::Manifest(_) | FileKind::Table(_)) => return Some(whole(name)),
        _ => {}
    }
    let (file, offset) = name.rsplit_once('.')?;
    let stored = Stored { file: file.to_owned(), offset: offset.parse().ok()? };
    let kind = files::parse(file)?;
    (has_parts(kind) && object_name(file, stored.offset) == name).then_some(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_foreign_names_are_ignored() {
        for (file, offset) in [
            ("CURRENT", 0),
            ("000012.manifest", 0),
            ("000001.klog", 0),
            ("000003.vlog", 0),
            ("000003.vlog", 1 << 50),
            ("000005.wal", 77),
        ] {
            let stored = Stored { file: file.into(), offset };
            assert_eq!(parse(&object_name(file, offset)), Some(stored));
        }
        for name in
            ["LOCK", "CURRENT.new", "000003.vlog", "000003.vlog.7", "1.klog", "000001.klog.orphan", "x"]
        {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
