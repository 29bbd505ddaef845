//! Families that wait for their key order: what the log holds for them is held back, and replayed when the order is known.
//!
//! Recovery leaves no log behind, and what it cannot sort it cannot write to tables. So it writes the operations of a
//! waiting family, as they are, to a value log of that family, and one edit of the manifest names the place and moves the
//! beginning of the log past them: they are in the log or held back, never both and never neither. They keep their sequence numbers,
//! because nothing newer can come to a family that nobody can reach. When the order is known, here or in a later open, they go
//! through a memtable to tables, and one edit adds these and lets go of what was held back.
//!
//! Held back are pieces of about half a MiB: `seqno u64 | length u32 | operations` for each commit, oldest first, the
//! operations in the log's own form. The ranks of range deletes are counted anew, as those of other families are left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Db, catalog, replay};
use crate::codec::{Compression, Decoder};
use crate::family::{FamilyCore, WaitingFamily};
use crate::rewrite::{FLUSH_LEVEL, Rewritten};
use crate::shared::{MaintenanceCtx, Shared, WriteCtx};
use crate::types::{Comparator, Kind, SEQ_MAX, SeqNo, VlogId};
use crate::version::{Change, State, VersionEdit};
use crate::vlog::VlogPointer;
use crate::write::{Op, encode_op, ops};
use crate::{Error, Result, files};

/// A piece is ended before the first commit behind this.
const PIECE_BYTES: usize = 512 << 10;

impl Db {
    /// Makes a key order known while the database is open. The families that waited for it are there when this returns, with all
    /// that they held when the database was opened.
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
    /// `Exists` if an order of this name is known: built in, given to [`crate::OpenOptions::comparator`] or registered. `Corrupt`, `NoSpace`,
    /// `Io`, `Poisoned`: families that are not there yet go on waiting, and the call may be repeated. `Closed`.
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

    /// The key order of this name, if it is built in, was given when the database was opened, or registered since.
    pub fn comparator(&self, name: &str) -> Option<Comparator> {
        self.inner.shared.orders.by_name(name)
    }

    /// The families that wait for a key order, each with the name of that order; sorted.
    pub fn waiting_families(&self) -> Vec<(String, String)> {
        let waiting = self.inner.shared.orders.waiting.lock();
        let mut names: Vec<_> = waiting.values().map(|f| (f.name.to_string(), f.order.to_string())).collect();
        names.sort_unstable();
        names
    }
}

/// Makes `family`, whose tables are open by now, one like all others.
fn join(shared: &Arc<Shared>, family: &WaitingFamily) -> Result<()> {
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

/// What was held back goes to `tables`, and these into force.
fn write(
    ctx: &MaintenanceCtx,
    core: &Arc<FamilyCore>,
    held: &[VlogPointer],
    tables: &mut Vec<Rewritten>,
    appear: impl FnOnce(),
) -> Result<()> {
    drop(ctx.write.log.pledge_merge(0)?);
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

/// Inserts all that `family` held back into its memtables; `relieve` is called after each piece.
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

/// Inserts one piece. `before` is the sequence number of the commit before; those of the piece are not below it.
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
            return Err(d.corrupt("sequence number of a commit that was held back"));
        }
        *before = seq;
        let length = d.u32()? as usize;
        let base = d.position() as u64;
        for op in ops(d.take(length)?, file, base) {
            let op = op?;
            if op.family != family.id {
                return Err(Error::corrupt(file, base, "an operation of another family was held back"));
            }
            replay::insert(ctx, family, seq, &op)?;
        }
    }
    Ok(())
}

/// What recovery holds back for one family.
pub(super) struct Holding {
    pub(super) family: Arc<WaitingFamily>,
    /// The piece that grows.
    piece: Vec<u8>,
    /// The commit at its end: its number, where its length stands, the range deletes in it.
    last: Option<(SeqNo, usize, u32)>,
    /// Pieces that are written.
    pointers: Vec<VlogPointer>,
    /// Pieces that cannot be written.
    in_memory: Vec<Vec<u8>>,
    /// Value logs that operations refer to.
    pub(super) vlogs: BTreeSet<VlogId>,
    read_only: bool,
}

impl Holding {
    pub(super) fn new(family: &Arc<WaitingFamily>, read_only: bool) -> Self {
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

    /// Holds back an operation of commit `seq`.
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

    /// No more will come. What was written is durable after a sync of the directory.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_piece()?;
        *self.family.in_memory.lock() = std::mem::take(&mut self.in_memory);
        self.family.vlog.rotate();
        self.family.vlog.sync()
    }

    /// Adds what was written, and the value logs that `state` does not name yet, to `edit`.
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
