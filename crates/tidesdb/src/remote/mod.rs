//! A copy of the database in an object store: what is stored there, and a directory that fetches files from it.
//!
//! The objects of a store are the files of a database under their own names, so the ordinary open can read them:
//!
//! | object | what | written |
//! |---|---|---|
//! | `CURRENT` | names the manifest in force | replaced; the last step of each upload |
//! | `000012.manifest` | one snapshot of the state, without later edits | once |
//! | `000001.klog` | a table | once |
//! | `000003.vlog.000000000000` | a part of a value log, and the offset where it begins | once |
//! | `000005.wal.000000000000` | a part of a log segment, and the offset where it begins | once |
//!
//! Files that grow are stored in parts, so no byte is uploaded twice; a part that failed is repeated as it was. Only `CURRENT` is ever replaced, so the store
//! must offer only an atomic `put` of 64 bytes.
//!
//! ```text
//! names, objects   what the store contains             cache, dir   local files, fetched when they are opened
//! upload           brings the store up to date         view         the small objects as a read-only directory
//! catalog, kept    what the stored log relies on       restore      the open: compares, fills an empty folder
//! ```
//!
//! The interface of a store is in `store/`, its settings are in `options/remote.rs`. Backups by generations (`backup/`) use neither this
//! layout nor this code. All methods may be called from any thread.

mod kept;
mod names;
mod objects;
mod cache;
mod catalog;
mod dir;
mod view;
pub mod upload;
pub mod restore;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub use kept::Kept;
use tidesdb_io::Dir;
use tidesdb_sync::{Mutex, rank};

use self::cache::Cache;
use self::catalog::Catalog;
use self::names::object_name;
use self::objects::{FilePart, Objects};
use crate::Error;
use crate::jobs::Retry;
use crate::options::RemoteOptions;
use crate::stats::statistics;
use crate::store::Body;

/// Maximum pause before a failed upload is retried.
const PAUSE_MAX: Duration = Duration::from_secs(30);

statistics! {
    /// Statistics of the object store since the open.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    RemoteStats of seen: &Seen<'_>;

    plain {}
    figures {
        Counter Count uploads: u64 = load(&seen.remote.uploads),
            "Objects uploaded.", c "total_uploads";
        Counter Bytes uploaded_bytes: u64 = load(&seen.remote.uploaded_bytes),
            "Bytes of these objects.";
        Counter Count upload_failures: u64 = load(&seen.remote.upload_failures),
            "Failed store calls during uploads, including objects that could not be deleted.",
            c "total_upload_failures";
        Gauge Count queued: u64 = load(&seen.remote.queued),
            "Objects queued for upload, as far as known.", c "upload_queue_depth";
        Counter Count downloads: u64 = load(&seen.remote.cache.downloads),
            "Objects fetched.";
        Counter Bytes downloaded_bytes: u64 = load(&seen.remote.cache.downloaded_bytes),
            "Bytes of these objects.";
        Counter Count download_failures: u64 = load(&seen.remote.cache.download_failures),
            "Fetches that failed.";
        Gauge Count generation: u64 = seen.remote.objects.lock().generation(),
            "Number of the manifest that the store's `CURRENT` names; 0 = none.", c "last_uploaded_generation";
        Gauge Count local_files: u64 = seen.local.0,
            "Tables and value logs in the local folder.", c "local_cache_num_files";
        Gauge Bytes local_bytes: u64 = seen.local.1,
            "Bytes of these objects.", c "local_cache_bytes_used";
        Gauge Bytes local_bytes_max: u64 = seen.remote.cache.bytes_max,
            "Limit for the bytes of local files; 0 = none.", c "local_cache_bytes_max";
        Gauge Bytes kept_bytes: u64 = seen.remote.kept.bytes(),
            "Bytes of value logs that nothing local refers to, kept until the store has the log that does.";
        Counter Count evictions: u64 = load(&seen.remote.cache.evictions),
            "Local files removed because of the limit.";
    }
}

/// A store, with the number and the bytes of the files in the local folder.
struct Seen<'a> {
    remote: &'a Remote,
    local: (u64, u64),
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The object store of one open database, and what is known about its content.
#[derive(Debug)]
pub struct Remote {
    /// Configuration of the store.
    pub options: RemoteOptions,
    /// Objects in the store.
    objects: Arc<Mutex<Objects, { rank::REMOTE_OBJECTS }>>,
    /// Held during an upload.
    uploading: Mutex<(), { rank::UPLOADING }>,
    /// State of retries: consecutive failures.
    retry: Retry,
    /// Number of version set installs that the store includes.
    installs_seen: AtomicU64,
    /// The log is stored up to this sequence number; 0 = no part of this session is stored.
    log_end: AtomicU64,
    /// Whether parts of the log may be stored: the manifest in the store records where the log begins.
    log_follows: AtomicBool,
    /// The families of the manifest that `CURRENT` in the store names, if this session has written it.
    catalog: Mutex<Option<Catalog>>,
    /// Dead value logs that the store may need.
    pub kept: Kept,
    /// Objects queued for upload.
    queued: AtomicU64,
    /// The last failure of an upload.
    failure: Mutex<String>,
    uploads: AtomicU64,
    uploaded_bytes: AtomicU64,
    upload_failures: AtomicU64,
    cache: Arc<Cache>,
}

impl Remote {
    /// Creates the state for the store of `options` with the content `objects`. `dir` is the local folder.
    fn new(options: RemoteOptions, objects: Objects, dir: &Arc<dyn Dir>) -> std::io::Result<Self> {
        let objects = Arc::new(Mutex::new(objects));
        let cache = Cache::new(Arc::clone(&options.store), &objects, options.local_bytes_max, dir)?;
        Ok(Self {
            options,
            objects,
            uploading: Mutex::default(),
            retry: Retry::default(),
            installs_seen: AtomicU64::new(u64::MAX),
            log_end: AtomicU64::new(0),
            log_follows: AtomicBool::new(false),
            catalog: Mutex::default(),
            kept: Kept::default(),
            queued: AtomicU64::new(0),
            failure: Mutex::default(),
            uploads: AtomicU64::new(0),
            uploaded_bytes: AtomicU64::new(0),
            upload_failures: AtomicU64::new(0),
            cache: Arc::new(cache),
        })
    }

    /// Stores `body` as the object named `object`.
    ///
    /// # Errors
    /// Errors of the store.
    fn put(&self, object: &str, body: &Body<'_>) -> std::io::Result<()> {
        let bytes = body.len();
        self.objects.lock().begin(object);
        self.options.store.put(object, body)?;
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.uploaded_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts a failed call during an upload.
    fn count_failure(&self) {
        self.upload_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an upload that failed with `error`, and sets when it is tried again.
    fn failed(&self, error: &Error, now: Duration) {
        self.upload_failures.fetch_add(1, Ordering::Relaxed);
        *self.failure.lock() = error.to_string();
        self.retry.failed(now, PAUSE_MAX);
    }

    /// Returns why the last upload failed; `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        self.retry.is_failing().then(|| self.failure.lock().clone())
    }

    /// Returns the statistics since the open.
    pub fn stats(&self) -> RemoteStats {
        RemoteStats::of(&Seen { remote: self, local: self.cache.local() })
    }
}
