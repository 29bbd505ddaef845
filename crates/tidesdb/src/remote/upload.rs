//! Upload: brings the object store up to date.
//!
//! ```text
//! flush all families up to one boundary -> tables and value logs -> log from the boundary on -> manifest -> CURRENT
//!   -> delete what neither the new manifest nor this process needs
//! ```
//!
//! The tables of all families end at one boundary, so the store holds a prefix of the commits with or without a log.
//! Between two such rounds only the log grows: parts of the value logs that it refers to, then parts of the log, up to
//! what is durable locally. A commit never waits for an upload. A failed upload leaves the store as it was, and is
//! tried again.
//!
//! Whatever call fails last, a restore must find a prefix. So a part of the log is stored only if it continues the log that the stored
//! manifest begins, with all values that it refers to and no family that this manifest does not know. If it cannot, because segments or
//! value logs were removed meanwhile, a family was made, or the session is new, the round first stores a manifest without a log, which
//! says that the log begins behind all parts that this round adds (`part_with_log`).
//!
//! At most one upload runs at a time. All other work may continue meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidesdb_io::Access;
use tidesdb_sync::{Mutex, rank};

use super::{Catalog, Remote, object_name};
use crate::family::FamilyCore;
use crate::files::{self, CURRENT, FileKind};
use crate::flush::{self, Prefix};
use crate::maintenance::MaintenanceCtx;
use crate::order::Gather;
use crate::store::Body;
use crate::types::{FamilyId, SeqNo, VlogId, WalId};
use crate::version::{Image, State, VlogState};
use crate::wal::layout::{SEGMENT_HEADER_BYTES, UNIT};
use crate::wal::reader;
use crate::{Error, Result};

/// A log that has grown is uploaded at the latest this long after its previous upload.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Decides when an upload is due; called by the timekeeper thread.
#[derive(Debug, Default)]
pub struct Due {
    last_round: Duration,
    last_log: Duration,
}

impl Due {
    /// Returns true if something must be uploaded at `now`.
    pub fn tick(&mut self, ctx: &MaintenanceCtx, remote: &Remote, now: Duration) -> bool {
        if remote.retry.waits(now) {
            return false;
        }
        let changed = ctx.versions.installs() != remote.installs_seen.load(Ordering::SeqCst);
        if changed && now.saturating_sub(self.last_round) >= remote.options.interval {
            (self.last_round, self.last_log) = (now, now);
            return true;
        }
        let stored = remote.log_end.load(Ordering::SeqCst);
        if !remote.log_follows.load(Ordering::SeqCst) {
            return false;
        }
        let bytes = ctx.write.log.sequencer().written_end().saturating_sub(stored) * UNIT;
        let due = bytes >= remote.options.log_bytes || now.saturating_sub(self.last_log) >= LOG_PAUSE;
        if bytes > 0 && due {
            self.last_log = now;
        }
        bytes > 0 && due
    }
}

/// Uploads what is new. `catalog` is held while a family is created, dropped or renamed.
///
/// # Errors
/// `Io` of the store, of reading the files to upload, and those of a flush. The store keeps what it held, possibly with
/// more of the same.
pub fn run(ctx: &MaintenanceCtx, remote: &Remote, catalog: &Mutex<(), { rank::CATALOG }>) -> Result<()> {
    alone(ctx, remote, || {
        let seen = remote.installs_seen.load(Ordering::SeqCst);
        if !remote.kept.has_all() {
            remote.log_follows.store(false, Ordering::SeqCst);
        }
        let follows = remote.log_follows.load(Ordering::SeqCst);
        let is_same = seen == ctx.versions.installs();
        if follows && is_same && follow_log(ctx, remote)? {
            return Ok(());
        }
        if !remote.log_follows.load(Ordering::SeqCst) {
            remote.kept.begin(ctx.write.log.sequencer().tail());
        }
        loop {
            let catalog = catalog.lock();
            let prefix = flush::prefix(ctx)?;
            drop(catalog);
            match round(ctx, remote, &prefix) {
                // Its files are gone: the next prefix is one without it.
                Err(e) if prefix.families.iter().any(|family| family.was_lost(&e)) => {}
                done => return done,
            }
        }
    })
}

/// The last upload, after close has written everything to tables.
///
/// # Errors
/// As [`run`].
pub fn at_close(ctx: &MaintenanceCtx, remote: &Remote) -> Result<()> {
    alone(ctx, remote, || {
        remote.log_follows.store(false, Ordering::SeqCst);
        let installs = ctx.versions.installs();
        let (state, versions) = ctx.versions.pinned_state();
        let boundary = ctx.write.log.sequencer().tail();
        let prefix = Prefix { state, versions, families: ctx.write.all_families(), boundary, installs };
        round_without_log(ctx, remote, &prefix)
    })
}

