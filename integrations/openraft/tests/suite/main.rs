//! The host's own tests on these stores.

#[macro_use]
mod cases;

use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;
use tidesdb::Db;
use tidesdb_openraft::{Application, LogStore, SnapshotData, State, StateMachine, Stores};

openraft::declare_raft_types!(Types: D = String, R = (), SnapshotData = SnapshotData);

struct Nothing;

impl Application<Types> for Nothing {
    fn apply(&self, state: &mut State<'_>, request: String) -> tidesdb::Result<()> {
        state.put("last", request)
    }

    fn blank(&self) {}
}

type Log = LogStore<Types>;
type Machine = StateMachine<Types, Nothing>;

struct Builder;

impl StoreBuilder<Types, Log, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Log, Machine), StorageError<u64>> {
        let dir = tempfile::tempdir().expect("a folder");
        let db = Db::open(dir.path().join("db")).expect("a database");
        let stores = Stores::open(&db, dir.path().join("receiving")).expect("its stores");
        Ok((dir, stores.log_store(7), stores.state_machine(7, Nothing)))
    }
}

suite!(Builder, Suite<Types, Log, Machine, Builder, TempDir>);
