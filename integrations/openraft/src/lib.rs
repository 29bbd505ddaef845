//! Log store and state machine of [openraft](openraft) 0.9 on [TidesDB](tidesdb). One database holds many Raft groups; their
//! durable commits share syncs.
//!
//! [`Stores`] opens the two families that all groups of a database share. [`Stores::log_store`] and [`Stores::state_machine`] return what
//! `openraft::Raft::new` takes. What the state machine does with a request is an [`Application`].
//!
//! ```
//! use openraft::storage::{RaftLogStorageExt, RaftStateMachine};
//! use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId};
//! use tidesdb_openraft::{Application, SnapshotData, State, Stores};
//!
//! openraft::declare_raft_types!(pub Types: D = String, R = u64, SnapshotData = SnapshotData);
//!
//! /// Counts how often each word was proposed.
//! struct Words;
//!
//! impl Application<Types> for Words {
//!     fn apply(&self, state: &mut State<'_>, word: String) -> tidesdb::Result<u64> {
//!         let before = state.get(&word)?.map_or(0, |count| String::from_utf8_lossy(&count).parse().unwrap_or(0));
//!         state.put(&word, (before + 1).to_string())?;
//!         Ok(before + 1)
//!     }
//!
//!     fn blank(&self) -> u64 {
//!         0
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let db = tidesdb::Db::open(dir.path().join("node.db"))?;
//! let stores = Stores::open(&db, dir.path().join("receiving"))?;
//! let mut log = stores.log_store::<Types>(1);
//! let mut machine = stores.state_machine::<Types, _>(1, Words);
//! // A program hands both to `Raft::new`, which makes these calls.
//! let entry = |index| Entry {
//!     log_id: LogId::new(CommittedLeaderId::new(1, 0), index),
//!     payload: EntryPayload::Normal("tide".to_owned()),
//! };
//! log.blocking_append([entry(1), entry(2)]).await?; // durable
//! assert_eq!(machine.apply([entry(1), entry(2)]).await?, [1, 2]);
//! assert_eq!(machine.reader().get("tide")?.as_deref(), Some(&b"2"[..]));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

mod codec;
mod failure;
mod keys;
mod group;
mod stores;
mod log;
mod snapshot;
mod machine;

pub use keys::KEY_BYTES_MAX;
pub use log::LogStore;
pub use machine::{Application, Reader, Rows, SnapshotBuilder, State, StateMachine};
pub use snapshot::SnapshotData;
pub use stores::{LOG_FAMILY, STATE_FAMILY, Stores};

/// The samples of the page for users.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/replicate.md")]
mod page {}

use openraft::{Entry, RaftTypeConfig, TokioRuntime};

/// The types of a Raft group that these stores serve: entries of openraft, [`SnapshotData`] and tokio. Implemented for each type that
/// `openraft::declare_raft_types!` declares with `SnapshotData = SnapshotData`.
pub trait GroupTypes:
    RaftTypeConfig<Entry = Entry<Self>, SnapshotData = SnapshotData, AsyncRuntime = TokioRuntime>
{
}

impl<C> GroupTypes for C where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotData, AsyncRuntime = TokioRuntime>
{
}
