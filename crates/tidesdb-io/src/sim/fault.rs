//! Faults: rules that make chosen calls fail or misbehave.
//!
//! A rule matches calls by kind, path and range, in order. It lets the first `skip` of them pass, then strikes
//! at every `every`-th one with probability `chance`, until it has struck `times` times. If several rules
//! strike at one call, the one injected first takes effect, and the others count it as struck too.

use std::fmt;
use std::sync::Arc;

use super::op::{Op, OpKind, OpSet};
use super::rng::Rng;

/// Error numbers of the system, for [`Fault::errno`].
pub mod errno {
    use crate::system::Errno;

    /// Input/output error.
    pub const EIO: i32 = Errno::IO.raw_os_error();
    /// No space left on device.
    pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
    /// Disk quota exceeded.
    pub const EDQUOT: i32 = Errno::DQUOT.raw_os_error();
    /// Too many open files in the process.
    pub const EMFILE: i32 = Errno::MFILE.raw_os_error();
    /// Too many open files in the system.
    pub const ENFILE: i32 = Errno::NFILE.raw_os_error();
    /// Interrupted system call.
    pub const EINTR: i32 = Errno::INTR.raw_os_error();
    /// Permission denied.
    pub const EACCES: i32 = Errno::ACCESS.raw_os_error();
    /// The file system does not have this call.
    pub const EOPNOTSUPP: i32 = Errno::OPNOTSUPP.raw_os_error();
    /// Read-only file system.
    pub const EROFS: i32 = Errno::ROFS.raw_os_error();
}

/// How a file system treats its pages when the sync of a file fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncModel {
    /// ext4, XFS: pages keep the new bytes and are marked clean. Later syncs return `Ok` and do not write them.
    #[default]
    Linux,
    /// Btrfs: like Linux, and the pages also revert to the durable bytes.
    Btrfs,
    /// BSD, ZFS: pages stay dirty, so a later sync can succeed.
    Bsd,
}

/// What a rule does to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Errno(i32),
    Short,
    LoseWrite,
    Misdirect(i64),
    MisdirectTo(String),
    StaleRead,
    LieSync,
}

impl Effect {
    /// Returns the kinds of call that this effect can apply to.
    fn domain(&self) -> OpSet {
        match self {
            Self::Errno(_) => OpSet::ALL,
            Self::Short => OpKind::Read | OpKind::Write,
            Self::LoseWrite | Self::Misdirect(_) | Self::MisdirectTo(_) => OpSet::WRITES,
            Self::StaleRead => OpKind::Read.into(),
            Self::LieSync => OpSet::SYNCS | OpKind::SyncDir,
        }
    }
}

type PathTest = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A fault to [inject](super::SimDisk::inject): its effect, the calls it applies to, and how often.
///
/// By default it strikes once, at the first call that it can apply to.
///
/// ```
/// use tidesdb_io::sim::{errno, Fault, OpKind, OpSet};
///
/// // The third sync of a log file fails, once.
/// let _ = Fault::errno(errno::EIO).on(OpSet::SYNCS).path_ends(".log").skip(2);
/// // Every open of a file fails.
/// let _ = Fault::errno(errno::EMFILE).on(OpKind::Open).forever();
/// // Every other read returns less than asked for.
/// let _ = Fault::short().on(OpKind::Read).every(2).forever();
/// // One write in a hundred is lost silently.
/// let _ = Fault::lose_write().chance(0.01).forever();
/// ```
#[derive(Clone)]
pub struct Fault {
    effect: Effect,
    ops: OpSet,
    path: Option<PathTest>,
    range: Option<(u64, u64)>,
    skip: u64,
    every: u64,
    times: u64,
    chance: f64,
}

impl Fault {
    fn new(effect: Effect) -> Self {
        Self {
            ops: effect.domain(),
            effect,
            path: None,
            range: None,
            skip: 0,
            every: 1,
            times: 1,
            chance: 1.0,
        }
    }

    /// The call fails with this errno (see [`errno`]) and does nothing. A failed sync of a file follows the
    /// [`SyncModel`] of the disk; a failed sync of a directory leaves its changes pending.
    pub fn errno(errno: i32) -> Self {
        Self::new(Effect::Errno(errno))
    }

    /// A read or write handles only a part of its bytes, at least one.
    pub fn short() -> Self {
        Self::new(Effect::Short)
    }

