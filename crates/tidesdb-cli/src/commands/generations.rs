//! `tidesdb generations`: incremental backups in a store, each of which can be restored on its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use clap::ValueHint;
use serde_json::{Value, json};
use tidesdb::backup::{
    Backups, CreateOptions, Generation, Progress as Copied, PrunePolicy, RestoreOptions, VerifiedGeneration,
};
use tidesdb::store::DirectoryStore;
use tidesdb::{Db, Error, ObjectStore};

use crate::failure::{Exit, Failure, Outcome};
use crate::format::millis_of;
use crate::interrupt::Interrupt;
use crate::look::clock;
use crate::nearby;
use crate::output::{Out, Style};
use crate::progress::{Progress, Seen};
use crate::session::{self, Access, Common, Place, Session};
use crate::text::{count, plain, size};

/// Make, check, restore and remove incremental backups in a store
///
/// A store is a directory, best on another disk or machine, or what is below a prefix of a bucket: s3://BUCKET/PREFIX. Each generation restores the database as it was; what several
/// generations have in common is stored once. `backup` copies a whole database into a directory instead.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Generations {
    /// Directory of the store, or s3://BUCKET/PREFIX with the settings of the AWS_* variables
    #[arg(long, value_name = "DIR", global = true, value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    Create(Create),
    /// List the generations
    List,
    Verify(Verify),
    Prove(Prove),
    Restore(Restore),
    /// Delete generations, also damaged ones
    Delete {
        /// Their numbers
        #[arg(required = true)]
        numbers: Vec<u64>,
    },
    Prune(Prune),
    /// Make the index of a store again if it is damaged or missing
    ///
    /// Finds the generations whose objects are all there. One that was deleted or not finished may be among them, and none counts as
    /// proven.
    Repair,
}

/// Make a generation of the database; copies what the store does not have yet
#[derive(Clone, Debug, clap::Args)]
struct Create {
    /// Restore it, and compare all rows with those of the database
    #[arg(long)]
    prove: bool,
    /// New or empty directory for the proof, with room for the database [default: one beside the database]
    #[arg(long, value_name = "DIR", requires = "prove", value_hint = ValueHint::DirPath)]
    scratch: Option<PathBuf>,
    /// Bytes to copy per second, at most, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    rate: Option<u64>,
}

/// Read all bytes of generations, and compare them with their checksums; exit code 1 if there is damage, 2 if there is no generation
#[derive(Clone, Debug, clap::Args)]
struct Verify {
    /// Their numbers [default: all]
    numbers: Vec<u64>,
    /// Bytes to read from the store per second, at most, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    rate: Option<u64>,
}

/// Restore a generation to a scratch directory, open it and read all rows
///
/// If rows were counted when it was made (`create --prove`), they must be the same. `list` shows the result from then on.
#[derive(Clone, Debug, clap::Args)]
struct Prove {
    /// Its number
    number: u64,
    /// New or empty directory with room for the database [default: one beside the store; for S3, in the current directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scratch: Option<PathBuf>,
    /// Bytes to read from the store per second, at most, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    rate: Option<u64>,
}

/// Restore a generation to a new or empty directory
#[derive(Clone, Debug, clap::Args)]
struct Restore {
    /// Directory of the restored database
    #[arg(value_hint = ValueHint::DirPath)]
    path: PathBuf,
    /// Number of the generation [default: the last one; needed if the store has several databases]
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u64>,
    /// Bytes to read from the store per second, at most, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    rate: Option<u64>,
}

/// Delete the generations that no rule keeps, and what copies that never ended have left
///
/// Of each database the newest generation that was proven stays in any case.
#[derive(Clone, Debug, clap::Args)]
struct Prune {
    /// Keep the last so many of each database
    #[arg(long, value_name = "COUNT", required_unless_present = "keep_younger")]
    keep_last: Option<u64>,
    /// Keep those younger than this, such as 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = session::duration)]
    keep_younger: Option<Duration>,
}

