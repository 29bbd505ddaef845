//! Unresolved families: families whose comparator is not registered yet, or whose operations are still deferred.
//!
//! An unresolved family is a family like any other, except that its version has no tables (`version/set/orders.rs`)
//! and [`catalog::find`] does not return it. So nothing is read from it and nothing is written to it.
//!
//! Recovery cannot sort its operations into tables. It defers them: it appends them, unchanged, to a value log of the
//! family, and the edit that moves the beginning of the log past them names them. Once the comparator is known, in this
//! session or at a later open, [`resolve`] replays them into tables, and the edit that adds these tables releases the
//! deferred operations. They keep their sequence numbers, because nothing newer can be written to the family.
//!
//! Deferred operations are stored in pieces of about 512 KiB: `seqno u64 | length u32 | operations` for each commit,
//! oldest first, with the operations encoded as in the log. The ranks are renumbered, because
//! operations of other families are left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Db, catalog, replay};
use crate::codec::{Compression, Decoder};
use crate::context::WriteCtx;
use crate::engine::Shared;
use crate::family::FamilyCore;
use crate::maintenance::MaintenanceCtx;
use crate::rewrite::{FLUSH_LEVEL, Rewritten, name_vlogs};
use crate::types::{Comparator, Kind, SEQ_MAX, SeqNo, VlogId};
use crate::version::{Change, FamilyState, VersionEdit};
use crate::vlog::{ValuePlace, VlogPointer};
use crate::write::{Op, encode_op, ops};
use crate::{Error, Result, files};

/// A piece ends at the first commit boundary past this size.
pub(super) const PIECE_BYTES: usize = 512 << 10;

impl Db {
    /// Registers a key order while the database is open. When this returns, the families that need it are available,
    /// with all the data they had when the database was opened.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tidesdb::{Comparator, Db, FamilyOptions};
    /// let order = Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    /// let db = Db::open(dir.path())?;
    /// db.create_family("words", FamilyOptions::default().comparator(order.clone()))?.put(b"whale", b"1")?;
    /// db.close()?;
    ///
    /// let db = Db::options(dir.path()).await_comparators(true).open()?;
    /// assert_eq!(db.unresolved_families(), [("words".to_owned(), "by-length".to_owned())]);
    /// db.register_comparator(order)?;
    /// assert_eq!(db.family("words")?.get(b"whale")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Exists` if an order of this name is known: built in, given to [`crate::OpenOptions::comparator`] or registered.
    /// `Corrupt`, `NoSpace`, `Io`, `Poisoned`: the remaining families stay unresolved, and the call may be repeated.
    /// `Closed`. `InvalidArgument` for a view of a [`crate::Reader`].
    pub fn register_comparator(&self, order: Comparator) -> Result<()> {
        let shared = &self.inner.shared;
        if self.inner.is_view {
            let what = "a view of a reader never changes: give its comparators to OpenOptions::comparator";
            return Err(Error::invalid(what));
        }
        if shared.write.options.read_only {
            shared.reads.check_open()?
        } else {
            shared.write.check_writable()?;
            shared.write.log.check_space_for_merge(0)?;
        }
        let _catalog = shared.catalog.lock();
        if shared.comparator(order.name()).is_some() {
            return Err(Error::Exists { what: format!("key order {:?}", order.name()).into() });
        }
        let families = unresolved(shared);
        let mut users = families.iter().filter(|f| f.options.comparator.name() == order.name());
        users.try_for_each(|family| resolve(shared, family, &order))?;
        shared.comparators.lock().push(order);
        Ok(())
    }

    /// Returns the key order of this name, if it is built in, was given at open, or was registered since.
    pub fn comparator(&self, name: &str) -> Option<Comparator> {
        self.inner.shared.comparator(name)
    }

    /// Returns the unresolved families, each with the name of its key order, sorted.
    pub fn unresolved_families(&self) -> Vec<(String, String)> {
        let order = |family: &FamilyCore| family.options.comparator.name().to_owned();
        let mut names: Vec<_> =
            unresolved(&self.inner.shared).iter().map(|f| (f.name().to_string(), order(f))).collect();
        names.sort_unstable();
        names
    }
}

