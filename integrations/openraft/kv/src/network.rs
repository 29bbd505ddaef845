//! Calls between nodes: requests in postcard, answers in JSON.

use crate::Types;
use openraft::BasicNode;
use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Makes the connections of a node.
#[derive(Clone, Debug)]
pub struct Network {
    client: reqwest::Client,
    /// Addresses that this node uses instead of those in the membership.
    routes: Arc<BTreeMap<u64, String>>,
    /// While this file exists, the snapshots that this node sends are damaged.
    damage: Option<PathBuf>,
}

impl Network {
    /// Returns the network of a node that reaches some others by `routes`. If there is a path `damage`, it damages snapshots while that file
    /// exists: for a test.
    ///
    /// # Errors
    /// Those of the HTTP client.
    pub fn new(routes: BTreeMap<u64, String>, damage: Option<PathBuf>) -> reqwest::Result<Self> {
        // The nodes talk to each other, whatever proxy the surroundings of the process name.
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { client, routes: Arc::new(routes), damage })
    }
}

/// The connection to one node.
#[derive(Debug)]
pub struct Link {
    client: reqwest::Client,
    target: u64,
    address: String,
    damage: Option<PathBuf>,
}

/// Changes a byte of a piece of a snapshot.
pub fn damage(piece: &mut InstallSnapshotRequest<Types>) {
    let middle = piece.data.len() / 2;
    if let Some(byte) = piece.data.get_mut(middle) {
        *byte ^= 1;
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Link {
        let address = self.routes.get(&target).unwrap_or(&node.addr).clone();
        Link { client: self.client.clone(), target, address, damage: self.damage.clone() }
    }
}

impl Link {
    async fn call<Q, A, E>(
        &self,
        path: &str,
        request: &Q,
        limit: Duration,
    ) -> Result<A, RPCError<u64, BasicNode, E>>
    where
        Q: Serialize,
        A: DeserializeOwned,
        E: Error + DeserializeOwned,
    {
        let body = postcard::to_stdvec(request).map_err(|e| NetworkError::new(&e))?;
        let post = self.client.post(format!("http://{}/raft/{path}", self.address));
        let sent = post.timeout(limit).body(body).send().await;
        let answer = sent.map_err(|e| match e.is_connect() {
            true => RPCError::Unreachable(Unreachable::new(&e)),
            false => RPCError::Network(NetworkError::new(&e)),
        })?;
        let bytes = answer.bytes().await.map_err(|e| NetworkError::new(&e))?;
        let answer: Result<A, E> = serde_json::from_slice(&bytes).map_err(|e| NetworkError::new(&e))?;
        answer.map_err(|e| RPCError::RemoteError(RemoteError::new(self.target, e)))
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.call("append", &request, option.hard_ttl()).await
    }

    async fn install_snapshot(
        &mut self,
        mut request: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>>
    {
        if self.damage.as_ref().is_some_and(|file| file.exists()) {
            damage(&mut request);
        }
        self.call("snapshot", &request, option.hard_ttl()).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.call("vote", &request, option.hard_ttl()).await
    }
}
