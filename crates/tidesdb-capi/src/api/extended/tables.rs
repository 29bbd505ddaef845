//! Sorted rows: tables that are built, and tables that are taken.

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use tidesdb_io::program;

use crate::abi::Code;
use crate::abi::extended::{COPY, Ingested, LINK, MOVE, Tables, WriteOptions};
use crate::failure::{Answer, answer, invalid};
use crate::handle::Handle;
use crate::memory;
use crate::pointer::{In, Out};
use crate::state::tables::{self, Transfer};
use crate::state::{self, ObjectKind, Op};

use super::figures::Texts;
use super::writes::{operations, writing};

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_builder_new(cf: Handle, stem: In<c_char>, builder: Out<Handle>) -> Code {
    answer(|| {
        builder.check()?;
        let stem = if stem.is_null() { None } else { Some(stem.path()?) };
        builder.set(tables::new(cf, stem)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_builder_put(
    builder: Handle,
    key: In<u8>,
    key_size: usize,
    value: In<u8>,
    value_size: usize,
    options: In<WriteOptions>,
) -> Code {
    answer(|| {
        let op = Op::Put(key.key(key_size)?, value.bytes(value_size)?);
        tables::add(builder, op, &writing(options)?.without_sync()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_builder_add(
    builder: Handle,
    kinds: In<u8>,
    bytes: In<u8>,
    sizes: In<usize>,
    count: usize,
    options: In<WriteOptions>,
) -> Code {
    answer(|| {
        let how = writing(options)?.without_sync()?;
        tables::add_all(builder, operations(kinds, bytes, sizes, count)?, &how)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_builder_finish(
    builder: Handle,
    paths: Out<*mut *const c_char>,
    count: Out<usize>,
) -> Code {
    answer(|| {
        paths.check()?;
        count.check()?;
        let made = tables::finish(builder)?;
        let mut texts = Texts::default();
        let bytes = |path: &PathBuf| program::bytes_of(path.as_os_str()).unwrap_or_default().to_vec();
        let places: Vec<usize> = made.iter().map(|path| texts.add(bytes(path))).collect();
        let array = memory::copy_packed(places.len(), &texts.0, |n, base| base.wrapping_add(places[n]));
        let array = array.inspect_err(|_| made.iter().for_each(|path| remove(path)))?;
        paths.set(array);
        count.set(places.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_builder_commit(
    builder: Handle,
    options: In<WriteOptions>,
    taken: Out<Ingested>,
) -> Code {
    answer(|| {
        let how = writing(options)?.without_expiry()?;
        check(taken)?;
        tell(tables::take(builder, &how)?, taken)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_builder_free(builder: Handle) {
    if builder != Handle::NULL {
        answer(|| state::free(builder, ObjectKind::Builder));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_ingest(
    db: Handle,
    parts: In<Tables>,
    count: usize,
    transfer: c_int,
    options: In<WriteOptions>,
    taken: Out<Ingested>,
) -> Code {
    answer(|| {
        let how = writing(options)?;
        check(taken)?;
        let transfer = match transfer {
            COPY => Transfer::Copy,
            LINK => Transfer::Link,
            MOVE => Transfer::Move,
            _ => return Err(invalid!("the transfer is none of TDB_X_COPY, TDB_X_LINK, TDB_X_MOVE")),
        };
        let parts = parts.items(count)?.iter().map(|part| Ok((Handle::of_word(part.cf), paths(part)?)));
        tell(tables::ingest(db, parts, transfer, &how)?, taken)
    })
}

/// Removes a table and its values, whose path the caller will not get.
fn remove(path: &Path) {
    let mut values = path.as_os_str().to_owned();
    values.push(".vlog");
    let _ = (std::fs::remove_file(path), std::fs::remove_file(values));
}

/// Returns the paths of tables.
fn paths(part: &Tables) -> Answer<Vec<&Path>> {
    let paths = In::from_caller(part.paths).items(part.count)?;
    paths.iter().map(|path| In::<c_char>::from_caller(*path).path()).collect()
}

fn check(taken: Out<Ingested>) -> Answer {
    if taken.is_null() { Ok(()) } else { taken.check_growing().map(drop) }
}

fn tell(ingested: tidesdb::Ingested, taken: Out<Ingested>) -> Answer {
    let tidesdb::Ingested { seq, tables, rows, bytes, .. } = ingested;
    if taken.is_null() { Ok(()) } else { taken.set_growing(&Ingested { size: 0, seq, tables, rows, bytes }) }
}
