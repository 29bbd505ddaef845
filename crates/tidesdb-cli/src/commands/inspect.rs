//! `tidesdb inspect`: the contents of the files of a database.

use std::path::Path;

use serde_json::json;
use tidesdb::{Error, inspect};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Out, Style};
use crate::progress::Progress;
use crate::session::{Place, foreign, is_foreign, no_database, or_nearby};
use crate::text::count;

/// Show the contents of the files of a database, and where they are damaged
///
/// Only reads, takes no lock, and also works on a database that cannot be opened. Each record, block, edit and value is shown
/// with its offset. Exit code 1 if there is damage.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Inspect {
    /// Kind of the files
    #[arg(value_enum)]
    kind: Kind,
    /// File, by name or number [default: all files of the kind]
    file: Option<String>,
    /// Show each operation, entry or value
    #[arg(long)]
    entries: bool,
}

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Segments of the write-ahead log
    Wal,
    /// Tables
    Table,
    /// Manifest: the tables and value logs, edit by edit
    Manifest,
    /// Value logs
    Vlog,
}

impl Kind {
    fn extension(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Table => "klog",
            Self::Manifest => "manifest",
            Self::Vlog => "vlog",
        }
    }
}

impl Inspect {
    pub(crate) fn run(&self, place: &Place, as_json: bool, out: &mut Out<'_>) -> Outcome {
        let path = place.path()?;
        let names = match (&self.file, self.kind) {
            (Some(_), Kind::Manifest) => {
                return Err(Failure::usage("only the current manifest can be shown"));
            }
            (None, Kind::Manifest) => vec!["manifest".to_owned()],
            (Some(file), kind) => vec![name_of(path, file, kind)?],
            (None, _) if is_foreign(path) => return Err(foreign(path)),
            (None, kind) => files_of(path, kind)?,
        };
        let mut damage = Vec::new();
        let progress = Progress::of_rows(out);
        for (done, name) in names.iter().enumerate() {
            progress.say(format!("{name}, file {} of {}", done + 1, names.len()));
            // Lines are written immediately; a failed write ends the command after the file.
            let mut written = Ok(());
            let mut show = |line: &str| {
                if written.is_ok() {
                    written = if as_json {
                        out.json(&json!({ "file": name, "line": line }))
                    } else {
                        out.line(out.name(line)) // names and keys are parts of it
                    };
                }
            };
            let found = match self.kind {
                Kind::Wal => inspect::wal(path, name, self.entries, &mut show),
                Kind::Table => inspect::table(path, name, self.entries, &mut show),
                Kind::Manifest => inspect::manifest(path, &mut show),
                Kind::Vlog => inspect::vlog(path, name, self.entries, &mut show),
            };
            written?;
            damage.extend(found.map_err(|e| no_database(e, path))?);
        }
        drop(progress);
        summary(&names, &damage, as_json, out)
    }
}

fn summary(names: &[String], damage: &[Error], as_json: bool, out: &mut Out<'_>) -> Outcome {
    for e in damage {
        match (as_json, e) {
            (true, Error::Corrupt { file, offset, what }) => {
                out.json(&json!({ "file": **file, "offset": offset, "damage": **what }))?;
            }
            (true, other) => out.json(&json!({ "damage": other.to_string() }))?,
            (false, e) => out.line(out.paint(Style::Bad, &format!("damage: {e}")))?,
        }
    }
    if !as_json && damage.is_empty() {
        let read = count(names.len() as u64, "file", "files");
        out.line(out.paint(Style::Good, &format!("{read} read, no damage")))?;
    }
    Ok(if damage.is_empty() { Exit::Done } else { Exit::No })
}

/// Returns the file name for the user's argument: `3`, `000003`, `000003.klog`, or a path to it in the database at `path`. Another database
/// has files of the same names.
fn name_of(path: &Path, file: &str, kind: Kind) -> Outcome<String> {
    if let Some(dir) = Path::new(file).parent().filter(|dir| !dir.as_os_str().is_empty()) {
        let full = std::fs::canonicalize(path);
        let is_there = std::fs::canonicalize(dir).is_ok_and(|dir| full.is_ok_and(|full| full == dir));
        if !is_there {
            let what = format!("{file} is not in the database {}", path.display());
            return Err(
                Failure::usage(what).next(format!("add --db {}, or give the name alone", dir.display()))
            );
        }
    }
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    Ok(match name.parse::<u64>() {
        Ok(number) => format!("{number:06}.{}", kind.extension()),
        Err(_) => name.to_owned(),
    })
}

/// Returns the names of all files of a kind, by number.
fn files_of(path: &Path, kind: Kind) -> Outcome<Vec<String>> {
    let entries = std::fs::read_dir(path).map_err(|e| or_nearby(Failure::file("list", path, &e), path))?;
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let mut names: Vec<(u64, String)> = names
        .filter_map(|name| {
            let (stem, extension) = name.split_once('.')?;
            (extension == kind.extension()).then_some((stem.parse().ok()?, name.clone()))
        })
        .collect();
    names.sort_unstable();
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    fn run(stage: &Stage, kind: Kind, file: Option<&str>, as_json: bool) -> Outcome<(Exit, String)> {
        let command = Inspect { kind, file: file.map(Into::into), entries: true };
        let place = Place { db: Some(stage.dir.path().join("db")), ..Place::default() };
        let mut bytes = Vec::new();
        let exit = command.run(&place, as_json, &mut Out::new(&mut bytes, false))?;
        Ok((exit, String::from_utf8(bytes).unwrap()))
    }

    #[test]
    fn files_by_name_or_number() {
        let dir = tempfile::tempdir().unwrap();
        let [db, other] = ["db", "other"].map(|name| dir.path().join(name));
        for dir in [&db, &other] {
            std::fs::create_dir(dir).unwrap();
        }
        let of = |file: &str, kind| name_of(&db, file, kind);
        assert_eq!(of("3", Kind::Table).unwrap(), "000003.klog");
        assert_eq!(of("000012.wal", Kind::Wal).unwrap(), "000012.wal");
        assert_eq!(of(db.join("000012.wal").to_str().unwrap(), Kind::Wal).unwrap(), "000012.wal");
        let around = other.join("..").join("db").join("000012.wal");
        assert_eq!(of(around.to_str().unwrap(), Kind::Wal).unwrap(), "000012.wal");
        for dir in [other.clone(), dir.path().join("none")] {
            let refused = of(dir.join("000012.wal").to_str().unwrap(), Kind::Wal).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
            assert!(refused.message().contains(&format!("add --db {}", dir.display())), "{refused:?}");
        }
    }

    #[test]
    fn all_kinds_of_an_open_database() {
        let stage = Stage::with(&["apple", "pear"]);
        stage.db.put(b"big", &[1; 4096]).unwrap();
        stage.db.flush().unwrap();
        stage.db.put(b"late", b"v").unwrap();
        for (kind, part) in [
            (Kind::Wal, "late"),
            (Kind::Table, "pear"),
            (Kind::Manifest, "add table"),
            (Kind::Vlog, "value of 4096"),
        ] {
            let (exit, text) = run(&stage, kind, None, false).unwrap();
            assert_eq!(exit, Exit::Done, "{text}");
            assert!(text.contains(part) && text.ends_with(" read, no damage\n"), "{kind:?}: {text}");
        }
        let (_, text) = run(&stage, Kind::Wal, None, true).unwrap();
        assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{text}");
        assert_eq!(run(&stage, Kind::Table, Some("999"), false).unwrap_err().exit, Exit::Usage);
    }
}
