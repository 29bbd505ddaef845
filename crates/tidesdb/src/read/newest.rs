//! The newest version of a key, and the newest range tombstone over it: what a commit with a condition asks.

use std::sync::Arc;

use tidesdb_sync::Guard;

use super::get::Candidates;
use crate::Result;
use crate::codec::key_hash;
use crate::family::ReadView;
use crate::sources::TableVersion;
use crate::types::{Between, SeqNo};

/// Returns the sequence number of the newest version of `key` below `end`, including tombstones; 0 if there is none
/// above `since`. Searches only sources that may hold such a version.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn newest_version(view: &Arc<ReadView>, key: &[u8], during: Between, guard: &Guard) -> Result<SeqNo> {
    for slot in view.memtables_since(during.after) {
        let found = match &slot.taken {
            None => slot.map.get(key, during.before - 1).map(|e| e.seq),
            Some(taken) => newest_in(taken, key, during, guard)?,
        };
        if let Some(seq) = found {
            return Ok(seq);
        }
    }
    if view.version.flushed_to() <= during.after {
        return Ok(0);
    }
    newest_in(&view.version, key, during, guard).map(Option::unwrap_or_default)
}

/// Returns the sequence number of the newest version of `key` in the tables of `version` that may hold one within `during`.
fn newest_in(version: &TableVersion, key: &[u8], during: Between, guard: &Guard) -> Result<Option<SeqNo>> {
    let hash = key_hash(key);
    let mut candidates = Candidates::default();
    version.tables_for(key, |slot| {
        if slot.meta().max_seq > during.after {
            candidates.push(slot.table());
        }
    });
    for table in candidates.iter() {
        if let Some(found) = table.get(key, hash, during.before - 1, false, guard)? {
            return Ok(Some(found.seq));
        }
    }
    Ok(None)
}

/// Returns the sequence number of the newest range tombstone over `key` below `end`; 0 if there is none above `since`.
pub fn newest_range(view: &Arc<ReadView>, key: &[u8], during: Between, guard: &Guard) -> SeqNo {
    let order = view.version.order();
    let memtables = view
        .memtables_since(during.after)
        .map(|slot| slot.ranges.newest(order, key, during.before - 1, guard));
    memtables.chain([view.version.ranges().newest(order, key, during.before - 1)]).max().unwrap_or(0)
}
