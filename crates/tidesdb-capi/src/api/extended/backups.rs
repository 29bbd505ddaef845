//! Backups by generations.

use std::ffi::{c_char, c_int};
use std::ptr::null;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidesdb::backup::{CreateOptions, PrunePolicy, RestoreOptions};

use crate::abi::extended::{BackupOptions, Generation};
use crate::abi::{Code, Objstore};
use crate::callback;
use crate::failure::{Answer, answer, invalid};
use crate::handle::Handle;
use crate::memory;
use crate::pointer::{In, Out};
use crate::state::generations;

use super::figures::{Texts, give};

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_open(directory: In<c_char>, backups: Out<Handle>) -> Code {
    answer(|| {
        backups.check()?;
        backups.set(generations::open(directory.path()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_open_store(store: Out<Objstore>, backups: Out<Handle>) -> Code {
    answer(|| {
        backups.check()?;
        backups.set(generations::open_store(store.address())?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_create(
    backups: Handle,
    db: Handle,
    options: In<BackupOptions>,
    number: Out<u64>,
) -> Code {
    answer(|| {
        let options = options.growing()?;
        let stop = Arc::default();
        let mut how = CreateOptions::default()
            .bytes_per_second(options.bytes_per_second)
            .stop(&stop)
            .progress(callback::progress(&options, &stop));
        if !options.scratch.is_null() {
            how = how.prove(In::from_caller(options.scratch).path()?);
        }
        number.set(generations::create(backups, db, &how)?.number);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_list(
    backups: Handle,
    generations: Out<*mut Generation>,
    count: Out<usize>,
) -> Code {
    answer(|| {
        generations.check()?;
        count.check()?;
        let all = generations::on(backups, |backups| backups.list())?;
        let mut texts = Texts::default();
        let places: Vec<usize> = all.iter().map(|one| texts.add(&one.database)).collect();
        let array = memory::copy_packed(all.len(), &texts.0, |n, base| {
            let one = &all[n];
            Generation {
                number: one.number,
                created_ms: millis(one.created),
                seq: one.sequence,
                files: one.files,
                bytes: one.bytes,
                bytes_copied: one.bytes_copied,
                proven_ms: one.proof.map_or(0, |proof| millis(proof.at)),
                is_proven: c_int::from(one.proof.is_some_and(|proof| proof.passed)),
                database: base.wrapping_add(places[n]),
            }
        })?;
        generations.set(array);
        count.set(all.len());
        Ok(())
    })
}

/// Returns the options of a call that reads a generation.
fn reading(options: In<BackupOptions>) -> Answer<RestoreOptions> {
    let options = options.growing()?;
    if !options.scratch.is_null() {
        return Err(invalid!("scratch is for a new generation only"));
    }
    let stop = Arc::default();
    Ok(RestoreOptions::default()
        .bytes_per_second(options.bytes_per_second)
        .stop(&stop)
        .progress(callback::progress(&options, &stop)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_verify(
    backups: Handle,
    number: u64,
    faults: Out<u64>,
    text: Out<*mut c_char>,
) -> Code {
    tidesdb_x_backups_verify_with(backups, number, In::from_caller(null()), faults, text)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_verify_with(
    backups: Handle,
    number: u64,
    options: In<BackupOptions>,
    faults: Out<u64>,
    text: Out<*mut c_char>,
) -> Code {
    answer(|| {
        faults.check()?;
        let how = reading(options)?;
        let found = generations::on(backups, |backups| backups.verify_with(number, &how))?;
        if !text.is_null() {
            let lines: Vec<String> = found.damage.iter().map(ToString::to_string).collect();
            give(&lines.join("\n"), text)?;
        }
        faults.set(found.damage.len() as u64);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_restore(backups: Handle, number: u64, path: In<c_char>) -> Code {
    tidesdb_x_backups_restore_with(backups, number, path, In::from_caller(null()))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_restore_with(
    backups: Handle,
    number: u64,
    path: In<c_char>,
    options: In<BackupOptions>,
) -> Code {
    answer(|| {
        let (path, how) = (path.path()?, reading(options)?);
        generations::on(backups, |backups| backups.restore_with(number, path, &how))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_delete(backups: Handle, number: u64) -> Code {
    answer(|| generations::on(backups, |backups| backups.delete(number)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_prune(
    backups: Handle,
    keep_last: u64,
    keep_younger_ms: u64,
    removed: Out<usize>,
) -> Code {
    answer(|| {
        let young = Duration::from_millis(keep_younger_ms);
        let policy = PrunePolicy::default().keep_last(keep_last).keep_younger(young);
        removed.set(generations::on(backups, |backups| backups.prune(&policy))?.generations.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_repair(backups: Handle, found: Out<usize>) -> Code {
    answer(|| {
        found.set(generations::on(backups, |backups| backups.repair())?.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_backups_free(backups: Handle) {
    if backups != Handle::NULL {
        answer(|| generations::free(backups));
    }
}

/// Returns UNIX milliseconds; 0 for a time before 1970.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
