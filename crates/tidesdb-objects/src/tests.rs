//! Tests of the bridge, alone and with a database.

mod calls;
mod conditions;
mod features;
#[cfg(feature = "s3")]
mod s3;

use std::path::Path;
use std::sync::Arc;

use object_store::memory::InMemory;
use tidesdb::ObjectStore;
use tidesdb::store::DirectoryStore;

/// An empty store of the other crate, and one in a directory, which must do the same.
fn stores(dir: &Path) -> [Arc<dyn ObjectStore>; 2] {
    [
        Arc::new(crate::Bridge::new(Arc::new(InMemory::new()))),
        Arc::new(DirectoryStore::open(dir.join("deep/down")).unwrap()),
    ]
}
