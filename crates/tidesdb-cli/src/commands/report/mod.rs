//! `tidesdb report`: what is known of a database, as a page for a browser.

mod data;
mod keys;
mod page;
mod past;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};

use tidesdb::inspect::{self, Layout};
use tidesdb::{Db, Finding, HealthReport, History, Stats, WriterFigures};
use tidesdb_io::Env;

use crate::commands::doctor::no_figures;
use crate::failure::{Exit, Failure, Outcome};
use crate::names::nearest;
use crate::new_file::NewFile;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{self, Access, Common, Place, Session, Target, no_database};
use crate::text::printable;

/// Longest part of a key that is shown, in characters.
const KEY_SHOWN_MAX: usize = 48;

/// Write a page for a browser: what fills a database, what it does and what it waits for
///
/// One file that loads nothing. It has the figures that the process which writes has published, and of when they are; what the doctor finds; the last
/// hour and day; the tree of each family, and where in the space of its keys each level is filled. A database that nobody writes is opened for reading.
/// Changes nothing. Keys are not in it, only how far along their order they are, unless --keys asks for them; names of families and the path of the
/// database are. With --family, shows only that family's tree; with --json, writes what the page shows as JSON.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Report {
    #[command(flatten)]
    target: Target,
    /// Output file, which is replaced when the page is complete; -: standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Show the first and last keys of tables and levels
    #[arg(long)]
    keys: bool,
}

/// Everything that is known of a database.
struct Known<'a> {
    path: &'a Path,
    /// Now, in milliseconds since the UNIX epoch.
    made: u64,
    whose: Whose,
    /// `None` without figures.
    findings: Option<Vec<Finding>>,
    /// Of seconds and of minutes, or why there is none.
    history: Result<[History; 2], String>,
    layouts: Vec<Layout>,
    /// The only family to show.
    family: Option<String>,
    with_keys: bool,
}

/// Whose figures there are.
enum Whose {
    /// Those of a process that writes the database, or has ended without closing it.
    Writer(Box<WriterFigures>),
    /// Those of this process.
    Own { stats: Box<Stats>, health: HealthReport },
    /// None: the process that writes publishes none, or none that can be read.
    Nobody { why: String },
}

impl Whose {
    fn stats(&self) -> Option<&Stats> {
        match self {
            Self::Writer(writer) => Some(&writer.stats),
            Self::Own { stats, .. } => Some(stats),
            Self::Nobody { .. } => None,
        }
    }
}

impl Report {
    pub(crate) fn run(&self, place: &Place, common: &Common, out: &mut Out<'_>) -> Outcome {
        let place = place.or_at(self.target.dir.as_ref());
        let path = place.path()?;
        let progress = Progress::new(None);
        progress.say(format!("looking at {}", path.display()));
        let known = self.look(&place, path, common)?;
        let mut data = data::of(&known);
        page::make_visible(&mut data);
        let env = Env::real();
        let nonce = format!("{:016x}{:016x}", env.entropy.next_u64(), env.entropy.next_u64());
        let text = if common.json { format!("{data}\n") } else { page::html(&data, &nonce) };
        drop(progress);
        if self.output.as_os_str() == "-" {
            out.write_all(text.as_bytes())?;
        } else {
            let mut file = NewFile::create(&self.output)?;
            file.write_all(text.as_bytes()).map_err(|e| Failure::file("write", &self.output, &e))?;
            file.finish()?;
        }
        Ok(Exit::Done)
    }

    fn look<'a>(&self, place: &Place, path: &'a Path, common: &Common) -> Outcome<Known<'a>> {
        let published = session::published(path)?;
        let options = Db::options(path).read_only(true);
        let history = options.writer_history().map_err(|error| error.to_string());
        let why = || no_figures(published.error.as_ref());
        let (whose, findings) = match published.figures {
            Some(figures) => {
                let found = figures.diagnose();
                (Whose::Writer(Box::new(figures)), Some(found))
            }
            None if published.is_locked => (Whose::Nobody { why: why() }, None),
            None => {
                let Session { db, .. } = Session::open(place, common, Access::Read)?;
                let whose = Whose::Own { stats: Box::new(db.stats()), health: db.health() };
                let found = db.diagnose();
                db.close()?;
                (whose, Some(found))
            }
        };
        let layouts = inspect::layouts(path).map_err(|e| no_database(e, path))?;
        let family = common.family.clone();
        let names = || layouts.iter().map(|layout| &layout.tree.family);
        if let Some(name) = family.as_ref().filter(|name| !names().any(|other| other == *name)) {
            let what = format!("family {name:?} does not exist");
            return Err(Failure::usage(what).meant(nearest(name, names())));
        }
        let made = Env::real().clock.wall().as_millis() as u64;
        Ok(Known { path, made, whose, findings, history, layouts, family, with_keys: self.keys })
    }
}

/// A key as text, cut if it is long.
fn shown_key(key: &[u8]) -> String {
    let text = printable(key.get(..KEY_SHOWN_MAX * 4).unwrap_or(key));
    let is_whole = key.len() <= KEY_SHOWN_MAX * 4 && text.chars().count() <= KEY_SHOWN_MAX;
    if is_whole { text } else { format!("{}..", text.chars().take(KEY_SHOWN_MAX - 2).collect::<String>()) }
}
