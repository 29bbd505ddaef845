//! `tidesdb ingest`: takes tables that `tidesdb export` or a program has written.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::json;
use tidesdb::{Error, Ingest as Taking, SyncMode};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::Session;
use crate::text::{count, rates, size};
use crate::{host, nearby};

/// Take tables that `export` or a program has written
///
/// All tables become visible together, or none. A row replaces the value that its key has; of two tables with the same key the
/// later one counts. Every byte is checked first, so files from anywhere may be given. The database is created if it does not
/// exist. The files are copied, unless --link or --move is given.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Ingest {
    /// The tables, STEM-000001.klog and so on, or directories of them; values beside them come along
    #[arg(required = true, value_name = "TABLE", value_hint = ValueHint::AnyPath)]
    tables: Vec<PathBuf>,
    /// Link the files: the database shares them, so they must not be changed later. Needs the same file system
    #[arg(long)]
    link: bool,
    /// Move the files, once all of them are taken. Needs the same file system
    #[arg(long = "move", conflicts_with = "link")]
    moving: bool,
}

/// How the name of a table ends.
pub(super) const TABLE_SUFFIX: &str = ".klog";
/// What follows the name of a table in that of its values.
const VALUES_SUFFIX: &str = ".vlog";

impl Ingest {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let family = session.family()?;
        let tables = tables_in(&self.tables)?;
        let started = host::now();
        let mut taking =
            Taking::new().tables(&family, &tables).options(session.write_options(SyncMode::Full));
        if self.link {
            taking = taking.linking();
        } else if self.moving {
            taking = taking.moving();
        }
        let shown = count(tables.len() as u64, "table", "tables");
        let taken = Progress::during(format!("checking and taking {shown}"), || session.db.ingest(&taking));
        let taken = taken.map_err(failure)?;
        let secs = started.elapsed().as_secs_f64();
        if session.common.json {
            out.json(&json!({
                "tables": taken.tables, "rows": taken.rows, "bytes": taken.bytes, "seconds": secs, "seq": taken.seq,
            }))?;
        } else {
            let rows = count(taken.rows, "row", "rows");
            out.line(format!(
                "{shown}, {rows}, {} in {}",
                size(taken.bytes),
                rates(taken.rows, taken.bytes, secs)
            ))?;
        }
        Ok(Exit::Done)
    }
}

/// Returns the name of the values of a table.
pub(super) fn values_of(table: &Path) -> PathBuf {
    let mut name = OsString::from(table);
    name.push(VALUES_SUFFIX);
    name.into()
}

/// Returns the tables that the arguments name, in their order, those of a directory by name. The values of a table that is named are left
/// out: a pattern of the shell may name both.
fn tables_in(arguments: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> = Vec::new();
    for argument in arguments {
        if !argument.is_dir() {
            all.push(argument.clone());
            continue;
        }
        if nearby::is_database(argument) {
            let what = format!("{} is a database, and its tables belong to it", argument.display());
            return Err(
                Failure::usage(what).next("`tidesdb export` writes tables that another database takes")
            );
        }
        let entries = std::fs::read_dir(argument).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|e| Failure::file("read", argument, &e))?;
        let mut found: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
        found.retain(|path| path.extension().is_some_and(|end| end == &TABLE_SUFFIX[1..]));
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "{} has no table, no file NAME{TABLE_SUFFIX}",
                argument.display()
            )));
        }
        found.sort_unstable();
        all.append(&mut found);
    }
    let values: HashSet<PathBuf> = all.iter().map(|table| values_of(table)).collect();
    all.retain(|path| !values.contains(path));
    let mut named = HashSet::new();
    match all.iter().find(|path| !named.insert(*path)) {
        Some(twice) => Err(Failure::usage(format!("{} is named twice", twice.display()))),
        None => Ok(all),
    }
}

/// The failure of a call that reads files of the user: damage is theirs, not that of the database.
fn failure(error: Error) -> Failure {
    let is_damage = error.is_corruption();
    let failure = Failure::from(error);
    if is_damage { failure.next("nothing was taken; export or copy the tables again") } else { failure }
}

#[cfg(test)]
mod tests;
