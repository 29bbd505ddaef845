//! Unresolved families: families whose key order is not known. Their operations in the log are deferred, and replayed
//! when the key order is registered.
//!
//! Recovery removes the old log, but it cannot write operations to tables without sorting them. So it appends the
//! operations of an unresolved family, unchanged, to a value log of that family. One manifest edit records the location
//! and moves the beginning of the log past them. So each operation is either in the log or deferred, never both.
//! Sequence numbers stay the same: nothing newer can be written to an unresolved family. Once the key
//! order is known, in this session or a later open, the operations go through a memtable to tables. One edit adds these
//! tables and releases the deferred operations.
//!
//! Deferred operations are stored in pieces of about 512 KiB: `seqno u64 | length u32 | operations` for each commit,
//! oldest first, with the operations encoded as in the log. The ranks of range deletes are renumbered, because
//! operations of other families are left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Db, catalog, replay};
use crate::codec::{Compression, Decoder};
use crate::family::{FamilyCore, UnresolvedFamily};
use crate::rewrite::{FLUSH_LEVEL, Rewritten};
use crate::shared::{MaintenanceCtx, Shared, WriteCtx};
use crate::types::{Comparator, Kind, SEQ_MAX, SeqNo, VlogId};
use crate::version::{Change, State, VersionEdit};
use crate::vlog::VlogPointer;
use crate::write::{Op, encode_op, ops};
use crate::{Error, Result, files};

/// A piece ends at the first commit boundary past this size.
const PIECE_BYTES: usize = 512 << 10;

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
    /// assert_eq!(db.waiting_families(), [("words".to_owned(), "by-length".to_owned())]);
    /// db.register_comparator(order)?;
    /// assert_eq!(db.family("words")?.get(b"whale")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Exists` if an order of this name is known: built in, given to [`crate::OpenOptions::comparator`] or registered.
    /// `Corrupt`, `NoSpace`, `Io`, `Poisoned`: the remaining families stay unresolved, and the call may be repeated.
    /// `Closed`.
    pub fn register_comparator(&self, order: Comparator) -> Result<()> {
        let shared = &self.inner.shared;
        if shared.write.options.read_only {
            shared.reads.check_open()?
        } else {
            shared.write.check_writable()?
        }
        let _catalog = shared.catalog.lock();
        if shared.orders.by_name(order.name()).is_some() {
            return Err(Error::Exists { what: format!("key order {:?}", order.name()).into() });
        }
        shared.maintenance.versions.learn(&order)?;
        let waiting: Vec<_> = shared.orders.waiting.lock().values().cloned().collect();
        waiting.iter().filter(|f| &*f.order == order.name()).try_for_each(|f| join(shared, f))?;
        shared.orders.given.lock().push(order);
        Ok(())
    }

    /// Returns the key order of this name, if it is built in, was given at open, or was registered since.
    pub fn comparator(&self, name: &str) -> Option<Comparator> {
        self.inner.shared.orders.by_name(name)
    }

    /// Returns the unresolved families, each with the name of its key order, sorted.
    pub fn waiting_families(&self) -> Vec<(String, String)> {
        let waiting = self.inner.shared.orders.waiting.lock();
        let mut names: Vec<_> = waiting.values().map(|f| (f.name.to_string(), f.order.to_string())).collect();
        names.sort_unstable();
        names
    }
}

/// Makes `family` an ordinary family. Its tables must be open already.
fn join(shared: &Arc<Shared>, family: &UnresolvedFamily) -> Result<()> {
    let state = shared.maintenance.versions.state();
    let (Some(known), Some(version)) =
        (state.families.get(&family.id), shared.maintenance.versions.version(family.id))
    else {
        return Err(Error::internal("a family has an order and no version"));
    };
    let core = catalog::core(shared, family.id, &family.name, known.options.clone(), version);
    let appear = || {
        let mut waiting = shared.orders.waiting.lock();
        shared.write.families.write().insert(family.id, Arc::clone(&core));
        waiting.remove(&family.id);
    };
    if shared.write.options.read_only {
        replay(&shared.write, &core, &known.held, |_| Ok(()))?;
        let pieces = family.in_memory.lock();
        let mut before = 1;
        pieces
            .iter()
            .try_for_each(|piece| replay_piece(&shared.write, &core, piece, "the log", &mut before))?;
    } else if !known.held.is_empty() {
        let mut tables = Vec::new();
        let written = write(&shared.maintenance, &core, &known.held, &mut tables, appear);
        return written.inspect_err(|_| tables.iter().for_each(|out| out.abandon(&shared.maintenance)));
    }
    appear();
    Ok(())
}

/// Writes the deferred operations to `tables` and installs these.
fn write(
    ctx: &MaintenanceCtx,
    core: &Arc<FamilyCore>,
    held: &[VlogPointer],
    tables: &mut Vec<Rewritten>,
    appear: impl FnOnce(),
) -> Result<()> {
    drop(ctx.write.log.reserve_space_for_merge(0)?);
    let mut to_table = |least: usize| {
        let full = core.owned_view().active.as_ref().is_some_and(|slot| slot.bytes() >= least);
        let out = if full { replay::to_table(ctx, core, !tables.is_empty())? } else { None };
        tables.extend(out);
        Ok(())
    };
    replay(&ctx.write, core, held, |core| to_table(core.options.write_buffer_bytes()))?;
    to_table(0)?;
    let mut edit = VersionEdit::new();
    for out in tables.iter() {
        out.add_to(ctx, core, FLUSH_LEVEL, &mut edit)?;
    }
    edit.push(Change::Release { family: core.id });
    ctx.install(&edit, core, |version| {
        core.change_view(|view| view.with_version(version));
        appear();
    })
}

