//! Copies of stored values, compressed as they are.

use super::{ChunkedPlace, Lane, Lease, VlogPointer, VlogSet, scratch};
use crate::Result;
use crate::codec::Compression;

impl VlogSet {
    /// Copies the record of the set `from` that `pointer` names to the current file, compressed as it is, and returns the new
    /// pointer. Adds a lease on that file.
    ///
    /// # Errors
    /// `Corrupt` if the record is missing or damaged; `Io`.
    pub fn copy_from(
        &self,
        from: &Self,
        pointer: &VlogPointer,
        leases: &mut Vec<Lease>,
    ) -> Result<VlogPointer> {
        let source = from.file(pointer.vlog)?;
        scratch::with(|buf| {
            let header = source.read_record(pointer, buf)?.0;
            let record = &mut buf[..pointer.record_bytes() as usize];
            let (new, lease) = self.place(Lane::Main, |file| file.append_record(header, record, &[]))?;
            lease.add_to(leases);
            Ok(new)
        })
    }

    /// Copies the value at `place` of the set `from`, chunk by chunk, and returns its new place.
    ///
    /// # Errors
    /// As [`VlogSet::copy_from`].
    pub fn copy_chunks(
        &self,
        from: &Self,
        place: &ChunkedPlace,
        leases: &mut Vec<Lease>,
    ) -> Result<ChunkedPlace> {
        let mut index = from.read_index(place)?;
        for chunk in index.chunks_mut() {
            *chunk = self.copy_from(from, chunk, leases)?;
        }
        self.append_index(&index, Compression::Lz4, leases)
    }
}
