//! Makes a generation.
//!
//! ```text
//! take the store over, or check that it is still ours -> flush up to a boundary -> copy what the store lacks -> describe -> index
//! ```
//!
//! The state at the boundary names tables and value logs. A table never changes. A value log only grows, and its bytes up to the length that is
//! copied never change either. So a file is the one that an earlier generation has if its database, its number and its salt are the same; what
//! the store has of it is shared, and only what follows is copied. An object whose length in the list of the store is wrong is not shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidesdb_io::Access;

use super::contents::{Contents, Counted, FileId, Part, StoredFile, files_of};
use super::fetch::{FAILURES_MAX, PAUSE};
use super::names::ObjectId;
use super::pace::{Pace, Paced};
use super::writer::{self, Writer, of_store};
use super::{CreateOptions, Generation, Shared, prove};
use crate::db::{Db, OpenOptions};
use crate::engine::Engine;
use crate::files::FileKind;
use crate::flush::{self, Prefix};
use crate::maintenance::MaintenanceCtx;
use crate::order::Gather;
use crate::store::Body;
use crate::types::{FILE_NUMBER_MAX, FamilyId, WalId};
use crate::version::{Change, State, VersionEdit};
use crate::wal::layout::UNIT;
use crate::{Error, Result};

/// What the store has of files of earlier generations of a database.
type Stored = BTreeMap<FileId, Vec<Part>>;

/// Ends the time in which a generation may name objects that the index does not name.
struct Making<'a>(&'a Shared);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if let super::Writing::Yes(writer) = &mut *self.0.writer.lock() {
            writer.pinned = None;
        }
    }
}

/// Makes a generation of `db`. Returns it, and how to open a copy of it in the folder for the proof.
pub(super) fn run(
    shared: &Shared,
    db: &Db,
    options: &CreateOptions,
    pace: &Pace<'_>,
) -> Result<(Generation, Option<OpenOptions>)> {
    let engine = &db.inner.engine;
    let _call = engine.write.begin_call()?;
    if engine.write.options.read_only {
        return Err(Error::ReadOnly);
    }
    let ctx = &engine.maintenance;
    let uuid = ctx.versions.identity().uuid;
    let (number, stored) = shared.with_writer(|writer| begin(shared, writer, &uuid))?;
    let making = Making(shared);
    let made = make(shared, db, options, (number, &stored), pace);
    drop(making);
    // Copies that did not become a generation, of this call or of one that was killed, have left objects. If they cannot be removed now, the next
    // change tries again.
    if !matches!(made, Err(Error::Locked { .. }))
        && let Err(error) = shared.with_writer(Writer::collect)
    {
        tracing::warn!(%error, "objects that no generation needs stay in the store of the backups");
    }
    made
}

/// Makes generation `number` of what the store has of the database, and of copies of the rest.
fn make(
    shared: &Shared,
    db: &Db,
    options: &CreateOptions,
    (number, stored): (u64, &Stored),
    pace: &Pace<'_>,
) -> Result<(Generation, Option<OpenOptions>)> {
    let engine = &db.inner.engine;
    let ctx = &engine.maintenance;
    let prefix = prefix(engine)?;
    let contents = Contents::new(
        number,
        ctx.versions.identity(),
        shared.now(),
        prefix.boundary,
        state_of(ctx, &prefix)?,
    );
    let all = to_copy(ctx, &prefix, stored, &contents)?;
    let (missing, bytes) = all.iter().fold((0, 0), |(a, b), file| (a + file.missing(), b + file.len));
    pace.expect(missing + if options.scratch.is_some() { bytes } else { 0 });
    let contents = copy_all(shared, ctx, all, contents, pace)?;
    let contents = match options.scratch {
        Some(_) => Contents { counted: Some(count(shared, db, &prefix, pace)?), ..contents },
        None => contents,
    };
    let scratch = options.scratch.as_ref().map(|path| prove::options_of(engine, path, &prefix.families));
    drop(prefix); // kept the files alive, also of families dropped meanwhile
    let made = shared.with_writer(|writer| finish(shared, writer, &contents))?;
    Ok((made, scratch))
}