/// Parses a size such as `4096`, `64KiB` or `20MiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size from 1 up; write 500000, 64KiB, 20MiB or 1GiB");
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let n: u64 = text[..split].parse().map_err(|_| bad())?;
    let unit = match &text[split..] {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(bad()),
    };
    n.checked_mul(unit).filter(|n| *n > 0).ok_or_else(bad)
}

impl Generations {
    pub(crate) fn run(&self, place: &Place, common: &Common, out: &mut Out<'_>) -> Outcome {
        let missing = || Failure::usage("no store given").next("add --store DIR");
        let path = self.store.as_deref().ok_or_else(missing)?;
        // First: without a database there is no new store, and until it is open a signal ends the program as usual.
        let session = match self.action {
            Action::Create(_) => Some(Session::open(place, common, Access::Write)?),
            _ => None,
        };
        let stop = match self.action {
            Action::Create(_) | Action::Verify(_) | Action::Prove(_) | Action::Restore(_) => {
                Interrupt::catch()?
            }
            _ => Interrupt::none(),
        };
        let open = |is_new: bool| {
            let store = place_of(path, is_new)?;
            Ok::<_, Failure>(At { backups: Backups::new(store), store: path, json: common.json, stop })
        };
        if let (Action::Create(create), Some(session)) = (&self.action, &session) {
            return create.run(&open(true)?, session, out).map_err(of_index);
        }
        let at = open(false)?;
        let outcome = match &self.action {
            Action::Create(_) => Ok(Exit::Done),
            Action::List => at.list(out),
            Action::Verify(verify) => verify.run(&at, out),
            Action::Prove(prove) => prove.run(&at, out),
            Action::Restore(restore) => restore.run(&at, out),
            Action::Delete { numbers } => at.delete(numbers, out),
            Action::Prune(prune) => prune.run(&at, out),
            Action::Repair => at.repair(out),
        };
        outcome.map_err(of_index)
    }
}

/// How an address begins that is no directory.
const S3: &str = "s3://";

/// Returns the address of a store that is no directory.
fn address(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with(S3))
}

/// Returns an error for what looks like an address and is none that is known: a directory of that name would be a store on this machine.
fn known_address(path: &Path) -> Outcome<()> {
    let Some((scheme, rest)) = path.to_str().and_then(|text| text.split_once(':')) else { return Ok(()) };
    // One letter is a drive of Windows.
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme || !rest.starts_with('/') || address(path).is_some() {
        return Ok(());
    }
    let what = format!("a store cannot be at an address that begins with {scheme}:");
    Err(Failure::usage(what).next("a bucket is s3://BUCKET/PREFIX; a directory of such a name is ./NAME"))
}

/// Opens a store; a directory is created if it is missing and may be new.
fn place_of(path: &Path, is_new: bool) -> Outcome<Arc<dyn ObjectStore>> {
    known_address(path)?;
    if let Some(address) = address(path) {
        return bucket(address);
    }
    if nearby::is_database(path) {
        let what = format!(
            "{} is a database; a store is a directory of its own",
            plain(&path.display().to_string())
        );
        return Err(Failure::usage(what));
    }
    let opened = if is_new { DirectoryStore::open(path) } else { DirectoryStore::open_existing(path) };
    Ok(Arc::new(opened.map_err(|e| Failure::file("open", path, &e))?))
}

#[cfg(feature = "s3")]
fn bucket(address: &str) -> Outcome<Arc<dyn ObjectStore>> {
    use tidesdb_objects::{S3Options, s3};
    let store = S3Options::from_url(address).and_then(S3Options::environment).and_then(s3);
    // Before an @ there may be keys.
    let shown = address.rsplit_once('@').map_or(address, |(_, bucket)| bucket);
    Ok(Arc::new(store.map_err(|e| Failure::usage(format!("cannot use {}: {e}", plain(shown))))?))
}

#[cfg(not(feature = "s3"))]
fn bucket(address: &str) -> Outcome<Arc<dyn ObjectStore>> {
    let what = format!("{}: this program was built without stores in S3", plain(address));
    Err(Failure::usage(what).next("build it with `cargo build -p tidesdb-cli --features s3`"))
}

