//! One segment file while it is written: allocated, salted, mapped where the file system allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tidesdb_io::{Access, Dir, File, FileExt, SharedMap};

use super::layout::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::codec::Salt;
use crate::files;
use crate::types::WalId;
use crate::{Error, Result};

/// Records longer than this go through a system call, which copies faster than page faults do.
const MAPPED_BYTES_MAX: usize = 16 * 1024;

/// A segment open for writing. Writers use disjoint ranges.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) header: SegmentHeader,
    pub(super) name: String,
    file: Arc<dyn File>,
    map: Option<Box<dyn SharedMap>>,
    /// Written since the last sync began. Set after the bytes, cleared before the sync, so no write is missed.
    dirty: AtomicBool,
}

impl Segment {
    /// Makes the file for `header` ready under its final name: blocks allocated, header durable, name durable. A file left by an
    /// older segment of the same length (`reuse`) is taken over.
    pub(super) fn create(
        dir: &Arc<dyn Dir>,
        header: SegmentHeader,
        reuse: Option<String>,
        mapped: bool,
    ) -> Result<Self> {
        let name = files::wal(WalId(header.id));
        let bytes = header.segment_bytes * u64::from(header.span);
        let temp = format!("{name}.free");
        let fresh = |e| Error::io("create", &temp, e);
        let file = match reuse {
            Some(old) => {
                if old != temp {
                    dir.rename(&old, &temp).map_err(|e| Error::io("rename", &old, e))?;
                }
                dir.open(&temp, Access::ReadWrite).map_err(|e| Error::io("open", &temp, e))?
            }
            None => match dir.create_new(&temp, bytes) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    // Left by a preparation that a crash or a full disk cut short.
                    dir.unlink(&temp).map_err(|e| Error::io("unlink", &temp, e))?;
                    dir.create_new(&temp, bytes).map_err(fresh)?
                }
                other => other.map_err(fresh)?,
            },
        };
        write_all(&file, &temp, &header.encode(), 0)?;
        file.sync_all().map_err(|e| Error::io("sync", &temp, e))?;
        dir.rename(&temp, &name).map_err(|e| Error::io("rename", &temp, e))?;
        dir.sync().map_err(|e| Error::io("sync", "database directory", e))?;
        let map = if mapped { file.map_shared(bytes).map_err(|e| Error::io("map", &name, e))? } else { None };
        Ok(Self { header, name, file, map, dirty: AtomicBool::new(false) })
    }

    pub(super) fn salt(&self) -> &Salt {
        &self.header.salt
    }

    /// Whether `id` is one of the segments this file covers.
    pub(super) fn covers(&self, id: u64) -> bool {
        id >= self.header.id && id - self.header.id < u64::from(self.header.span)
    }

    /// Copies `bytes` to `offset` of the file. `mapped` asks for the path without a system call.
    pub(super) fn write(&self, offset: u64, bytes: &[u8], mapped: bool) -> Result<()> {
        debug_assert!(offset >= SEGMENT_HEADER_BYTES);
        debug_assert!(
            offset + bytes.len() as u64 <= self.header.segment_bytes * u64::from(self.header.span),
            "a segment never grows"
        );
        match &self.map {
            Some(map) if mapped && bytes.len() < MAPPED_BYTES_MAX => {
                map.write(offset, bytes).map_err(|e| Error::io("write", &self.name, e))?;
            }
            _ => write_all(&self.file, &self.name, bytes, offset)?,
        }
        if !self.dirty.load(SeqCst) {
            self.dirty.store(true, SeqCst);
        }
        Ok(())
    }

    /// Nothing more will be written: its pages leave the memory of the process and stay in the system's cache.
    pub(super) fn release_pages(&self) {
        if let Some(map) = &self.map
            && let Err(error) = map.release()
        {
            tracing::debug!(name = %self.name, %error, "the pages of a log segment stay mapped");
        }
    }

    /// Makes durable what was written before the call. One caller at a time; skips the system call when nothing was.
    pub(super) fn sync(&self) -> Result<()> {
        if self.dirty.swap(false, SeqCst) {
            self.file.sync_data().map_err(|e| Error::io("sync", &self.name, e))?;
        }
        Ok(())
    }
}

fn write_all(file: &Arc<dyn File>, name: &str, bytes: &[u8], offset: u64) -> Result<()> {
    file.write_all_at(bytes, offset).map_err(|e| Error::io("write", name, e))
}
