//! The small files of a store (`CURRENT` and manifests) as a read-only directory; their bytes are held in memory.

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Access, Advice, Boot, Dir, DirLock, File, Space};

use crate::store::ObjectStore;

/// Reads whole objects as files. All changes are refused.
#[derive(Debug)]
pub(super) struct ObjectDir {
    store: Arc<dyn ObjectStore>,
}

impl ObjectDir {
    /// Creates a view of the objects of `store`.
    pub(super) fn new(store: &Arc<dyn ObjectStore>) -> Self {
        Self { store: Arc::clone(store) }
    }

    /// Returns the bytes of an object.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.store.get(name, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "this view of an object store is read-only"))
}

impl Dir for ObjectDir {
    fn create_new(&self, _name: &str, _prealloc: u64) -> io::Result<Arc<dyn File>> {
        read_only()
    }

    fn open(&self, name: &str, _access: Access) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Bytes(self.bytes(name)?)))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        read_only()
    }

    fn unlink(&self, _name: &str) -> io::Result<()> {
        read_only()
    }

    fn link(&self, _name: &str, _to: &dyn Dir, _to_name: &str) -> io::Result<()> {
        read_only()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.store.list()?.into_iter().map(|object| object.name).collect())
    }

    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.store.list()?.is_empty())
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn lock(&self, _name: &str, _exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        read_only()
    }

    fn boot(&self) -> Boot {
        Boot::default()
    }

    fn space(&self) -> io::Result<Space> {
        read_only()
    }

    fn path(&self) -> &Path {
        Path::new("object store")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl File for Bytes {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).map_or(self.0.len(), |at| at.min(self.0.len()));
        let n = buf.len().min(self.0.len() - from);
        buf[..n].copy_from_slice(&self.0[from..from + n]);
        Ok(n)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_cached(&self, _offset: u64) -> io::Result<bool> {
        Ok(true)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buf, offset).map(Some)
    }
}