fn unresolved(shared: &Shared) -> Vec<Arc<FamilyCore>> {
    let mut families = shared.write.all_families();
    families.retain(|family| family.is_unresolved());
    families
}

/// Resolves the families that have deferred operations and whose comparator is known by now.
pub(super) fn resolve_known(shared: &Arc<Shared>) -> Result<()> {
    for family in unresolved(shared) {
        if let Some(order) = shared.comparator(family.options.comparator.name()) {
            resolve(shared, &family, &order)?;
        }
    }
    Ok(())
}

/// Replaces the unresolved `family` by a resolved one that holds its deferred operations too. On failure it stays
/// unresolved.
fn resolve(shared: &Arc<Shared>, family: &FamilyCore, order: &Comparator) -> Result<()> {
    let ctx = &shared.maintenance;
    let state = ctx.versions.state();
    let state =
        state.families.get(&family.id).ok_or_else(|| Error::internal("an unresolved family has no state"))?;
    let options = state.options.clone().comparator(order.clone());
    let version = Arc::clone(&family.owned_view().version);
    let core = catalog::core(shared, family.id, &family.name(), options, version);
    let mut tables = Vec::new();
    let mut edit = VersionEdit::new();
    let publish = |installed: &crate::version::Installed<'_, crate::sst::Table>| {
        if let Some(version) = installed.versions.get(&core.id) {
            core.change_view(|view| view.with_version(Arc::clone(version)));
            shared.write.families.write().insert(core.id, Arc::clone(&core));
        }
    };
    let replayed = match ctx.write.options.read_only {
        true => replay_in_memory(shared, &core, state),
        false if state.held.is_empty() => Ok(()),
        false => replay_to_tables(ctx, &core, state, &mut tables, &mut edit),
    };
    replayed.and_then(|()| ctx.versions.resolve(core.id, order, &edit, publish)).inspect_err(|e| {
        ctx.poison_if_unknown(e);
        tables.iter().for_each(|out| out.abandon(ctx));
    })
}

fn replay_in_memory(shared: &Shared, core: &Arc<FamilyCore>, state: &FamilyState) -> Result<()> {
    let mut before = replay_all(&shared.write, core, state, || Ok(()))?;
    match shared.deferred.lock().get(&core.id) {
        Some(piece) => replay_piece(&shared.write, core, piece, "the log", &mut before),
        None => Ok(()),
    }
}

/// Writes the deferred operations to `tables`, and adds these and the release to `edit`.
fn replay_to_tables(
    ctx: &MaintenanceCtx,
    core: &Arc<FamilyCore>,
    state: &FamilyState,
    tables: &mut Vec<Rewritten>,
    edit: &mut VersionEdit,
) -> Result<()> {
    let mut to_table = |least: usize| {
        let full = core.owned_view().active.as_ref().is_some_and(|slot| slot.bytes() >= least);
        if full {
            tables.extend(replay::to_tables(ctx, core, !tables.is_empty())?);
            core.forget_memtables();
        }
        Ok(())
    };
    replay_all(&ctx.write, core, state, || to_table(core.buffer_bytes()))?;
    to_table(0)?;
    for out in tables.iter() {
        out.add_to(ctx, core, FLUSH_LEVEL, edit)?;
    }
    edit.push(Change::Release { family: core.id });
    Ok(())
}

/// Inserts all deferred operations into the memtables of `core`. Calls `relieve` after each piece. Returns the sequence
/// number of the last commit.
fn replay_all(
    ctx: &WriteCtx,
    core: &Arc<FamilyCore>,
    state: &FamilyState,
    mut relieve: impl FnMut() -> Result<()>,
) -> Result<SeqNo> {
    let mut before = 1;
    for pointer in &state.held {
        let piece = core.vlog.read(pointer)?;
        replay_piece(ctx, core, &piece, &files::vlog(pointer.vlog), &mut before)?;
        relieve()?;
    }
    Ok(before)
}