/// Begins a generation. Returns its number, and what the store has of the database.
fn begin(shared: &Shared, writer: &mut Writer, uuid: &[u8; 16]) -> Result<(u64, Stored)> {
    if writer.pinned.is_some() {
        return Err(Error::Busy { cause: "another generation that is being made" });
    }
    writer.check()?;
    if writer.index.next >= FILE_NUMBER_MAX {
        return Err(Error::Exhausted { what: "numbers of generations".into() });
    }
    let lengths = writer::list(&*shared.store)?;
    // What a failed proof has read may be damaged, whatever its length.
    let mut doubtful: BTreeSet<ObjectId> = BTreeSet::new();
    let generations = writer.index.generations.clone();
    for entry in generations.iter().filter(|entry| entry.failed != 0) {
        if let Ok(files) = writer.files(entry) {
            doubtful.extend(files.iter().flat_map(StoredFile::objects));
        }
    }
    let is_whole =
        |part: &&Part| lengths.get(&part.object) == Some(&part.bytes) && !doubtful.contains(&part.object);
    let mut stored = Stored::new();
    for entry in generations.iter().filter(|entry| entry.uuid == *uuid) {
        let Ok(files) = writer.files(entry) else { continue }; // a verification reports it
        for file in &*files {
            stored.insert(file.id, file.parts.iter().take_while(is_whole).copied().collect());
        }
    }
    let pinned: BTreeSet<ObjectId> = stored.values().flatten().map(|part| part.object).gather();
    writer.pinned = Some(pinned);
    Ok((writer.index.next, stored))
}

fn prefix(engine: &Engine) -> Result<Prefix> {
    let catalog = engine.catalog.lock();
    let prefix = flush::prefix(&engine.maintenance)?;
    drop(catalog);
    Ok(prefix)
}

/// The state of a database with these tables and without a log, which begins above every sequence number that was assigned.
fn state_of(ctx: &MaintenanceCtx, prefix: &Prefix) -> Result<State> {
    let mut state = prefix.state.clone();
    let used = state.newest_seq().max(prefix.boundary) * UNIT / ctx.versions.identity().wal_segment_bytes;
    let wal = WalId(state.log_start.0.max(used) + 1);
    state.apply(&VersionEdit::from_iter([Change::LogStart { wal }]))?;
    Ok(state)
}

/// A file to copy: what the store has of it, and its length.
struct ToCopy {
    id: FileId,
    parts: Vec<Part>,
    len: u64,
}

impl ToCopy {
    fn missing(&self) -> u64 {
        self.len - self.parts.iter().map(|part| part.bytes).sum::<u64>()
    }
}

/// The files of a generation, with what the store has of them.
fn to_copy(
    ctx: &MaintenanceCtx,
    prefix: &Prefix,
    stored: &Stored,
    contents: &Contents,
) -> Result<Vec<ToCopy>> {
    let owners: BTreeMap<FamilyId, _> = prefix.families.iter().map(|family| (family.id, family)).gather();
    let mut all = Vec::new();
    for family in contents.state.families.values() {
        let values = owners.get(&family.id).map(|core| &core.vlog);
        for (id, len) in files_of(family) {
            let len = match (len, id.kind) {
                (Some(len), _) => len,
                // Nothing that the state names lies behind this length, and no byte before it changes.
                (None, FileKind::Vlog(vlog)) => match values.and_then(|values| values.stable(vlog)) {
                    // After a failed write the file may be shorter than what was reserved.
                    Some(len) => len.min(length_of(ctx, &id)?),
                    None => length_of(ctx, &id)?, // of an earlier session
                },
                (None, _) => length_of(ctx, &id)?,
            };
            all.push(ToCopy { parts: shared_parts(stored.get(&id), &id, len), id, len });
        }
    }
    Ok(all)
}

