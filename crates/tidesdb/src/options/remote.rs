//! Settings of an object store.

use std::sync::Arc;
use std::time::Duration;

use crate::store::ObjectStore;

/// An object store for a database, and its settings; see [`DbOptions::remote`](crate::DbOptions::remote).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// The store. It belongs to one database.
    pub store: Arc<dyn ObjectStore>,
    /// Bytes of tables and value logs kept in the local folder. Above it, files that the store has are removed, the
    /// least recently used first. They are fetched again, as a whole, when they are read.
    /// Files being written and the two files used last are never removed. If the limit is smaller than the tables that
    /// are read together, they are fetched again and again. 0 = no limit. Default 0.
    pub local_bytes_max: u64,
    /// Upload the log between two uploads of tables. Default true.
    pub replicate_log: bool,
    /// The log is uploaded when it has grown by this many bytes, or a second after a commit. Default 1 MiB.
    pub log_bytes: u64,
    /// Shortest time between two uploads of tables. Default 1 s.
    pub interval: Duration,
}

impl RemoteOptions {
    /// The defaults, with `store`.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            local_bytes_max: 0,
            replicate_log: true,
            log_bytes: 1 << 20,
            interval: Duration::from_secs(1),
        }
    }
}
