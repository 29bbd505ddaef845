//! The suite on `openraft-rocksstore`.

#[macro_use]
#[path = "../../tests/suite/cases.rs"]
mod cases;

use openraft::StorageError;
use openraft::storage::Adaptor;
use openraft::testing::{StoreBuilder, Suite};
use openraft_rocksstore::{RocksStore, TypeConfig};
use std::sync::Arc;
use tempfile::TempDir;

type Store = Adaptor<TypeConfig, Arc<RocksStore>>;

struct Builder;

impl StoreBuilder<TypeConfig, Store, Store, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Store, Store), StorageError<u64>> {
        let dir = TempDir::new().expect("a folder");
        let (log, machine) = Adaptor::new(RocksStore::new(dir.path()).await);
        Ok((dir, log, machine))
    }
}

suite!(Builder, Suite<TypeConfig, Store, Store, Builder, TempDir>);
