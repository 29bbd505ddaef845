//! Flips one bit in a copy of the database, and checks that `verify` finds it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidesdb::{Db, Error};

use super::guide::Guide;
use crate::failure::{Failure, Outcome};
use crate::host;
use crate::text::grouped;

/// Copies the database in `copy` to `damaged`, flips a bit there, and checks the report. `db` is the original.
pub(super) fn flip_a_bit(db: &Db, copy: &Path, damaged: &Path, guide: &mut Guide<'_, '_>) -> Outcome<()> {
    guide.title("Bit rot")?;
    let started = host::now();
    let report = db.verify()?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    guide.promise(report.is_ok(), format!("verify: {report} ({took:.0} ms)"))?;

    copy_files(copy, damaged).map_err(|e| Failure::file("copy to", damaged, &e))?;
    let (table, at) = flip(damaged).map_err(|e| Failure::file("damage a table in", damaged, &e))?;
    let name = table.file_name().unwrap_or_default().to_string_lossy().into_owned();
    guide.say(format!("in a copy, one bit is flipped in byte {} of {name}", grouped(at)))?;
    let found = find_damage(damaged)?;
    for damage in &found {
        guide.show(damage.to_string())?;
    }
    let named = found.iter().any(|damage| matches!(damage, Error::Corrupt { file, .. } if **file == *name));
    guide.promise(named, "the damage is found, with file and offset")?;
    guide.promise(db.verify()?.is_ok(), "the original is unaffected")
}

/// Copies the files of a directory, without hard links.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Flips a bit in the data of the largest table in `dir`; returns the file and the offset.
fn flip(dir: &Path) -> io::Result<(PathBuf, u64)> {
    let tables = fs::read_dir(dir)?.filter_map(Result::ok).map(|e| e.path()).filter(|p| is_table(p));
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |m| m.len());
    let table = tables.max_by_key(size).ok_or(io::ErrorKind::NotFound)?;
    let mut bytes = fs::read(&table)?;
    let at = bytes.len() / 3;
    let byte = bytes.get_mut(at).ok_or(io::ErrorKind::UnexpectedEof)?;
    *byte ^= 0x10;
    fs::write(&table, bytes)?;
    Ok((table, at as u64))
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "klog")
}

/// Returns all damage found by opening and verifying.
fn find_damage(path: &Path) -> Outcome<Vec<Error>> {
    match Db::open(path) {
        Ok(db) => Ok(db.verify()?.damage),
        Err(e) if e.is_corruption() => Ok(vec![e]),
        Err(e) => Err(e.into()),
    }
}
