//! Object stores for TidesDB, built on the `object_store` crate.
//!
//! [`directory`] keeps objects as files in a directory. [`Bridge`] adapts any store of that crate to the
//! engine, if its calls need no async runtime of their own.
//!
//! ```
//! use std::sync::Arc;
//! use tidesdb::{Db, RemoteOptions};
//!
//! # let temp = tempfile::tempdir()?;
//! let objects = temp.path().join("objects");
//! let open = |folder: &str| {
//!     let store = tidesdb_objects::directory(&objects)?;
//!     Ok::<_, Box<dyn std::error::Error>>(
//!         Db::options(temp.path().join(folder)).remote(RemoteOptions::new(Arc::new(store))).open()?,
//!     )
//! };
//! let db = open("here")?;
//! db.put(b"whale", b"blue")?;
//! db.close()?;
//! std::fs::remove_dir_all(temp.path().join("here"))?;
//! assert_eq!(open("there")?.get(b"whale")?.as_deref(), Some(&b"blue"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore as _, ObjectStoreExt, PutPayload};
use tidesdb::ObjectStore;
use tidesdb::store::{Body, Object};
use tidesdb_io::{Disk, RealDisk};

/// Size of one part: a longer body is uploaded in several parts.
const PART_BYTES: usize = 8 << 20;

/// Adapts a store of the `object_store` crate to the engine. Its calls run in the calling thread.
#[derive(Clone, Debug)]
pub struct Bridge {
    store: Arc<dyn object_store::ObjectStore>,
    /// The directory of the objects, if the store leaves it to this crate to make their names durable.
    unsynced: Option<PathBuf>,
}

/// Keeps objects as files in the directory `path`, which is created if missing. Each file is synced before it
/// gets its name, and its name is durable when `put` returns.
///
/// # Errors
/// `Io` if the directory cannot be created or used.
pub fn directory(path: impl AsRef<FilePath>) -> io::Result<Bridge> {
    std::fs::create_dir_all(path.as_ref())?;
    let store = LocalFileSystem::new_with_prefix(path.as_ref()).map_err(of_store)?.with_fsync(true);
    // The store syncs names on Unix only.
    let unsynced = (std::env::consts::FAMILY != "unix").then(|| path.as_ref().to_owned());
    Ok(Bridge { unsynced, ..Bridge::new(Arc::new(store)) })
}

impl Bridge {
    /// Wraps `store`.
    pub fn new(store: Arc<dyn object_store::ObjectStore>) -> Self {
        Self { store, unsynced: None }
    }

    /// Makes the names of the objects durable, if the store does not.
    fn sync_names(&self) -> io::Result<()> {
        let Some(dir) = &self.unsynced else { return Ok(()) };
        RealDisk::new().open_dir(dir, false)?.sync()
    }

    async fn put_parts(&self, path: &Path, body: &Body<'_>) -> io::Result<()> {
        let mut upload = self.store.put_multipart(path).await.map_err(of_store)?;
        let mut at = 0;
        while at < body.len() {
            let mut part = vec![0; (body.len() - at).min(PART_BYTES as u64) as usize];
            let stored = match body.read_exact_at(&mut part, at) {
                Ok(()) => upload.put_part(PutPayload::from(part)).await.map_err(of_store),
                Err(e) => Err(e),
            };
            if let Err(e) = stored {
                let _ = upload.abort().await; // return the first error
                return Err(e);
            }
            at += PART_BYTES as u64;
        }
        upload.complete().await.map(drop).map_err(of_store)
    }
}

impl ObjectStore for Bridge {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        let path = path_of(name)?;
        if body.len() > PART_BYTES as u64 {
            block_on(self.put_parts(&path, body))?;
            return self.sync_names();
        }
        let mut bytes = vec![0; body.len() as usize];
        body.read_exact_at(&mut bytes, 0)?;
        block_on(self.store.put(&path, PutPayload::from(bytes))).map_err(of_store)?;
        self.sync_names()
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let path = path_of(name)?;
        block_on(async {
            let mut pieces = self.store.get(&path).await.map_err(of_store)?.into_stream();
            while let Some(piece) = pieces.next().await {
                sink(&piece.map_err(of_store)?)?;
            }
            Ok(())
        })
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        block_on(async {
            let mut all = Vec::new();
            let mut list = self.store.list(None);
            while let Some(meta) = list.next().await {
                let meta = meta.map_err(of_store)?;
                all.push(Object { name: meta.location.to_string(), bytes: meta.size });
            }
            Ok(all)
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        match block_on(self.store.delete(&path_of(name)?)) {
            Err(Error::NotFound { .. }) => Ok(()),
            other => other.map_err(of_store),
        }
    }
}

fn path_of(name: &str) -> io::Result<Path> {
    Path::parse(name).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}

fn of_store(e: Error) -> io::Error {
    match e {
        Error::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, e),
        e => io::Error::other(e),
    }
}