/// The store of a command.
struct At<'a> {
    backups: Backups,
    store: &'a Path,
    json: bool,
    stop: Interrupt,
}

impl At<'_> {
    fn show(&self, all: &[Generation], out: &mut Out<'_>) -> Outcome<()> {
        for made in all {
            if self.json { out.json(&as_json(made))? } else { out.line(line(made))? }
        }
        Ok(())
    }

    fn list(&self, out: &mut Out<'_>) -> Outcome {
        let all = self.backups.list()?;
        self.show(&all, out)?;
        if all.is_empty() && !self.json {
            out.line(format!("{}: no generations", plain(&self.store.display().to_string())))?;
        }
        Ok(Exit::Done)
    }

    fn delete(&self, numbers: &[u64], out: &mut Out<'_>) -> Outcome {
        for number in numbers {
            Progress::during(format!("deleting generation {number}"), || self.backups.delete(*number))?;
            let done = format!("generation {number} deleted");
            if self.json { out.json(&json!({ "deleted": number }))? } else { out.line(done)? }
        }
        Ok(Exit::Done)
    }

    fn repair(&self, out: &mut Out<'_>) -> Outcome {
        let found = Progress::during("reading the generations", || self.backups.repair())?;
        self.show(&found, out)?;
        if !self.json {
            out.line(format!("{} found", count(found.len() as u64, "generation", "generations")))?;
        }
        Ok(Exit::Done)
    }

    /// The failure of a command that needs a generation, in a store without any.
    fn none(&self) -> Failure {
        Failure::usage(format!("{} has no generations", plain(&self.store.display().to_string())))
            .next(REPAIR)
    }

    /// The number of the last generation.
    fn last(&self) -> Outcome<u64> {
        let all = self.backups.list()?;
        let last = all.last().ok_or_else(|| self.none())?;
        if all.iter().any(|other| other.database != last.database) {
            return Err(Failure::usage("the store has generations of several databases")
                .next("`generations list` shows them; add --generation NUMBER"));
        }
        Ok(last.number)
    }
}

/// What to do if generations are missing: a store whose index is lost looks like a new one.
const REPAIR: &str =
    "check --store; if there should be some, `tidesdb generations repair` finds those of a lost index";

/// Gives the advice for a damaged index, in the place of that for a database or a generation.
fn of_index(failure: Failure) -> Failure {
    match failure.damage() {
        Some(Error::Corrupt { file, .. }) if **file == *"backup.index" => failure
            .next("`tidesdb generations repair` makes the index again, from the generations in the store"),
        _ => failure,
    }
}

/// Returns a function that takes the progress of a call, and the bar that shows it. `what` follows the numbers of bytes.
fn bar(what: &'static str) -> (impl Fn(&Copied) + Send + Sync + 'static, Progress) {
    let seen = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let shown = Arc::clone(&seen);
    let report = move |progress: &Copied| {
        shown[0].store(progress.bytes_done, Ordering::Relaxed);
        shown[1].store(progress.bytes_total, Ordering::Relaxed);
    };
    let bar = Progress::watch(None, move || {
        let [done, total] = [0, 1].map(|n: usize| seen[n].load(Ordering::Relaxed));
        Seen { done, text: format!("{} of {} {what}", size(done), size(total)) }
    });
    (report, bar)
}