/// Inserts one piece. `before` is the sequence number of the previous commit; numbers below it are corruption.
fn replay_piece(
    ctx: &WriteCtx,
    core: &Arc<FamilyCore>,
    piece: &[u8],
    file: &str,
    before: &mut SeqNo,
) -> Result<()> {
    let mut d = Decoder::new(piece, file, 0);
    while d.remaining() > 0 {
        let seq = d.u64()?;
        if !(*before..=SEQ_MAX).contains(&seq) {
            return Err(d.corrupt("the sequence number of a deferred commit is out of order"));
        }
        *before = seq;
        let length = d.u32()? as usize;
        let base = d.position() as u64;
        for op in ops(d.take(length)?, file, base) {
            let op = op?;
            if op.family != core.id {
                return Err(Error::corrupt(file, base, "a deferred operation belongs to another family"));
            }
            replay::insert(ctx, core, seq, &op)?;
        }
    }
    Ok(())
}

/// Operations of one unresolved family that recovery defers.
pub(super) struct Deferred {
    family: Arc<FamilyCore>,
    /// The piece being filled.
    piece: Vec<u8>,
    /// Last commit of the piece; 0 if there is none.
    seq: SeqNo,
    /// Where the operations of that commit begin in the piece; their length is before them.
    ops_at: usize,
    /// Operations of that commit that have a rank.
    rank: u32,
    /// The pieces already written.
    pieces: Vec<VlogPointer>,
    /// Value logs that the operations refer to.
    pub(super) vlogs: BTreeSet<VlogId>,
}

impl Deferred {
    pub(super) fn new(family: &Arc<FamilyCore>) -> Self {
        let family = Arc::clone(family);
        let (piece, pieces, vlogs) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self { family, piece, seq: 0, ops_at: 0, rank: 0, pieces, vlogs }
    }

    /// Defers an operation of commit `seq`.
    pub(super) fn add(&mut self, seq: SeqNo, op: &Op<'_>) -> Result<()> {
        if seq != self.seq {
            self.piece.extend_from_slice(&seq.to_le_bytes());
            self.piece.extend_from_slice(&[0; 4]);
            (self.seq, self.ops_at, self.rank) = (seq, self.piece.len(), 0);
        }
        self.rank += u32::from(op.kind.is_ranked());
        encode_op(&mut self.piece, &Op { rank: self.rank, ..*op });
        let length = u32::try_from(self.piece.len() - self.ops_at);
        let length = length.map_err(|_| Error::internal("a commit beyond 4 GiB"))?;
        self.piece[self.ops_at - 4..self.ops_at].copy_from_slice(&length.to_le_bytes());
        if op.kind == Kind::PutPointer {
            let place = ValuePlace::decode(op.value)
                .ok_or_else(|| Error::internal("an operation holds a malformed pointer"))?;
            place.each_part(|vlog, _| self.vlogs.extend([vlog]));
        }
        Ok(())
    }

    /// Writes the piece to the value log of the family if it is at least `least` bytes long. Called between commits.
    pub(super) fn write(&mut self, least: usize) -> Result<()> {
        if self.piece.len() >= least.max(1) {
            self.pieces.push(self.family.vlog.append(&self.piece, Compression::Lz4)?);
            self.piece.clear();
            self.seq = 0;
        }
        Ok(())
    }

    /// Writes the last piece. The pieces are durable after a sync of the directory.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.write(0)?;
        self.family.vlog.rotate();
        self.family.vlog.sync()
    }

    /// Returns all operations as one piece. Only for a read-only open, which has written none.
    pub(super) fn into_piece(self) -> Vec<u8> {
        self.piece
    }

    /// Adds the pieces, and the value logs that are new, to `edit`.
    pub(super) fn add_to(&self, ctx: &MaintenanceCtx, edit: &mut VersionEdit) -> Result<()> {
        let vlogs = self.pieces.iter().map(|p| p.vlog).chain(self.vlogs.iter().copied());
        name_vlogs(ctx, &self.family, vlogs, edit)?;
        for &pointer in &self.pieces {
            edit.push(Change::Hold { family: self.family.id, pointer });
        }
        Ok(())
    }
}
