//! Takes a snapshot of another node: its rows become sorted tables, which replace everything that the group had in one commit.

use super::format::Decoder;
use crate::codec::damaged;
use crate::keys::Group;
use crate::stores::Shared;
use std::io::Read;
use tidesdb::{Error, Result, SyncMode, WriteOptions};

/// Replaces the state of `group` by the snapshot that `source` yields. `notes` returns the rows that the state gets besides, in the order of
/// their keys, from the metadata of the snapshot. Durable when it returns; after an error the state is the old one, except that after a kill or
/// `CommitUnknown` (the sync failed) the next open has the old state or the new one.
pub(crate) fn install(
    shared: &Shared,
    group: Group,
    source: impl Read,
    notes: impl FnOnce(&[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>>,
) -> Result<()> {
    let mut decoder = Decoder::new(source);
    let meta = decoder.header()?;
    let mut writer = shared.state.sorted_writer()?;
    let rows = writer.rows();
    // Deletes what is older than these rows.
    rows.delete_range(group.all())?;
    for (key, value) in notes(&meta)? {
        rows.put(key, value)?;
    }
    let mut row = |key: &[u8], value: &[u8]| match rows.put(group.data(key), value) {
        Err(Error::InvalidArgument { what }) => Err(damaged(&format!("a row of the snapshot: {what}"))),
        result => result,
    };
    while decoder.block(&mut row)? {}
    writer.commit_with(&WriteOptions::default().sync(SyncMode::Full)).map(drop)
}
