//! A replicated key-value store: one process is one node. See `main.rs` for its program.

pub mod history;
pub mod network;
pub mod server;

use openraft::{BasicNode, Raft};
use serde::{Deserialize, Serialize};
use tidesdb_openraft::{Application, SnapshotData, State};

openraft::declare_raft_types!(
    /// The types of the group.
    pub Types: D = Request, R = Answer, NodeId = u64, Node = BasicNode, SnapshotData = SnapshotData
);

/// A node of the group.
pub type KvRaft = Raft<Types>;

/// A change that the nodes agree on. New kinds go to the end: stored entries have the numbers of these.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Sets a value.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: String,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
    /// Sets a value if the key has the expected one.
    CompareAndSet {
        /// The key.
        key: String,
        /// The value that it must have; `None`: it must be absent.
        expected: Option<String>,
        /// Its new value.
        value: String,
    },
}

/// Answer to a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// False if a comparison failed, and nothing was changed.
    pub done: bool,
    /// The value with which a comparison failed.
    pub found: Option<String>,
}

/// The rules of the store.
#[derive(Clone, Copy, Debug)]
pub struct Kv;

impl Application<Types> for Kv {
    fn apply(&self, state: &mut State<'_>, request: Request) -> tidesdb::Result<Answer> {
        match request {
            Request::Put { key, value } => state.put(key, value)?,
            Request::Delete { key } => state.delete(key)?,
            Request::CompareAndSet { key, expected, value } => {
                let found = state.get(&key)?;
                if found.as_deref() != expected.as_deref().map(str::as_bytes) {
                    let found = found.map(|value| String::from_utf8_lossy(&value).into_owned());
                    return Ok(Answer { done: false, found });
                }
                state.put(key, value)?;
            }
        }
        Ok(self.blank())
    }

    fn blank(&self) -> Answer {
        Answer { done: true, found: None }
    }
}