/// Runs `upload` when no other upload runs, and records its outcome.
fn alone(ctx: &MaintenanceCtx, remote: &Remote, upload: impl FnOnce() -> Result<()>) -> Result<()> {
    ctx.write.health.check()?;
    let _one_at_a_time = remote.uploading.lock();
    let result = upload();
    match &result {
        Ok(()) => remote.retry.succeeded(),
        Err(e) => remote.failed(e, ctx.write.env.clock.mono()),
    }
    result
}

/// Stores `body` as the bytes of `file` from `offset` on.
fn store(remote: &Remote, file: &str, offset: u64, body: &Body<'_>) -> Result<()> {
    let object = object_name(file, offset);
    remote.put(&object, body).map_err(|e| Error::io("store", &format!("object {object}"), e))?;
    remote.objects.lock().add(file, offset, body.len());
    Ok(())
}

/// Uploads everything that `prefix` names, then a manifest that names it.
fn round(ctx: &MaintenanceCtx, remote: &Remote, prefix: &Prefix) -> Result<()> {
    if !remote.options.replicate_log {
        return round_without_log(ctx, remote, prefix);
    }
    put_files(ctx, remote, &prefix.state, &prefix.families)?;
    let first = ctx.write.log.segment_of(prefix.boundary);
    let end = durable_end(ctx, prefix.boundary)?;
    let behind = behind(ctx, prefix, end);
    let mut has_log = continue_log(ctx, remote, end)?;
    if !has_log {
        part_with_log(ctx, remote, prefix, behind)?;
        has_log = remote.kept.has_all() && {
            put_values(ctx, remote)?;
            remote.kept.has_all() && put_log(ctx, remote, first, end)?
        };
    }
    let whole = has_log && Catalog::of(&prefix.state).knows(&ctx.versions.state());
    finish(ctx, remote, prefix, if whole { first } else { behind })?;
    remote.log_end.store(end, Ordering::SeqCst);
    let follows = whole && remote.kept.advance(end);
    remote.log_follows.store(follows, Ordering::SeqCst);
    if !follows {
        remote.kept.give_up();
    }
    ctx.write.log.keep_from(ctx.write.log.segment_of(end));
    Ok(())
}

/// Stores a manifest of `prefix` without a log, if the store has a database: the log that it has is not continued. The next log begins in
/// segment `behind` or later.
fn part_with_log(ctx: &MaintenanceCtx, remote: &Remote, prefix: &Prefix, behind: WalId) -> Result<()> {
    remote.log_follows.store(false, Ordering::SeqCst);
    if remote.objects.lock().has_database() { finish(ctx, remote, prefix, behind) } else { Ok(()) }
}

fn round_without_log(ctx: &MaintenanceCtx, remote: &Remote, prefix: &Prefix) -> Result<()> {
    put_files(ctx, remote, &prefix.state, &prefix.families)?;
    finish(ctx, remote, prefix, behind(ctx, prefix, prefix.boundary.max(prefix.state.newest_seq())))
}

/// A segment above all that the log of `prefix` has up to `end`.
fn behind(ctx: &MaintenanceCtx, prefix: &Prefix, end: SeqNo) -> WalId {
    WalId(prefix.state.log_start.0.max(ctx.write.log.segment_of(end).0) + 1)
}

/// Makes the log durable up to at least `least`, and with it every commit that has returned; returns how far it is durable.
fn durable_end(ctx: &MaintenanceCtx, least: SeqNo) -> Result<SeqNo> {
    // A commit may have returned while an earlier one is still being written.
    let returned = ctx.write.reads.visible() + 1;
    let written = ctx.write.log.sequencer().written_end();
    ctx.write.sync_to(written.max(returned).max(least))?;
    Ok(ctx.write.log.sequencer().durable())
}

/// Stores the tables and value logs that `state` names.
fn put_files(
    ctx: &MaintenanceCtx,
    remote: &Remote,
    state: &State,
    families: &[Arc<FamilyCore>],
) -> Result<()> {
    let tables = state.families.values().flat_map(|f| f.tables.ids());
    let tables: Vec<String> = tables.map(files::table).collect();
    let new: Vec<&String> = tables.iter().filter(|name| !remote.objects.lock().has(name)).collect();
    remote.queued.store(new.len() as u64, Ordering::Relaxed);
    for name in new {
        put_part(ctx, remote, name, file_bytes(ctx, name)?)?;
        remote.queued.fetch_sub(1, Ordering::Relaxed);
    }
    let cores: BTreeMap<FamilyId, &Arc<FamilyCore>> = families.iter().map(|core| (core.id, core)).gather();
    for family in state.families.values() {
        let core = cores.get(&family.id).copied();
        for (id, info) in &family.vlogs {
            if !is_whole(remote, *id, info) {
                put_vlog(ctx, remote, core, *id)?;
            }
        }
    }
    Ok(())
}

