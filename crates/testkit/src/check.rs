//! The oracle: opens the database after a crash and compares it with the promises.

use std::collections::BTreeMap;
use std::path::Path;

use tidesdb::Db;
use tidesdb_io::Env;

use crate::model::{Contents, wall_millis};
use crate::world::{Config, MARK, PATH, Promises, checkpoint_path};

/// Strictness of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Everything acknowledged must be present: the process died, but the machine did not.
    pub everything: bool,
    /// Also writes, reads back, verifies and reopens the database.
    pub thorough: bool,
}

/// Reads all families.
///
/// # Errors
/// Returns the engine's error as text.
pub fn dump(db: &Db) -> Result<Contents, String> {
    let mut out = Contents::new();
    for name in db.families() {
        let family = db.family(&name).map_err(|e| format!("family {name:?}: {e}"))?;
        let mut map = BTreeMap::new();
        for item in family.iter().map_err(|e| e.to_string())? {
            let (k, v) = item.map_err(|e| format!("iterating {name:?}: {e}"))?;
            let got = family.get(&k).map_err(|e| format!("get: {e}"))?;
            if got.as_deref() != Some(&v[..]) {
                return Err(format!("get and iterator differ for a key of {name:?}"));
            }
            map.insert(k.to_vec(), v.to_vec());
        }
        out.insert(name, map);
    }
    Ok(out)
}

/// Returns the number of the last commit in `contents`.
pub(crate) fn mark(contents: &Contents) -> usize {
    let mark = contents.get(tidesdb::DEFAULT_FAMILY).and_then(|f| f.get(MARK));
    mark.and_then(|m| String::from_utf8_lossy(m).parse().ok()).unwrap_or(0)
}

/// Opens the database on `env` and compares it with `promises`. Returns the number of recovered commits.
///
/// # Errors
/// Returns a description of the first violation.
pub fn recovered(env: &Env, config: &Config, promises: &Promises, demand: Demand) -> Result<usize, String> {
    let mut config = *config;
    config.sync = tidesdb::SyncMode::Full;
    let db = match config.open(env, Path::new(PATH)) {
        Ok(db) => db,
        Err(e) => return Err(format!("refused open: {e}")),
    };
    let now = wall_millis(&*env.clock);
    let contents = dump(&db)?;
    let p = mark(&contents);
    if p < promises.durable {
        return Err(format!("lost acknowledged durable commits: {p} of {} left", promises.durable));
    }
    if demand.everything && p < promises.acked {
        return Err(format!("lost acknowledged commits: {p} of {} left", promises.acked));
    }
    if p > promises.model.commits.len() {
        return Err(format!("commit {p} was never made"));
    }
    let expected = |families| promises.model.contents(families, p, now);
    let before_open = !promises.opened && promises.families_before.is_empty();
    let fits = contents == expected(&promises.families_after)
        || contents == expected(&promises.families_before)
        || (before_open && contents.values().all(BTreeMap::is_empty));
    if !fits {
        return Err(format!(
            "contents are not those after commit {p}: {}",
            difference(&contents, &expected(&promises.families_after))
        ));
    }
    if demand.thorough {
        thorough(db, env, &config, &contents)?;
    } else {
        db.abandon();
    }
    Ok(p)
}

/// Reads the database as a reader beside the writer does, without recovery, and compares what it shows with `promises`.
/// Returns the number of commits shown.
///
/// # Errors
/// Returns a description of the first violation.
pub fn shown(env: &Env, promises: &Promises) -> Result<usize, String> {
    let reader = Db::options(PATH).env(env.clone()).open_reader().map_err(|e| format!("a reader: {e}"))?;
    let contents = dump(&reader.view()).map_err(|e| format!("a reader: {e}"))?;
    let p = mark(&contents);
    let now = wall_millis(&*env.clock);
    let expected = |families| promises.model.contents(families, p, now);
    if p < promises.durable || p > promises.model.commits.len() {
        return Err(format!("a reader shows {p} commits, {} are durable", promises.durable));
    }
    if contents != expected(&promises.families_after) && contents != expected(&promises.families_before) {
        let difference = difference(&contents, &expected(&promises.families_after));
        return Err(format!("a reader does not show the contents after commit {p}: {difference}"));
    }
    Ok(p)
}

fn thorough(db: Db, env: &Env, config: &Config, contents: &Contents) -> Result<(), String> {
    let report = db.verify().map_err(|e| format!("verify: {e}"))?;
    if !report.is_ok() {
        return Err(format!("verify: {report}"));
    }
    db.put(b"after", b"crash").map_err(|e| format!("first write: {e}"))?;
    db.abandon();
    let db = config.open(env, Path::new(PATH)).map_err(|e| format!("second open: {e}"))?;
    let mut again = dump(&db)?;
    let default = again.get_mut(tidesdb::DEFAULT_FAMILY).ok_or("no default family")?;
    if default.remove(b"after".as_slice()).is_none() {
        return Err("the first write after recovery was lost".into());
    }
    if again != *contents {
        return Err(format!("the second open differs: {}", difference(&again, contents)));
    }
    db.close().map_err(|e| format!("close: {e}"))?;
    let db = config.open(env, Path::new(PATH)).map_err(|e| format!("third open: {e}"))?;
    let report = db.recovery_report();
    if !report.clean {
        return Err(format!("a clean close was followed by recovery: {report}"));
    }
    db.abandon();
    Ok(())
}

/// Opens each checkpoint whose call returned and compares it with the model.
///
/// # Errors
/// Returns a description of the first violation.
pub fn checkpoints(env: &Env, config: &Config, promises: &Promises) -> Result<usize, String> {
    let now = wall_millis(&*env.clock);
    for (n, commits) in &promises.checkpoints {
        let db = config.open(env, &checkpoint_path(*n)).map_err(|e| format!("checkpoint {n}: {e}"))?;
        let contents = dump(&db)?;
        let p = mark(&contents);
        if p < *commits {
            return Err(format!("checkpoint {n} holds {p} of {commits} commits"));
        }
        let values = |c: &Contents| c.values().cloned().collect::<Vec<_>>();
        let default = promises.model.contents(&[(0, "default".into())].into(), p, now);
        if values(&default)[0] != contents[tidesdb::DEFAULT_FAMILY] {
            return Err(format!("checkpoint {n} differs from the model at commit {p}"));
        }
        db.abandon();
    }
    Ok(promises.checkpoints.len())
}

/// Describes the first difference, for people.
pub fn difference(got: &Contents, want: &Contents) -> String {
    let names = |c: &Contents| c.keys().cloned().collect::<Vec<_>>();
    if names(got) != names(want) {
        return format!("families {:?}, expected {:?}", names(got), names(want));
    }
    for (name, want) in want {
        let got = &got[name];
        for key in want.keys().chain(got.keys()) {
            let (g, w) = (got.get(key), want.get(key));
            if g != w {
                let show = |v: Option<&Vec<u8>>| v.map_or("nothing".into(), |v| format!("{} bytes", v.len()));
                return format!(
                    "family {name:?}, key {:?}: {} instead of {}",
                    String::from_utf8_lossy(key),
                    show(g),
                    show(w)
                );
            }
        }
    }
    "none".into()
}
