//! Sorted rows that go to tables, and tables that a database takes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidesdb::{Ingest, Ingested, SortedWriter, SyncMode, TableBuilder, WriteOptions};

use super::family::{Family, stricter};
use super::object::{self, Object};
use super::writing::{Op, Writing, bounds, each};
use super::{Database, OBJECTS};
use crate::callback;
use crate::failure::{Answer, Failure, invalid};
use crate::handle::{Handle, STALE};

const ENDED: Failure = invalid!("the builder has ended with its commit or its files: free it");

/// Writes sorted rows to tables, until it has ended.
pub(crate) struct Builder {
    rows: Option<Rows>,
    family: Arc<Family>,
    database: Arc<Database>,
}

/// Where the tables are written.
enum Rows {
    /// To files of the caller.
    Outside(TableBuilder),
    /// Into the folder of the database.
    Inside(SortedWriter),
}

/// How files come into the folder of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Copy,
    Link,
    Move,
}

fn builder<R>(handle: Handle, body: impl FnOnce(&mut Builder) -> Answer<R>) -> Answer<R> {
    callback::not_in_order()?;
    OBJECTS
        .with(handle, |object| if let Object::Builder(builder) = object { body(builder) } else { Err(STALE) })
}

/// Creates a builder of tables for a family: to files whose names begin with `stem`, or for [`take`].
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors.
pub(crate) fn new(cf: Handle, stem: Option<&Path>) -> Answer<Handle> {
    callback::not_in_order()?;
    let family = super::family(cf)?;
    let database = Arc::clone(&family.database()?);
    let rows = match stem {
        Some(stem) => Rows::Outside(family.engine().table_builder(stem)?),
        None => Rows::Inside(family.engine().sorted_writer()?),
    };
    let owner = database.handle();
    let builder = Builder { rows: Some(rows), family: Arc::clone(&family), database };
    object::insert(Object::Builder(Box::new(builder)), owner)
}

/// Adds a row.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors.
pub(crate) fn add(handle: Handle, op: Op<'_>, how: &Writing) -> Answer {
    builder(handle, |builder| builder.add(op, how))
}

/// Adds rows. After a failure, those before it were added.
///
/// # Errors
/// The first failure, with the number of its operation.
pub(crate) fn add_all<'a>(
    handle: Handle,
    mut ops: impl Iterator<Item = Answer<Op<'a>>>,
    how: &Writing,
) -> Answer {
    builder(handle, |builder| each(&mut ops, |op| builder.add(op, how)))
}

impl Builder {
    fn add(&mut self, op: Op<'_>, how: &Writing) -> Answer {
        let family = self.family.engine();
        let rows = match self.rows.as_mut().ok_or(ENDED)? {
            Rows::Outside(rows) => rows,
            Rows::Inside(writer) => writer.rows(),
        };
        match op {
            Op::Put(key, value) => {
                self.database.check_size(key, value)?;
                rows.put_expiring(key, value, how.expiry(family)?)?;
            }
            Op::Delete(key) => rows.delete(key)?,
            Op::Merge(key, operand) => rows.merge(key, operand)?,
            Op::DeleteRange(start, end) => rows.delete_range(bounds(start, end))?,
            Op::SingleDelete(_) => return Err(invalid!("tables have no single deletes: use a delete")),
            Op::DeletePrefix(_) => return Err(invalid!("tables have no deletes of prefixes: use a range")),
        }
        Ok(())
    }
}

/// Completes the tables of a builder with a stem, which ends. Returns their paths.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors, after which there is no file.
pub(crate) fn finish(handle: Handle) -> Answer<Vec<PathBuf>> {
    builder(handle, |builder| match builder.rows.take() {
        Some(Rows::Outside(rows)) => Ok(rows.finish()?),
        Some(inside) => {
            builder.rows = Some(inside);
            Err(invalid!("a builder without a stem has no files of its own: commit it"))
        }
        None => Err(ENDED),
    })
}

/// Commits the rows of a builder without a stem, which ends.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors, after which nothing was taken.
pub(crate) fn take(handle: Handle, how: &Writing) -> Answer<Ingested> {
    builder(handle, |builder| {
        let options = WriteOptions::default().sync(how.sync_for(&builder.family, &builder.database));
        match builder.rows.take() {
            Some(Rows::Inside(writer)) => Ok(writer.commit_with(&options)?),
            Some(outside) => {
                builder.rows = Some(outside);
                Err(invalid!("a builder with a stem writes files: finish it, and ingest them"))
            }
            None => Err(ENDED),
        }
    })
}

/// Takes tables for families of a database, as one commit.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors, after which nothing was taken.
pub(crate) fn ingest<'a>(
    database: Handle,
    parts: impl Iterator<Item = Answer<(Handle, Vec<&'a Path>)>>,
    transfer: Transfer,
    how: &Writing,
) -> Answer<Ingested> {
    callback::not_in_order()?;
    how.without_expiry()?;
    let database = super::database(database)?;
    let (mut tables, mut sync) = (Ingest::new(), database.sync());
    for part in parts {
        let (cf, paths) = part?;
        let family = super::family(cf)?;
        if !Arc::ptr_eq(&family.database()?, &database) {
            return Err(invalid!("the family belongs to another database"));
        }
        sync = stricter(sync, family.sync());
        tables = tables.tables(family.engine(), paths);
    }
    let sync: SyncMode = how.sync.unwrap_or(sync);
    tables = match transfer {
        Transfer::Copy => tables,
        Transfer::Link => tables.linking(),
        Transfer::Move => tables.moving(),
    };
    Ok(database.engine()?.ingest(&tables.options(WriteOptions::default().sync(sync)))?)
}
