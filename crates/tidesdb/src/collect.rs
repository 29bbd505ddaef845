//! Space of value logs: seals full files while the database runs, and removes files that hold no live value.
//!
//! A file is **sealed** once it is complete and durable and no lease on it is left: then every commit that refers to it
//! has its sequence number, and the edit that seals it records a number above all of them. It is **dead** once it is
//! sealed, everything up to that number is in tables, and no table refers to it. A dead file leaves the manifest at
//! once. It leaves the disk with the last version or memtable that a reader still uses (`version/obsolete.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Result;
use crate::codec::Salt;
use crate::family::FamilyCore;
use crate::shared::MaintenanceCtx;
use crate::sources::TableVersion;
use crate::types::{SeqNo, VlogId};
use crate::version::{Change, VersionEdit};

/// Returns whether the family has value logs.
pub fn has_values(family: &FamilyCore) -> bool {
    !family.owned_view().version.vlogs().is_empty() || !family.vlog.begun().is_empty()
}

/// Returns whether [`run`] would do anything.
pub fn is_due(ctx: &MaintenanceCtx, family: &FamilyCore, stored_to: SeqNo) -> bool {
    if !has_values(family) {
        return false;
    }
    let version = Arc::clone(&family.owned_view().version);
    !sealable(family, &version).is_empty() || !dead(ctx, family, &version, stored_to).1.is_empty()
}

/// Seals the full value logs of `family` and removes the dead ones. Keeps those that a commit at or above `stored_to` may
/// refer to. Returns whether a file was removed.
///
/// # Errors
/// Those of an install.
pub fn run(ctx: &MaintenanceCtx, family: &FamilyCore, stored_to: SeqNo) -> Result<bool> {
    match seal(ctx, family).and_then(|()| remove_dead(ctx, family, stored_to)) {
        Err(crate::Error::NotFound { .. }) if family.is_dropped() => Ok(false),
        other => other,
    }
}

/// A file to seal.
#[derive(Clone, Copy, Debug)]
struct Sealable {
    /// `None` if the manifest names the file.
    unnamed: Option<Salt>,
    bytes: u64,
}

/// Returns the files of `family` that can be sealed: complete ones of this session without a lease, and those that a
/// stand-in for the family wrote, as for a clone, before the family was published.
fn sealable(family: &FamilyCore, version: &TableVersion) -> BTreeMap<VlogId, Sealable> {
    let begun = family.vlog.begun();
    let named = |id| version.vlogs().contains_key(id);
    let of_session = begun.iter().filter_map(|f| {
        let unnamed = (!named(&f.id)).then_some(f.salt);
        Some((f.id, Sealable { unnamed, bytes: f.sealable? }))
    });
    let is_begun = |id| begun.iter().any(|f| f.id == id);
    let open = version.vlogs().iter().filter(|(id, v)| v.sealed_at.is_none() && !is_begun(**id));
    let of_others =
        open.filter_map(|(id, _)| Some((*id, Sealable { unnamed: None, bytes: family.vlog.info(*id).ok()?.bytes })));
    of_session.chain(of_others).collect()
}

fn seal(ctx: &MaintenanceCtx, family: &FamilyCore) -> Result<()> {
    let _naming = family.naming.lock();
    let version = Arc::clone(&family.owned_view().version);
    let files = sealable(family, &version);
    if files.is_empty() {
        return Ok(());
    }
    // Read after the leases: every commit that refers to the files is below.
    let sealed_at = ctx.write.log.sequencer().tail() - 1;
    let mut edit = VersionEdit::new();
    for (&vlog, &Sealable { unnamed, bytes }) in &files {
        if let Some(salt) = unnamed {
            edit.push(Change::AddVlog { family: family.id, vlog, salt });
        }
        edit.push(Change::SealVlog { family: family.id, vlog, bytes, sealed_at });
    }
    install(ctx, family, &edit)?;
    files.keys().for_each(|id| family.vlog.sealed(*id));
    Ok(())
}

/// Returns the dead value logs of `family`, and up to where the family is flushed if it has no memtable with data.
fn dead(
    ctx: &MaintenanceCtx,
    family: &FamilyCore,
    version: &TableVersion,
    stored_to: SeqNo,
) -> (SeqNo, Vec<VlogId>) {
    let visible_end = ctx.write.log.sequencer().visible_end(); // before the view: it holds every commit below
    let view = family.owned_view();
    let flushed = view.memtables().all(|slot| slot.is_empty()).then(|| visible_end.saturating_sub(1));
    let flushed_to = flushed.unwrap_or(0).max(version.flushed_to());
    let is_stored = |id: &VlogId| version.vlogs()[id].sealed_at.is_some_and(|seq| seq < stored_to);
    (flushed_to, version.state().obsolete_vlogs_at(flushed_to).filter(is_stored).collect())
}

fn remove_dead(ctx: &MaintenanceCtx, family: &FamilyCore, stored_to: SeqNo) -> Result<bool> {
    let version = Arc::clone(&family.owned_view().version);
    let (flushed_to, dead) = dead(ctx, family, &version, stored_to);
    if dead.is_empty() {
        return Ok(false);
    }
    let mut edit = VersionEdit::new();
    edit.push(Change::FlushedTo { family: family.id, seq: flushed_to });
    for &vlog in &dead {
        edit.push(Change::RemoveVlog { family: family.id, vlog });
    }
    install(ctx, family, &edit)?;
    tracing::debug!(family = %family.name(), files = dead.len(), "removed dead value logs");
    Ok(true)
}

fn install(ctx: &MaintenanceCtx, family: &FamilyCore, edit: &VersionEdit) -> Result<()> {
    ctx.install(edit, family, |version| family.change_view(|view| view.with_version(version)))
}