    /// A write returns `Ok` and never reaches the disk.
    pub fn lose_write() -> Self {
        Self::new(Effect::LoseWrite)
    }

    /// A write lands `by` bytes away from its offset, or is lost if that is before the start of the file.
    pub fn misdirect(by: i64) -> Self {
        Self::new(Effect::Misdirect(by))
    }

    /// A write lands in the file at `path`, or is lost if there is no such file.
    pub fn misdirect_to(path: &str) -> Self {
        Self::new(Effect::MisdirectTo(path.to_owned()))
    }

    /// A read returns the bytes that were durable before the last sync, with zeros past their end.
    pub fn stale_read() -> Self {
        Self::new(Effect::StaleRead)
    }

    /// A sync returns `Ok` and makes nothing durable. Changes stay pending, so a later successful sync covers
    /// them.
    pub fn lie_sync() -> Self {
        Self::new(Effect::LieSync)
    }

    /// Restricts the fault to calls of these kinds.
    #[must_use]
    pub fn on(mut self, ops: impl Into<OpSet>) -> Self {
        self.ops = ops.into();
        self
    }

    /// Restricts the fault to files whose path passes `test`. Paths look like `/dir/name`.
    #[must_use]
    pub fn path_if(mut self, test: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.path = Some(Arc::new(test));
        self
    }

    /// Restricts the fault to files whose path ends with `suffix`.
    #[must_use]
    pub fn path_ends(self, suffix: &str) -> Self {
        let suffix = suffix.to_owned();
        self.path_if(move |path| path.ends_with(&suffix))
    }

    /// Restricts the fault to calls that touch a byte in `[start, end)` of the file, like bad sectors.
    #[must_use]
    pub fn within(mut self, start: u64, end: u64) -> Self {
        self.range = Some((start, end));
        self
    }

    /// Lets the first `n` matching calls pass.
    #[must_use]
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// Strikes only at every `n`-th matching call after the skipped ones.
    #[must_use]
    pub fn every(mut self, n: u64) -> Self {
        self.every = n.max(1);
        self
    }

    /// Strikes with probability `p` (0 to 1), drawn from the seed of the disk.
    #[must_use]
    pub fn chance(mut self, p: f64) -> Self {
        self.chance = p;
        self
    }

    /// Strikes at most `n` times.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Strikes without limit.
    #[must_use]
    pub fn forever(self) -> Self {
        self.times(u64::MAX)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("effect", &self.effect)
            .field("ops", &self.ops)
            .field("skip", &self.skip)
            .field("every", &self.every)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// Identifies an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Rule {
    id: FaultId,
    fault: Fault,
    seen: u64,
    struck: u64,
}

impl Rule {
    fn strikes(&mut self, op: &Op, rng: &mut Rng) -> bool {
        let fault = &self.fault;
        let matches = fault.ops.has(op.kind)
            && fault.effect.domain().has(op.kind)
            && fault.path.as_ref().is_none_or(|test| test(&op.path))
            && fault.range.is_none_or(|(start, end)| op.offset < end && start < op.offset + op.len);
        if !matches || self.struck >= fault.times {
            return false;
        }
        self.seen += 1;
        let due = self.seen > fault.skip && (self.seen - fault.skip).is_multiple_of(fault.every);
        let strikes = due && (fault.chance >= 1.0 || rng.chance(fault.chance));
        self.struck += u64::from(strikes);
        strikes
    }
}

/// The faults of a disk.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    next: u64,
}

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault) -> FaultId {
        let id = FaultId(self.next);
        self.next += 1;
        self.rules.push(Rule { id, fault, seen: 0, struck: 0 });
        id
    }

    pub(super) fn remove(&mut self, id: FaultId) {
        self.rules.retain(|rule| rule.id != id);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(super) fn struck(&self, id: FaultId) -> u64 {
        self.rules.iter().find(|rule| rule.id == id).map_or(0, |rule| rule.struck)
    }

    /// Returns the effect that applies to a call, and counts it in every rule that struck.
    pub(super) fn strike(&mut self, op: &Op, rng: &mut Rng) -> Option<Effect> {
        let mut effect = None;
        for rule in &mut self.rules {
            if rule.strikes(op, rng) && effect.is_none() {
                effect = Some(rule.fault.effect.clone());
            }
        }
        effect
    }
}
