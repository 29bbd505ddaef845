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

/// Shows how much of the database is in the copy. Tables that the copy flushes first are not in the total, so the end may come early.
fn progress(session: &Session, copy: &Path) -> Progress {
    let total = data_bytes(&session.path);
    let copy = copy.to_owned();
    Progress::watch(Some(total), move || {
        let (files, done) = contents(&copy);
        Seen { done, text: format!("{}, {}", count(files, "file", "files"), size(done)) }
    })
}

/// Returns the bytes of the tables and value logs in a directory: a copy has them, and nothing else of size.
fn data_bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let is_data = |path: &Path| path.extension().is_some_and(|end| end == "klog" || end == "vlog");
    entries.filter(|e| is_data(&e.path())).filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum()
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
        #[cfg(unix)]
        for entry in std::fs::read_dir(&copy).unwrap() {
            let links = std::os::unix::fs::MetadataExt::nlink(&entry.unwrap().metadata().unwrap());
            assert_eq!(links, 1);
        }
        assert_eq!(Db::open(&copy).unwrap().get(b"a").unwrap().unwrap(), b"a");
    }

    #[test]
    fn a_copy_has_the_data_and_little_else() {
        let stage = Stage::with(&["a"]);
        let noise =
            (0..1u64 << 20).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31) ^ (n * n)) as u8);
        stage.db.put(b"big", &noise.collect::<Vec<u8>>()).unwrap();
        stage.db.flush().unwrap();
        let total = data_bytes(&stage.dir.path().join("db"));
        let copy = stage.dir.path().join("copy");
        stage.run(&["backup", copy.to_str().unwrap()]);
        let (_, copied) = contents(&copy);
        assert!(total > 1 << 20 && copied >= total && copied < total + (1 << 18), "{copied} of {total}");
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
