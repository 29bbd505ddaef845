//! Settings of an object store.

use std::sync::Arc;
use std::time::Duration;

use crate::store::ObjectStore;

/// An object store for a database, and how it is used; see [`DbOptions::remote`](crate::DbOptions::remote).
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// The store. It belongs to one database.
    pub store: Arc<dyn ObjectStore>,
    /// Bytes of tables and value logs kept in the local folder. Beyond it, files that the store has are removed, the
    /// least recently used first, and fetched again, whole, when they are read. The files being written and the two used
    /// last stay. A limit below the tables that are read together fetches them again and again. 0 = no limit. Default 0.
    pub local_bytes_max: u64,
    /// Upload the log between two uploads of tables, too. Default true.
    pub replicate_log: bool,
    /// The log is uploaded when it has grown by this many bytes, or a second after a commit. Default 1 MiB.
    pub log_bytes: u64,
    /// The shortest time between two uploads of tables. Default 1 s.
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
