//! Finds databases near a path that is not a database: the user probably meant one of them.

use std::path::{Path, PathBuf};

use tidesdb::inspect;

use crate::names::nearest;

/// Maximum number of databases in a suggestion.
const SHOWN_MAX: usize = 3;
/// Maximum number of entries of a directory that are looked at.
const ENTRIES_MAX: usize = 1000;

/// Returns what to try instead of `path`; `None` if there is no database nearby.
pub(crate) fn suggestion(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    if let Some(around) = path.ancestors().skip(1).find(|dir| is_database(dir)) {
        return Some(format!("the path is inside of a database: did you mean --db {}?", around.display()));
    }
    let below = databases_in(&path);
    if !below.is_empty() {
        let shown: Vec<String> =
            below.iter().take(SHOWN_MAX).map(|dir| format!("--db {}", dir.display())).collect();
        let more = if below.len() > SHOWN_MAX { ", ..." } else { "" };
        return Some(format!("the directory contains databases: {}{more}", shown.join(", ")));
    }
    let beside = databases_in(path.parent()?);
    let name = |dir: &Path| dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let meant = nearest(&name(&path)?, beside.iter().filter_map(|dir| name(dir)))?;
    Some(format!("did you mean --db {}?", path.with_file_name(meant).display()))
}

/// True if the directory at `path` has a manifest that can be read.
pub(crate) fn is_database(path: &Path) -> bool {
    path.is_dir() && inspect::trees(path).is_ok()
}

/// Returns the databases one level below `path`, by name.
fn databases_in(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.take(ENTRIES_MAX).map(|entry| entry.path()).filter(|path| is_database(path)).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_below_around_and_beside() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let of = |name: &str| suggestion(&at(name));
        assert_eq!(of("fruti.db"), None);
        drop(tidesdb::Db::open(at("fruit.db")).unwrap());
        std::fs::create_dir(at("empty")).unwrap();
        let fruit = format!("--db {}", at("fruit.db").display());
        assert_eq!(of("fruti.db").unwrap(), format!("did you mean {fruit}?"));
        assert_eq!(of(""), Some(format!("the directory contains databases: {fruit}")));
        for inside in ["fruit.db/CURRENT", "fruit.db/a/b"] {
            assert!(of(inside).unwrap().ends_with(&format!("inside of a database: did you mean {fruit}?")));
        }
        assert_eq!(of("empty"), None);
        for name in ["a", "b", "c"] {
            drop(tidesdb::Db::open(at(name)).unwrap());
        }
        assert!(of("").unwrap().ends_with(", ..."), "{:?}", of(""));
    }
}
