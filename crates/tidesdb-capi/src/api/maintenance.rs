//! Flush, merge, sync, and copies of the database.

use std::ffi::{c_char, c_int};
use std::ops::Bound;
use std::path::Path;

use crate::abi::Code;
use crate::failure::{Answer, answer, answer_or, invalid};
use crate::handle::Handle;
use crate::pointer::In;
use crate::state::{self, Database};
use crate::{callback, system};

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_flush_memtable(cf: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        Ok(state::family(cf)?.engine().start_flush()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_is_flushing(cf: Handle) -> c_int {
    if cf == Handle::NULL {
        return 0;
    }
    answer_or(0, || {
        callback::not_in_order()?; // the figures are behind locks of merges
        Ok(c_int::from(state::family(cf)?.engine().stats().flushing))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_is_compacting(cf: Handle) -> c_int {
    if cf == Handle::NULL {
        return 0;
    }
    answer_or(0, || {
        callback::not_in_order()?;
        Ok(c_int::from(state::family(cf)?.engine().stats().compacting))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_compact(cf: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        Ok(state::family(cf)?.engine().compact()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_compact_range(
    cf: Handle,
    start: In<u8>,
    start_size: usize,
    end: In<u8>,
    end_size: usize,
) -> Code {
    answer(|| {
        callback::not_in_order()?;
        let (start, end) = (start.end(start_size)?, end.end(end_size)?);
        if start.is_none() && end.is_none() {
            return Err(invalid!("a range needs at least one end; use tidesdb_compact for the whole family"));
        }
        let start = start.map_or(Bound::Unbounded, Bound::Included);
        let end = end.map_or(Bound::Unbounded, Bound::Included);
        Ok(state::family(cf)?.engine().compact_range((start, end))?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_purge_cf(cf: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        Ok(state::family(cf)?.engine().compact()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_purge(db: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        Ok(state::database(db)?.engine()?.compact()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_sync_wal(cf: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        state::family(cf)?.database()?.engine()?.sync()?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_backup(db: Handle, directory: In<c_char>) -> Code {
    answer(|| copy_to(db, directory, |database, path| Ok(database.engine()?.backup(path)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_checkpoint(db: Handle, directory: In<c_char>) -> Code {
    answer(|| copy_to(db, directory, |database, path| Ok(database.engine()?.checkpoint(path)?)))
}

fn copy_to(db: Handle, directory: In<c_char>, copy: impl FnOnce(&Database, &Path) -> Answer) -> Answer {
    callback::not_in_order()?;
    let database = state::database(db)?;
    let path = directory.path()?;
    system::check_parent(path)?;
    if path.exists() && !path.is_dir() {
        return Err(invalid!("the target is not a directory"));
    }
    if database.is_at(path) {
        return Err(invalid!("the target is the database itself"));
    }
    copy(&database, path)
}
