//! The commands, one file each: its arguments, its help, what it does, and its tests.
//!
//! A [`Verb`] runs on an open database, so the shell and the command line run it the same way. `tour`, `generations`, `inspect`, `levels`,
//! `doctor`, `top`, `why`, `report` and `shell` open what they need themselves.

pub(crate) mod checkpoint;
pub(crate) mod compact;
pub(crate) mod delete;
pub(crate) mod dump;
pub(crate) mod ingest;
pub(crate) mod export;
pub(crate) mod families;
pub(crate) mod get;
pub(crate) mod load;
pub(crate) mod put;
pub(crate) mod scan;
pub(crate) mod explain;
pub(crate) mod generations;
pub(crate) mod levels;
pub(crate) mod stats;
mod bundle;
pub(crate) mod doctor;
pub(crate) mod top;
pub(crate) mod why;
#[cfg(feature = "report")]
pub(crate) mod report;
pub(crate) mod verify;
pub(crate) mod inspect;
#[cfg(feature = "pages")]
pub(crate) mod pages;
pub(crate) mod shell;
pub(crate) mod tour;

#[cfg(test)]
mod stage;

use std::path::PathBuf;

use crate::failure::Outcome;
use crate::output::Out;
use crate::session::{Access, Session};

/// A command on an open database.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum Verb {
    Load(load::Load),
    Dump(dump::Dump),
    Export(export::Export),
    Ingest(ingest::Ingest),
    Get(get::Get),
    Put(put::Put),
    Delete(delete::Delete),
    Scan(scan::Scan),
    Explain(explain::Explain),
    Families(families::Families),
    Stats(stats::Stats),
    Verify(verify::Verify),
    Compact(compact::Compact),
    Checkpoint(checkpoint::Checkpoint),
    Backup(checkpoint::Backup),
}

impl Verb {
    /// Returns the access to the database that the command needs.
    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Dump(_)
            | Self::Export(_)
            | Self::Get(_)
            | Self::Scan(_)
            | Self::Explain(_)
            | Self::Stats(_)
            | Self::Verify(_) => Access::Read,
            Self::Families(families) => families.access(),
            Self::Delete(_) | Self::Compact(_) | Self::Checkpoint(_) | Self::Backup(_) => Access::Write,
            Self::Load(_) | Self::Ingest(_) | Self::Put(_) => Access::Create,
        }
    }

    /// Returns the directory of the database, if the command names it as its argument.
    pub(crate) fn dir(&self) -> Option<&PathBuf> {
        match self {
            Self::Dump(dump) => dump.target.dir.as_ref(),
            Self::Scan(scan) => scan.target.dir.as_ref(),
            Self::Stats(stats) => stats.target.dir.as_ref(),
            Self::Verify(verify) => verify.target.dir.as_ref(),
            Self::Compact(compact) => compact.target.dir.as_ref(),
            _ => None,
        }
    }

    /// Runs the command.
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        match self {
            Self::Load(command) => command.run(session, out),
            Self::Dump(command) => command.run(session, out),
            Self::Export(command) => command.run(session, out),
            Self::Ingest(command) => command.run(session, out),
            Self::Get(command) => command.run(session, out),
            Self::Put(command) => command.run(session),
            Self::Delete(command) => command.run(session, out),
            Self::Scan(command) => command.run(session, out),
            Self::Explain(command) => command.run(session, out),
            Self::Families(command) => command.run(session, out),
            Self::Stats(command) => command.run(session, out),
            Self::Verify(command) => command.run(session, out),
            Self::Compact(command) => command.run(session, out),
            Self::Checkpoint(command) => command.run(session, out),
            Self::Backup(command) => command.run(session, out),
        }
    }
}
