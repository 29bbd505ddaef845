//! The suite on `openraft-memstore`, which keeps everything in memory.

#[macro_use]
#[path = "../../tests/suite/cases.rs"]
mod cases;

use openraft::StorageError;
use openraft::storage::Adaptor;
use openraft::testing::{StoreBuilder, Suite};
use openraft_memstore::{MemStore, TypeConfig};
use std::sync::Arc;

type Store = Adaptor<TypeConfig, Arc<MemStore>>;

struct Builder;

impl StoreBuilder<TypeConfig, Store, Store, ()> for Builder {
    async fn build(&self) -> Result<((), Store, Store), StorageError<u64>> {
        let (log, machine) = Adaptor::new(MemStore::new_async().await);
        Ok(((), log, machine))
    }
}

suite!(Builder, Suite<TypeConfig, Store, Store, Builder, ()>);
