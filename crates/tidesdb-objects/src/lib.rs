//! Object stores for TidesDB, built on the `object_store` crate.
//!
//! [`Bridge`] adapts any store of that crate to the engine, if its calls need no async runtime of their own. With the feature `s3`, `s3` keeps objects in
//! a bucket. A store in a directory is part of the engine: [`tidesdb::store::DirectoryStore`].
//!
//! ```
//! use std::sync::Arc;
//! use object_store::memory::InMemory;
//! use tidesdb::{Db, RemoteOptions};
//! use tidesdb_objects::Bridge;
//!
//! # let temp = tempfile::tempdir()?;
//! let objects = Arc::new(Bridge::new(Arc::new(InMemory::new())));
//! let open = |folder: &str| Db::options(temp.path().join(folder)).remote(RemoteOptions::new(objects.clone())).open();
//! let db = open("here")?;
//! db.put(b"whale", b"blue")?;
//! db.close()?;
//! std::fs::remove_dir_all(temp.path().join("here"))?;
//! assert_eq!(open("there")?.get(b"whale")?.as_deref(), Some(&b"blue"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[doc(hidden)] // for the libraries of this repository
pub mod library;
#[cfg(feature = "s3")]
mod s3;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore as _, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use tidesdb::ObjectStore;
use tidesdb::store::{Body, Condition, Object, Tag};

#[cfg(feature = "s3")]
pub use s3::{Encryption, S3Options, S3Store, s3};

/// Size of one part: a longer body is uploaded in several parts.
const PART_BYTES: usize = 8 << 20;

/// Adapts a store of the `object_store` crate to the engine. Its calls run in the calling thread.
#[derive(Clone)]
pub struct Bridge {
    store: Arc<dyn object_store::ObjectStore>,
}

impl Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The `Debug` of a store may have credentials.
        write!(f, "Bridge({})", self.store)
    }
}

impl Bridge {
    /// Wraps `store`.
    pub fn new(store: Arc<dyn object_store::ObjectStore>) -> Self {
        Self { store }
    }

    /// Passes the bytes of an object, or a range of them, on. Returns the tag, if the object has one.
    async fn read(
        &self,
        path: &Path,
        range: Option<Range<u64>>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Option<Tag>> {
        let wanted = range.as_ref().map(|range| range.end.saturating_sub(range.start));
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let got = self.store.get_opts(path, options).await.map_err(of_store)?;
        let tag = tag_of(got.meta.e_tag.clone(), got.meta.version.clone());
        let (mut pieces, mut bytes) = (got.into_stream(), 0);
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(of_store)?;
            bytes += piece.len() as u64;
            sink(&piece)?;
        }
        if wanted.is_some_and(|wanted| wanted != bytes) {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(tag)
        }
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
            return block_on(self.put_parts(&path, body));
        }
        let mut bytes = vec![0; body.len() as usize];
        body.read_exact_at(&mut bytes, 0)?;
        block_on(self.store.put(&path, PutPayload::from(bytes))).map(drop).map_err(of_store)
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        block_on(self.read(&path_of(name)?, None, sink)).map(drop)
    }

    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        block_on(self.read(&path_of(name)?, Some(range), sink)).map(drop)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        block_on(self.read(&path_of(name)?, None, sink))?.ok_or_else(untagged)
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        let mode = match condition {
            Condition::Absent => PutMode::Create,
            Condition::Tagged(tag) => PutMode::Update(version_of(tag)),
        };
        let mut bytes = vec![0; usize::try_from(body.len()).map_err(|_| io::ErrorKind::OutOfMemory)?];
        body.read_exact_at(&mut bytes, 0)?;
        match block_on(self.store.put_opts(&path_of(name)?, PutPayload::from(bytes), mode.into())) {
            Ok(put) => tag_of(put.e_tag, put.version).ok_or_else(untagged).map(Some),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(None),
            Err(Error::NotFound { .. }) if matches!(condition, Condition::Tagged(_)) => Ok(None),
            Err(e) => Err(of_store(e)),
        }
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

/// Returns the tag of an object, which has the two properties that stores tell versions by; `None` if it has neither.
fn tag_of(e_tag: Option<String>, version: Option<String>) -> Option<Tag> {
    let is_known = e_tag.is_some() || version.is_some();
    is_known.then(|| Tag(format!("{}\n{}", e_tag.unwrap_or_default(), version.unwrap_or_default())))
}

fn version_of(tag: &Tag) -> UpdateVersion {
    let (e_tag, version) = tag.0.split_once('\n').unwrap_or((&tag.0, ""));
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    UpdateVersion { e_tag: known(e_tag), version: known(version) }
}

fn untagged() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "the object store does not say which version of an object it has",
    )
}

fn path_of(name: &str) -> io::Result<Path> {
    Path::parse(name).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))
}

fn of_store(e: Error) -> io::Error {
    match e {
        Error::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, e),
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            io::Error::new(io::ErrorKind::Unsupported, e)
        }
        e => io::Error::other(e),
    }
}