/// Runs a call that reads a generation, with a bar, until it is stopped. `left` says what it has left then.
fn reading<R>(
    at: &At<'_>,
    (what, rate): (&'static str, Option<u64>),
    left: &str,
    call: impl FnOnce(&RestoreOptions) -> Result<R, Error>,
) -> Outcome<R> {
    let (report, bar) = bar(what);
    let options = RestoreOptions::default().bytes_per_second(rate.unwrap_or(0));
    let result = call(&options.stop(at.stop.flag()).progress(report));
    drop(bar);
    result.map_err(|e| match &e {
        Error::NotFound { .. } if at.backups.list().is_ok_and(|all| all.is_empty()) => at.none(),
        _ => at.stop.failure(e, left),
    })
}

impl Create {
    fn run(&self, at: &At<'_>, session: &Session, out: &mut Out<'_>) -> Outcome {
        let beside = match self.prove && self.scratch.is_none() {
            true => Some(scratch(&folder_of(&session.path)?)?),
            false => None,
        };
        let (report, bar) = bar(if self.prove { "copied and read back" } else { "copied" });
        let mut options = CreateOptions::default().stop(at.stop.flag()).progress(report);
        options.bytes_per_second = self.rate.unwrap_or(0);
        options.scratch = self.scratch.clone().or_else(|| beside.as_ref().map(|dir| dir.path().to_owned()));
        let made = at.backups.create_with(&session.db, &options);
        drop(bar);
        let left = "`tidesdb generations list` shows what the store has; only whole generations are in it";
        let made = made.map_err(|e| at.stop.failure(e, left))?;
        at.stop.release();
        at.show(&[made], out)?;
        Progress::during("closing the database", || session.db.clone().close())?;
        Ok(Exit::Done)
    }
}

/// Returns the folder that `path` is in. A path such as `.` does not tell it by its words.
fn folder_of(path: &Path) -> Outcome<PathBuf> {
    let full = std::fs::canonicalize(path).map_err(|e| Failure::file("find the folder of", path, &e))?;
    Ok(full.parent().unwrap_or(&full).to_owned())
}

/// Returns a new directory in `folder`.
fn scratch(folder: &Path) -> Outcome<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("tidesdb-proof-").tempdir_in(folder);
    made.map_err(|e| Failure::file("create a directory in", folder, &e))
}

impl Verify {
    fn run(&self, at: &At<'_>, out: &mut Out<'_>) -> Outcome {
        let numbers = match self.numbers.is_empty() {
            true => at.backups.list()?.iter().map(|made| made.number).collect(),
            false => self.numbers.clone(),
        };
        // A check of nothing must not pass: the disk of the store may not be mounted.
        if numbers.is_empty() {
            return Err(at.none());
        }
        let mut exit = Exit::Done;
        for number in numbers {
            let left = format!("generation {number} was not read to its end");
            let report =
                reading(at, ("read", self.rate), &left, |options| at.backups.verify_with(number, options))?;
            if !report.is_ok() {
                exit = Exit::No;
            }
            show_report(at, number, &report, out)?;
        }
        Ok(exit)
    }
}

fn show_report(at: &At<'_>, number: u64, report: &VerifiedGeneration, out: &mut Out<'_>) -> Outcome<()> {
    if at.json {
        let damage: Vec<String> = report.damage.iter().map(Error::to_string).collect();
        return out.json(&json!({
            "generation": number, "objects": report.objects, "bytes": report.bytes, "damage": damage,
        }));
    }
    for e in &report.damage {
        out.line(out.paint(Style::Bad, &format!("generation {number}: damage: {}", plain(&e.to_string()))))?;
    }
    if report.is_ok() {
        let read = format!("{}, {}", count(report.objects, "object", "objects"), size(report.bytes));
        out.line(out.paint(Style::Good, &format!("generation {number}: {read} read, no damage")))?;
    }
    Ok(())
}

/// Says what to do about damage that ends a restore.
fn unrestorable(failure: Failure) -> Failure {
    let next = "`tidesdb generations verify` lists all damage; another generation may be whole";
    if failure.damage().is_some() { failure.next(next) } else { failure }
}

impl Prove {
    fn run(&self, at: &At<'_>, out: &mut Out<'_>) -> Outcome {
        let beside = match (&self.scratch, address(at.store)) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(scratch(Path::new("."))?),
            (None, None) => Some(scratch(&folder_of(at.store)?)?),
        };
        let path = self.scratch.as_deref().or_else(|| beside.as_ref().map(tempfile::TempDir::path));
        let path = path.ok_or_else(|| Failure::usage("no directory for the proof"))?;
        let left = "the list says of the generation what it said before";
        let made = reading(at, ("restored", self.rate), left, |options| {
            at.backups.prove_with(self.number, Db::options(path), options)
        });
        let made = made.map_err(unrestorable)?;
        at.show(&[made], out)?;
        Ok(Exit::Done)
    }
}

