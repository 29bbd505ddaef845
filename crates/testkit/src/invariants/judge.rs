//! Opens a disk after a crash and checks the invariant and the promises.

use std::path::Path;

use tidesdb::{DEFAULT_FAMILY, Db, SyncMode};
use tidesdb_io::Env;

use super::{Contents, FamilyKey, Promises, SECOND, Work, is_receipt, receipt};
use crate::check::dump;
use crate::world::{Config, PATH};

pub use crate::check::Demand;

/// Opens the database on `env` and checks it. Returns the number of commits it holds.
///
/// # Errors
/// Returns a description of the first violation.
pub fn recovered(
    env: &Env,
    config: &Config,
    (work, promises): (Work, &Promises),
    demand: Demand,
) -> Result<usize, String> {
    let config = Config { sync: SyncMode::Full, ..*config };
    let db = config.open(env, Path::new(PATH)).map_err(|e| format!("refused open: {e}"))?;
    let contents = both(&db)?;
    let commits = if contents.is_empty() { 0 } else { look(work, &contents, promises)? };
    if commits < promises.durable {
        return Err(format!("lost acknowledged durable commits: {commits} of {} left", promises.durable));
    }
    if demand.everything && commits < promises.acked {
        return Err(format!("lost acknowledged commits: {commits} of {} left", promises.acked));
    }
    if demand.thorough {
        thorough(&db, &contents)?;
    }
    db.abandon();
    Ok(commits)
}

/// Checks `contents`: the invariant, then the receipts, then every key. Returns the number of commits they hold.
///
/// # Errors
/// Returns a description of the first violation.
pub(super) fn look(work: Work, contents: &Contents, promises: &Promises) -> Result<usize, String> {
    work.holds(contents)?;
    let commits = contents.keys().filter(|place| is_receipt(place)).count();
    let made = promises.commits.len();
    if commits > made {
        return Err(format!("{commits} receipts of {made} commits"));
    }
    let expected = promises.contents(commits);
    let differs = |place: &&FamilyKey| contents.get(*place) != expected.get(*place);
    match expected.keys().chain(contents.keys()).find(differs) {
        Some((second, key)) => {
            let what = if is_receipt(&(*second, key.clone())) { "receipt" } else { "value" };
            let key = String::from_utf8_lossy(key);
            Err(format!("{what} {key:?} is not as after the first {commits} commits of {made}"))
        }
        None => Ok(commits),
    }
}

/// Reads both families; the second one may not exist yet.
fn both(db: &Db) -> Result<Contents, String> {
    let mut contents = Contents::new();
    for (name, rows) in dump(db)? {
        let second = name == SECOND;
        if !second && name != DEFAULT_FAMILY {
            return Err(format!("an unexpected family {name:?}"));
        }
        contents.extend(rows.into_iter().map(|(key, value)| ((second, key), value)));
    }
    Ok(contents)
}

/// Verifies the files and runs a first transaction.
fn thorough(db: &Db, contents: &Contents) -> Result<(), String> {
    let report = db.verify().map_err(|e| format!("verify: {e}"))?;
    if !report.is_ok() {
        return Err(format!("verify: {report}"));
    }
    if contents.is_empty() {
        return Ok(());
    }
    let second = db.family(SECOND).map_err(|e| e.to_string())?;
    let (_, key) = receipt(u64::from(u32::MAX));
    let wrote = db.transact(|tx| {
        tx.put(db.default_family(), &key, b"first")?;
        tx.put(&second, &key, b"second")
    });
    wrote.map_err(|e| format!("a first transaction: {e}"))?;
    let there = db.get(&key).map_err(|e| e.to_string())?.is_some()
        && second.get(&key).map_err(|e| e.to_string())?.is_some();
    if there { Ok(()) } else { Err("a first transaction is not seen".into()) }
}