/// Inserts all deferred operations of `family` into its memtables. Calls `relieve` after each piece.
///
/// # Errors
/// `Corrupt`, `Io`, and those of `relieve`.
pub(super) fn replay(
    ctx: &WriteCtx,
    family: &Arc<FamilyCore>,
    held: &[VlogPointer],
    mut relieve: impl FnMut(&Arc<FamilyCore>) -> Result<()>,
) -> Result<()> {
    let mut before = 1;
    for pointer in held {
        let piece = family.vlog.read(pointer)?;
        replay_piece(ctx, family, &piece, &files::vlog(pointer.vlog), &mut before)?;
        relieve(family)?;
    }
    Ok(())
}

/// Inserts one piece. `before` is the sequence number of the previous commit; numbers below it are corruption.
fn replay_piece(
    ctx: &WriteCtx,
    family: &Arc<FamilyCore>,
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
            if op.family != family.id {
                return Err(Error::corrupt(file, base, "a deferred operation belongs to another family"));
            }
            replay::insert(ctx, family, seq, &op)?;
        }
    }
    Ok(())
}

/// Deferred operations of one family, collected during recovery.
pub(super) struct DeferredOps {
    pub(super) family: Arc<UnresolvedFamily>,
    /// The piece being filled.
    piece: Vec<u8>,
    /// Last commit of the piece: sequence number, offset of its length field, number of range deletes.
    last: Option<(SeqNo, usize, u32)>,
    /// Pointers to the pieces already written.
    pointers: Vec<VlogPointer>,
    /// Complete pieces of a read-only open, which cannot be written.
    in_memory: Vec<Vec<u8>>,
    /// Value logs that the operations refer to.
    pub(super) vlogs: BTreeSet<VlogId>,
    read_only: bool,
}

impl DeferredOps {
    pub(super) fn new(family: &Arc<UnresolvedFamily>, read_only: bool) -> Self {
        Self {
            family: Arc::clone(family),
            piece: Vec::new(),
            last: None,
            pointers: Vec::new(),
            in_memory: Vec::new(),
            vlogs: BTreeSet::new(),
            read_only,
        }
    }

    /// Defers an operation of commit `seq`.
    pub(super) fn add(&mut self, seq: SeqNo, op: &Op<'_>) -> Result<()> {
        let (_, at, rank) = match self.last {
            Some(last) if last.0 == seq => last,
            _ => self.begin_commit(seq)?,
        };
        let rank = rank + u32::from(op.kind == Kind::RangeDelete);
        encode_op(&mut self.piece, &Op { rank, ..*op });
        let length = self.piece.len() - at - 4;
        let length = u32::try_from(length).map_err(|_| Error::internal("a commit beyond 4 GiB"))?;
        self.piece[at..at + 4].copy_from_slice(&length.to_le_bytes());
        self.last = Some((seq, at, rank));
        if op.kind == Kind::PutPointer {
            self.vlogs.extend(VlogPointer::decode(op.value).map(|p| p.vlog));
        }
        Ok(())
    }

    fn begin_commit(&mut self, seq: SeqNo) -> Result<(SeqNo, usize, u32)> {
        if self.piece.len() >= PIECE_BYTES {
            self.end_piece()?;
        }
        self.piece.extend_from_slice(&seq.to_le_bytes());
        let at = self.piece.len();
        self.piece.extend_from_slice(&[0; 4]);
        Ok((seq, at, 0))
    }

    fn end_piece(&mut self) -> Result<()> {
        self.last = None;
        let piece = std::mem::take(&mut self.piece);
        match (piece.is_empty(), self.read_only) {
            (true, _) => {}
            (_, true) => self.in_memory.push(piece),
            (_, false) => self.pointers.push(self.family.vlog.append(&piece, Compression::Lz4)?),
        }
        Ok(())
    }

    /// Ends the collection. The pieces are durable after a sync of the directory.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_piece()?;
        *self.family.in_memory.lock() = std::mem::take(&mut self.in_memory);
        self.family.vlog.rotate();
        self.family.vlog.sync()
    }

    /// Adds the pieces, and the value logs that `state` does not name yet, to `edit`.
    pub(super) fn add_to(&self, state: &State, edit: &mut VersionEdit) -> Result<()> {
        let family = self.family.id;
        let named = |vlog: &VlogId| state.families.get(&family).is_some_and(|f| f.vlogs.contains_key(vlog));
        let mut vlogs = self.vlogs.clone();
        vlogs.extend(self.pointers.iter().map(|p| p.vlog));
        for vlog in vlogs.into_iter().filter(|vlog| !named(vlog)) {
            let salt = self.family.vlog.info(vlog)?.salt;
            edit.push(Change::AddVlog { family, vlog, salt });
        }
        for &pointer in &self.pointers {
            edit.push(Change::Hold { family, pointer });
        }
        Ok(())
    }
}
