//! `tidesdb checkpoint` and `tidesdb backup`: a second database with the same contents.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::json;
use tidesdb::Db;

use crate::failure::{Exit, Outcome};
use crate::host;
use crate::output::Out;
use crate::progress::{Progress, Seen};
use crate::session::Session;
use crate::text::{count, size};

/// Make a consistent copy of the database in a new directory
///
/// The copy consists of hard links: it takes little time and initially no space, and must be on the same file system. It is
/// an independent database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Checkpoint {
    /// Directory of the copy; must be new or empty
    #[arg(value_hint = ValueHint::DirPath)]
    path: PathBuf,
}

/// Copy the database to a new directory, on any disk
///
/// The copy is consistent, shares nothing with the database and is durable when the command returns. It is an independent
/// database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Backup {
    /// Directory of the copy; must be new or empty
    #[arg(value_hint = ValueHint::DirPath)]
    path: PathBuf,
}

impl Checkpoint {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        make(session, &self.path, out, |db| db.checkpoint(&self.path))
    }
}

impl Backup {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        make(session, &self.path, out, |db| db.backup(&self.path))
    }
}

/// Makes the copy and prints what it takes.
fn make(
    session: &Session,
    path: &Path,
    out: &mut Out<'_>,
    copy: impl FnOnce(&Db) -> tidesdb::Result<()>,
) -> Outcome {
    let started = host::now();
    let progress = progress(session, path);
    copy(&session.db)?;
    drop(progress);
    let secs = started.elapsed().as_secs_f64();
    let (files, bytes) = contents(path);
    let path = path.display();
    if session.common.json {
        out.json(&json!({ "path": path.to_string(), "files": files, "bytes": bytes, "seconds": secs }))?;
    } else {
        out.line(format!("{path}: {}, {}, {secs:.3} s", count(files, "file", "files"), size(bytes)))?;
    }
    Ok(Exit::Done)
}

/// Shows how much of the database is in the copy. A copy leaves out what the database does not need, so it ends below 100 %.
fn progress(session: &Session, copy: &Path) -> Progress {
    let (_, total) = contents(&session.path);
    let copy = copy.to_owned();
    Progress::watch(Some(total), move || {
        let (files, done) = contents(&copy);
        Seen { done, text: format!("{}, {}", count(files, "file", "files"), size(done)) }
    })
}

/// Returns the number of files in a directory and their total bytes.
fn contents(path: &Path) -> (u64, u64) {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|e| e.metadata().ok()).fold((0, 0), |(files, bytes), m| (files + 1, bytes + m.len()))
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn a_backup_shares_no_file() {
        let stage = Stage::with(&["a"]);
        let copy = stage.dir.path().join("copy");
        stage.run(&["backup", copy.to_str().unwrap()]);
        for entry in std::fs::read_dir(&copy).unwrap() {
            let links = std::os::unix::fs::MetadataExt::nlink(&entry.unwrap().metadata().unwrap());
            assert_eq!(links, 1);
        }
        assert_eq!(Db::open(&copy).unwrap().get(b"a").unwrap().unwrap(), b"a");
    }

    #[test]
    fn the_copy_opens_and_later_writes_do_not_change_it() {
        let stage = Stage::with(&["a"]);
        let copy = stage.dir.path().join("copy");
        let text = stage.run(&["checkpoint", copy.to_str().unwrap()]);
        assert!(text.contains(" files, "), "{text}");
        stage.run(&["put", "a", "changed"]);
        let db = Db::open(&copy).unwrap();
        assert_eq!(db.get(b"a").unwrap().unwrap(), b"a");
        assert_eq!(stage.fails(&["checkpoint", copy.to_str().unwrap()]).exit, Exit::Usage);
    }
}