impl Restore {
    fn run(&self, at: &At<'_>, out: &mut Out<'_>) -> Outcome {
        let number = match self.generation {
            Some(number) => number,
            None => at.last()?,
        };
        let restored = reading(at, ("restored", self.rate), "nothing was restored", |options| {
            at.backups.restore_with(number, &self.path, options)
        });
        restored.map_err(unrestorable)?;
        let path = self.path.display().to_string();
        if at.json {
            out.json(&json!({ "path": path, "generation": number }))?;
        } else {
            out.line(format!("{}: generation {number}", plain(&path)))?;
        }
        Ok(Exit::Done)
    }
}

impl Prune {
    fn run(&self, at: &At<'_>, out: &mut Out<'_>) -> Outcome {
        let policy = PrunePolicy::default()
            .keep_last(self.keep_last.unwrap_or(0))
            .keep_younger(self.keep_younger.unwrap_or_default());
        let pruned = Progress::during("pruning", || at.backups.prune(&policy))?;
        if at.json {
            out.json(&json!({ "deleted": pruned.generations, "objects": pruned.objects }))?;
            return Ok(Exit::Done);
        }
        let generations = count(pruned.generations.len() as u64, "generation", "generations");
        out.line(format!("{generations} and {} deleted", count(pruned.objects, "object", "objects")))?;
        Ok(Exit::Done)
    }
}

/// One line of a list.
fn line(made: &Generation) -> String {
    let moment = |at: SystemTime| clock::moment(millis_of(at), 0);
    let proof = match made.proof {
        None => "not proven".to_owned(),
        Some(proof) if proof.passed => format!("proven {}", moment(proof.at)),
        Some(proof) => format!("proof FAILED {}", moment(proof.at)),
    };
    format!(
        "generation {}  {}  database {}  {}, {}, {} copied  {proof}",
        made.number,
        moment(made.created),
        &made.database[..8],
        count(made.files, "file", "files"),
        size(made.bytes),
        size(made.bytes_copied),
    )
}

fn as_json(made: &Generation) -> Value {
    let proof = made.proof.map(|proof| json!({ "at": millis_of(proof.at), "passed": proof.passed }));
    json!({
        "generation": made.number,
        "created": millis_of(made.created),
        "database": made.database,
        "sequence": made.sequence,
        "files": made.files,
        "bytes": made.bytes,
        "bytes_copied": made.bytes_copied,
        "proof": proof,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_no_directories() {
        assert_eq!(address(Path::new("s3://bucket/a")), Some("s3://bucket/a"));
        assert_eq!(address(Path::new("s3/bucket")), None);
        for unknown in ["S3://bucket/a", "s3a://bucket", "s3:/bucket", "https://host/bucket", "gs://b"] {
            assert_eq!(known_address(Path::new(unknown)).unwrap_err().exit, Exit::Usage, "{unknown}");
        }
        for known in
            ["s3://bucket/a", "./S3://bucket", "dir", "a:b/c", "C:/dir", "C:", "/mnt/a:/b", ":/x", "1a:/b"]
        {
            assert!(known_address(Path::new(known)).is_ok(), "{known}");
        }
    }

    /// With `.` it was inside of the database.
    #[test]
    fn the_scratch_folder_is_beside_the_database_whatever_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("db").join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        let beside = std::fs::canonicalize(dir.path()).unwrap();
        for path in [dir.path().join("db"), inner.join("..")] {
            assert_eq!(folder_of(&path).unwrap(), beside);
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            folder_of(Path::new(".")).unwrap(),
            std::fs::canonicalize(here.parent().unwrap()).unwrap()
        );
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("20MiB"), Ok(20 << 20));
        assert_eq!(bytes("1"), Ok(1));
        for bad in ["", "0", "MiB", "1 MiB", "1mb", "-1", "99999999999GiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
