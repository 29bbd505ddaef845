//! `tidesdb tour`: demonstrates the engine on real data. Every statement is checked; the first that does not
//! hold ends the tour with exit code 1. Every figure is measured when it is printed.

mod guide;
mod unicode;
mod rows;
mod moments;
mod crash;
mod damage;

use std::path::{Path, PathBuf};

use tidesdb::{Db, Family};

pub(crate) use self::crash::Witness;
use self::guide::Guide;
use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::output::{Out, Style};

/// Guided tour of a database: load, look up, scan, index, snapshot, checkpoint, kill -9, recovery, bit rot
///
/// Takes a few seconds, needs no setup, and leaves no files behind. Start here.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Tour {
    /// Create the databases in this new directory and keep them
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

/// Name of the family that maps names to characters.
const BY_NAME: &str = "by-name";

impl Tour {
    pub(crate) fn run(&self, out: &mut Out<'_>) -> Outcome {
        let started = host::now();
        let temporary = if self.dir.is_some() { None } else { Some(temporary()?) };
        let dir = match (&self.dir, &temporary) {
            (Some(dir), _) => dir.clone(),
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => return Err(Failure::failed("there is no directory for the databases")),
        };
        if self.dir.is_some() && std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(
                Failure::usage(format!("{} is not empty", dir.display())).next("name a new directory")
            );
        }
        let mut guide = Guide::new(out);
        guide.say(format!("A database of every Unicode character, in {}", dir.display()))?;
        walk(&dir, &mut guide)?;
        let (promises, secs) = (guide.promises(), started.elapsed().as_secs_f64());
        let result = format!("{promises} promises checked, all kept, in {secs:.1} s.");
        out.line("")?;
        out.line(out.paint(Style::Good, &result))?;
        self.what_next(&dir, out)?;
        Ok(Exit::Done)
    }

    fn what_next(&self, dir: &Path, out: &mut Out<'_>) -> Outcome<()> {
        let program = host::program();
        let mut next = vec![
            (format!("{program} shell --db my.db"), "a database of your own; `help` lists the commands"),
            (format!("{program} load --db my.db FILE.tsv"), "load TSV, CSV or JSON lines into it"),
            (format!("{program} --help"), "all commands"),
            (format!("{program} help load"), "one of them, with its options"),
        ];
        if self.dir.is_some() {
            let look = format!("{program} shell --db {}", dir.join("db").display());
            next.insert(0, (look, "explore this database"));
        }
        let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        out.line("")?;
        out.line(out.paint(Style::Strong, "Next"))?;
        next.iter().try_for_each(|(command, what)| out.line(format!("  {command:width$}   {what}")))
    }
}

fn temporary() -> Outcome<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("tidesdb-tour-").tempdir();
    made.map_err(|e| {
        Failure::failed(format!("cannot create a temporary directory: {e}")).next("name one with --dir")
    })
}

fn walk(dir: &Path, guide: &mut Guide<'_, '_>) -> Outcome<()> {
    let place = dir.join("db");
    let db = Db::open(&place)?;
    rows::load(&db, guide)?;
    rows::look_up(&db, guide)?;
    rows::scan(&db, guide)?;
    let names = moments::index(&db, guide)?;
    moments::snapshot(&db, &names, guide)?;
    let copy = dir.join("copy");
    moments::checkpoint(&db, &copy, guide)?;
    let before = count(db.default_family())?;
    drop(names);
    db.close()?;
    let db = crash::kill_and_recover(&place, before, guide)?;
    damage::flip_a_bit(&db, &copy, &dir.join("damaged"), guide)?;
    Ok(db.close()?)
}

/// Returns the number of rows of a family.
fn count(family: &Family) -> Outcome<u64> {
    crate::range::Range::default().walk(family, false, |_, _, _| Ok(true))
}