fn copy_all(
    shared: &Shared,
    ctx: &MaintenanceCtx,
    all: Vec<ToCopy>,
    mut contents: Contents,
    pace: &Pace<'_>,
) -> Result<Contents> {
    contents.copied = all.iter().map(ToCopy::missing).sum();
    for file in all {
        pace.look()?;
        contents.files.push(copy(shared, ctx, file, pace)?);
    }
    Ok(contents)
}

fn length_of(ctx: &MaintenanceCtx, id: &FileId) -> Result<u64> {
    let name = id.name();
    let file = ctx.dir.open(&name, Access::Read).map_err(|e| Error::io("open", &name, e))?;
    file.len().map_err(|e| Error::io("stat", &name, e))
}

/// The parts of a file of `len` bytes that the store has. A table is shared as a whole or not at all.
fn shared_parts(stored: Option<&Vec<Part>>, id: &FileId, len: u64) -> Vec<Part> {
    let mut rest = len;
    let fits = |part: &&Part| {
        let next = rest.checked_sub(part.bytes);
        rest = next.unwrap_or(rest);
        next.is_some()
    };
    let parts: Vec<Part> = stored.into_iter().flatten().take_while(fits).copied().collect();
    if rest > 0 && matches!(id.kind, FileKind::Table(_)) { Vec::new() } else { parts }
}

/// Copies what the store lacks of a file.
fn copy(shared: &Shared, ctx: &MaintenanceCtx, file: ToCopy, pace: &Pace<'_>) -> Result<StoredFile> {
    let missing = file.missing();
    let ToCopy { id, mut parts, len } = file;
    if missing == 0 {
        return Ok(StoredFile { id, parts });
    }
    let name = id.name();
    let object = shared.with_writer(|writer| Ok(writer.name_object(id.object_kind())))?;
    let from = ctx.dir.open(&name, Access::Read).map_err(|e| Error::io("open", &name, e))?;
    let paced = Paced::new(&*from, len - missing, pace);
    let read = |buf: &mut [u8], at| paced.read(buf, at);
    put(shared, object, &Body::read(missing, &read), &mut || match paced.failure() {
        Some(e) => Err(e),
        None => shared.with_writer(Writer::check),
    })?;
    let crc = paced.crc(missing).map_err(|e| Error::io("read", &name, e))?;
    parts.push(Part { object, bytes: missing, crc });
    Ok(StoredFile { id, parts })
}

/// Puts an object. A put that fails is tried again if `may_go_on` allows it: a writer that takes the store over removes what others are
/// putting, perhaps after the next one has taken it over.
fn put(
    shared: &Shared,
    object: ObjectId,
    body: &Body<'_>,
    may_go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let name = object.to_string();
    for failures in 1.. {
        let Err(e) = shared.store.put(&name, body) else { break };
        may_go_on()?;
        let e = of_store("put", &name, e);
        if e.is_full() || failures == FAILURES_MAX || matches!(e, Error::InvalidArgument { .. }) {
            return Err(e);
        }
        shared.env.clock.sleep(PAUSE * failures);
    }
    Ok(())
}

/// Puts the description of the generation, then the index that names it.
fn finish(shared: &Shared, writer: &mut Writer, contents: &Contents) -> Result<Generation> {
    let bytes = contents.encode();
    let object = writer.name_object(super::names::ObjectKind::Generation);
    put(shared, object, &Body::bytes(&bytes), &mut || writer.check())?;
    let entry = contents.entry(object, &bytes);
    writer.change(|index| {
        index.next = contents.number + 1;
        index.generations.push(entry.clone());
        Ok(entry.generation())
    })
}

/// Counts the rows at the boundary.
fn count(shared: &Shared, db: &Db, prefix: &Prefix, pace: &Pace<'_>) -> Result<Counted> {
    let at = shared.now();
    let engine = &db.inner.engine;
    let options = prove::at_time(prove::options_of(engine, db.path(), &prefix.families), at);
    let view = options.view_of(Arc::clone(&engine.maintenance.dir), engine, prefix)?;
    let families = prove::rows_of(&view, pace)?;
    Ok(Counted { at, families })
}