/// Returns whether the store has all bytes of a value log and nothing is written to it any more.
fn is_whole(remote: &Remote, id: VlogId, info: &VlogState) -> bool {
    info.sealed_at.is_some() && remote.objects.lock().stored(&files::vlog(id)) == info.bytes
}

/// The length of a file that is never written again.
fn file_bytes(ctx: &MaintenanceCtx, name: &str) -> Result<u64> {
    let file = ctx.dir.open(name, Access::Read).map_err(|e| Error::io("open", name, e))?;
    file.len().map_err(|e| Error::io("stat", name, e))
}

/// Stores the bytes of a value log that the store lacks. `core` is its family, which knows how far it is written.
fn put_vlog(ctx: &MaintenanceCtx, remote: &Remote, core: Option<&Arc<FamilyCore>>, id: VlogId) -> Result<()> {
    let name = files::vlog(id);
    let known = core.and_then(|core| core.vlog.stable(id));
    if let Some(core) = core {
        core.vlog.sync().inspect_err(|e| drop(ctx.write.poison(e.clone())))?;
    }
    let len = match known {
        Some(len) => len,
        None => file_bytes(ctx, &name)?, // of an earlier session
    };
    put_part(ctx, remote, &name, len)
}

/// Stores the bytes of `name` below `len` that the store lacks.
fn put_part(ctx: &MaintenanceCtx, remote: &Remote, name: &str, len: u64) -> Result<()> {
    let next = || remote.objects.lock().next_part(name, len);
    let Some(mut part) = next() else { return Ok(()) };
    let file = ctx.dir.open(name, Access::Read).map_err(|e| Error::io("open", name, e))?;
    loop {
        store(remote, name, part.offset, &Body::file(&*file, part.offset, part.bytes))?;
        match next() {
            Some(more) => part = more,
            None => return Ok(()),
        }
    }
}

/// Stores the values that the log refers to, that is, those of this session. Those of a family that is dropped meanwhile may be missing, and
/// those that are no longer kept: the caller looks afterwards.
fn put_values(ctx: &MaintenanceCtx, remote: &Remote) -> Result<()> {
    for family in ctx.write.all_families() {
        for info in family.vlog.open.infos() {
            let stored = remote.objects.lock().stored(&files::vlog(info.id));
            if !info.sealed || stored < info.bytes {
                match put_vlog(ctx, remote, Some(&family), info.id) {
                    Err(e) if family.was_lost(&e) => break,
                    Err(e) if is_missing(&e) && !remote.kept.has_all() => return Ok(()),
                    done => done?,
                }
            }
        }
    }
    Ok(())
}

fn is_missing(error: &Error) -> bool {
    error.io_kind() == Some(ErrorKind::NotFound)
}

/// Stores the log from segment `first` up to `end`. Returns false if a segment no longer exists. The header of a segment is stored before the
/// pad that leads to it, as on the disk: a restore takes a pad without the next segment for damage.
fn put_log(ctx: &MaintenanceCtx, remote: &Remote, first: WalId, end: SeqNo) -> Result<bool> {
    match put_segments(ctx, remote, first, end) {
        Err(e) if matches!(e, Error::Io { op: "open", .. }) && is_missing(&e) => Ok(false), // removed meanwhile
        done => done,
    }
}

fn put_segments(ctx: &MaintenanceCtx, remote: &Remote, first: WalId, end: SeqNo) -> Result<bool> {
    let segment_bytes = ctx.versions.identity().wal_segment_bytes;
    let ids = reader::segment_files(&ctx.dir, first, segment_bytes)?;
    let (end, mut expected) = (end * UNIT, first.0);
    let mut part: Option<(WalId, u64)> = None;
    for id in ids {
        let begin = id.0 * segment_bytes;
        if begin > end {
            break;
        }
        if id.0 < expected {
            continue; // prepared, and to be removed because an oversized record took its place
        }
        if id.0 != expected {
            return Ok(false);
        }
        let span = reader::span_of(&ctx.dir, id, segment_bytes);
        expected += span;
        // A segment that `end` has reached is stored with its header, because the pad before it states that it exists.
        let len = (end - begin).clamp(SEGMENT_HEADER_BYTES, span * segment_bytes);
        if let Some((before, len)) = part.replace((id, len)) {
            put_part(ctx, remote, &files::wal(id), SEGMENT_HEADER_BYTES)?;
            put_part(ctx, remote, &files::wal(before), len)?;
        }
    }
    if let Some((last, len)) = part {
        put_part(ctx, remote, &files::wal(last), len)?;
    }
    Ok(expected * segment_bytes > end)
}

/// Stores what was committed since the last upload: values, then log. Returns false if there is a gap, or the stored manifest is out
/// of date: then a new one is needed.
fn follow_log(ctx: &MaintenanceCtx, remote: &Remote) -> Result<bool> {
    let stored = remote.log_end.load(Ordering::SeqCst);
    let end = durable_end(ctx, stored)?;
    if end <= stored {
        return Ok(true);
    }
    if ctx.versions.installs() != remote.installs_seen.load(Ordering::SeqCst) {
        return Ok(false); // a commit below `end` may be one that the stored manifest does not know the family of
    }
    let follows = continue_log(ctx, remote, end)?;
    remote.log_follows.store(follows, Ordering::SeqCst);
    Ok(follows)
}

/// Stores the log up to `end` behind what the store has of it, and the values that it refers to. Returns false if that is not possible:
/// then the store may have got some more of the same log.
fn continue_log(ctx: &MaintenanceCtx, remote: &Remote, end: SeqNo) -> Result<bool> {
    if !remote.log_follows.load(Ordering::SeqCst) || !remote.kept.has_all() {
        return Ok(false);
    }
    put_values(ctx, remote)?;
    // A family that was dropped before now may have left without its values.
    let now = ctx.versions.state();
    if !remote.catalog.lock().as_ref().is_some_and(|catalog| catalog.knows(&now)) {
        return Ok(false);
    }
    // A value log that was removed before now may be missing.
    let stored = remote.log_end.load(Ordering::SeqCst);
    let continues = remote.kept.has_all() && put_log(ctx, remote, ctx.write.log.segment_of(stored), end)?;
    if continues {
        remote.log_end.store(end, Ordering::SeqCst);
        ctx.write.log.keep_from(ctx.write.log.segment_of(end));
    }
    Ok(continues && remote.kept.advance(end))
}

/// Installs a manifest of the prefix in the store, and removes objects that are no longer needed.
fn finish(ctx: &MaintenanceCtx, remote: &Remote, prefix: &Prefix, log_start: WalId) -> Result<()> {
    let generation = remote.objects.lock().generation();
    let number = ctx.versions.new_manifest_number(generation);
    let identity = ctx.versions.identity();
    let salt = ctx.write.env.entropy.salt();
    let image = Image::encode(prefix.state.clone(), log_start, identity, (number, salt))?;
    store(remote, &files::manifest(number), 0, &Body::bytes(&image.manifest))?;
    store(remote, CURRENT, 0, &Body::bytes(&image.current))?;
    remote.objects.lock().set_generation(number);
    remote.installs_seen.store(prefix.installs, Ordering::SeqCst);
    *remote.catalog.lock() = Some(Catalog::of(&prefix.state));
    remove_garbage(remote, &prefix.state, number, log_start);
    settle(remote, &prefix.state);
    Ok(())
}

/// Lets the files of `state` leave the folder. The stored manifest names them by now: an open trusts no object that it does not name, so a
/// file that had left the folder before would be lost if the process ended in between.
fn settle(remote: &Remote, state: &State) {
    for family in state.families.values() {
        for name in family.tables.ids().map(files::table) {
            let bytes = remote.objects.lock().stored(&name);
            remote.cache.settle(&name, bytes);
        }
        for (id, info) in family.vlogs.iter().filter(|(id, info)| is_whole(remote, **id, info)) {
            remote.cache.settle(&files::vlog(*id), info.bytes);
        }
    }
    remote.cache.shrink(None);
}

/// Deletes objects that are no longer needed. An object that cannot be deleted is tried again after the next upload.
fn remove_garbage(remote: &Remote, state: &State, number: u64, log_start: WalId) {
    let named: BTreeSet<String> = state.file_names().gather();
    let needed = |file: &str| match files::parse(file) {
        Some(FileKind::Manifest(n)) => n == number,
        Some(FileKind::Wal(id)) => id >= log_start,
        Some(FileKind::Table(_) | FileKind::Vlog(_)) => named.contains(file) || remote.cache.is_live(file),
        _ => true,
    };
    let garbage = remote.objects.lock().garbage(needed);
    for object in garbage {
        match remote.options.store.delete(&object) {
            Ok(()) => remote.objects.lock().remove(&object),
            Err(error) => {
                remote.count_failure();
                tracing::warn!(%object, %error, "an object could not be deleted; it will be tried again after the next upload");
                return;
            }
        }
    }
}
