//! What a node answers.
//!
//! Clients: `GET`, `PUT` and `DELETE` of `/kv/KEY`, `POST /cas/KEY`. A node that does not lead answers 421 and names the leader: nothing was done.
//! Any other failure of a change is a 503: it may still happen. A key or a value that is too long is a 414 or a 413 and is not proposed:
//! an entry that cannot be stored or applied would end each node.

use crate::{Answer, KvRaft, Request};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use openraft::{BasicNode, ServerState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidesdb_openraft::Reader;

/// Longest body of a call between nodes.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 4 << 10;

/// Longest value in bytes, and longest sum of both values of a comparison.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Longest body of a request of a client: JSON may have six bytes for one of a value.
const CLIENT_BYTES_MAX: usize = 6 * VALUE_BYTES_MAX + 1024;

/// A running node.
#[derive(Clone)]
pub struct Node {
    /// The node's identity in the group.
    pub id: u64,
    /// The group.
    pub raft: KvRaft,
    /// The state of this node.
    pub reader: Reader,
    /// Serves reads without asking the other nodes: wrong, for a test that must notice it.
    pub stale_reads: bool,
}

/// Body of `POST /cas/KEY`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The value that the key must have.
    pub expected: Option<String>,
    /// Its new value.
    pub value: String,
}

/// Body of a 421.
#[derive(Debug, Serialize, Deserialize)]
pub struct NotLeader {
    /// The node that leads, if it is known.
    pub leader: Option<u64>,
}

/// What `GET /status` says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// This node.
    pub id: u64,
    /// The node that leads, if it is known.
    pub leader: Option<u64>,
    /// The nodes that vote.
    pub voters: BTreeSet<u64>,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Index of the last entry of the log.
    pub last: u64,
    /// Index of the last entry in the newest snapshot.
    pub snapshot: u64,
    /// Index up to which the log was removed.
    pub purged: u64,
}

/// Returns the paths of a node.
pub fn router(node: Node) -> Router {
    let raft = Router::new()
        .route("/raft/append", post(append))
        .route("/raft/snapshot", post(snapshot))
        .route("/raft/vote", post(vote))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    Router::new()
        .route("/kv/{key}", get(read).put(put).delete(delete))
        .route("/cas/{key}", post(compare_and_set))
        .route("/cluster/init", post(init))
        .route("/cluster/learner/{id}", post(learner))
        .route("/cluster/voters", post(voters))
        .route("/cluster/snapshot", post(build_snapshot))
        .route("/status", get(status))
        .layer(DefaultBodyLimit::max(CLIENT_BYTES_MAX))
        .merge(raft)
        .with_state(Arc::new(node))
}

type Served = State<Arc<Node>>;

fn unavailable(error: impl ToString) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response()
}

/// Decodes a call of another node.
fn decoded<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Response>> {
    postcard::from_bytes(body).map_err(|e| Box::new((StatusCode::BAD_REQUEST, e.to_string()).into_response()))
}

async fn append(State(node): Served, body: Bytes) -> Response {
    match decoded(&body) {
        Ok(request) => Json(node.raft.append_entries(request).await).into_response(),
        Err(refused) => *refused,
    }
}

async fn snapshot(State(node): Served, body: Bytes) -> Response {
    match decoded(&body) {
        Ok(request) => Json(node.raft.install_snapshot(request).await).into_response(),
        Err(refused) => *refused,
    }
}

async fn vote(State(node): Served, body: Bytes) -> Response {
    match decoded(&body) {
        Ok(request) => Json(node.raft.vote(request).await).into_response(),
        Err(refused) => *refused,
    }
}

impl Node {
    /// Returns the answer of a node that does not lead; `None` if this one does, as far as it knows.
    fn not_leader(&self) -> Option<Response> {
        let leader = self.raft.metrics().borrow().current_leader;
        let elsewhere = (StatusCode::MISDIRECTED_REQUEST, Json(NotLeader { leader }));
        (leader != Some(self.id)).then(|| elsewhere.into_response())
    }

    async fn change(&self, request: Request) -> Response {
        if let Some(refused) = too_long(&request) {
            return refused.into_response();
        }
        if let Some(elsewhere) = self.not_leader() {
            return elsewhere;
        }
        match self.raft.client_write(request).await {
            Ok(written) => Json::<Answer>(written.data).into_response(),
            // Even if another node leads by now, the entry may be in its log.
            Err(e) => unavailable(e),
        }
    }
}

/// Returns the answer to a request that must not become an entry.
fn too_long(request: &Request) -> Option<StatusCode> {
    let (key, value) = match request {
        Request::Put { key, value } => (key, value.len()),
        Request::Delete { key } => (key, 0),
        Request::CompareAndSet { key, expected, value } => {
            (key, value.len() + expected.as_ref().map_or(0, String::len))
        }
    };
    match (key.len() > KEY_BYTES_MAX, value > VALUE_BYTES_MAX) {
        (true, _) => Some(StatusCode::URI_TOO_LONG),
        (_, true) => Some(StatusCode::PAYLOAD_TOO_LARGE),
        _ => None,
    }
}

async fn put(State(node): Served, Path(key): Path<String>, value: String) -> Response {
    node.change(Request::Put { key, value }).await
}

async fn delete(State(node): Served, Path(key): Path<String>) -> Response {
    node.change(Request::Delete { key }).await
}

async fn compare_and_set(
    State(node): Served,
    Path(key): Path<String>,
    Json(Comparison { expected, value }): Json<Comparison>,
) -> Response {
    node.change(Request::CompareAndSet { key, expected, value }).await
}

/// A linearizable read: the leader asks a majority whether it still leads.
async fn read(State(node): Served, Path(key): Path<String>) -> Response {
    if !node.stale_reads {
        if let Some(elsewhere) = node.not_leader() {
            return elsewhere;
        }
        if let Err(e) = node.raft.ensure_linearizable().await {
            return unavailable(e);
        }
    }
    if key.len() > KEY_BYTES_MAX {
        return StatusCode::URI_TOO_LONG.into_response();
    }
    // The read may wait for the device.
    let reader = node.reader.clone();
    match tokio::task::spawn_blocking(move || reader.get(key)).await {
        Ok(Ok(Some(value))) => value.to_vec().into_response(),
        Ok(Ok(None)) => StatusCode::NOT_FOUND.into_response(),
        Ok(Err(e)) => unavailable(e),
        Err(e) => unavailable(e),
    }
}

async fn init(State(node): Served, Json(nodes): Json<BTreeMap<u64, String>>) -> Response {
    let nodes: BTreeMap<u64, BasicNode> =
        nodes.into_iter().map(|(id, address)| (id, BasicNode::new(address))).collect();
    answered(node.raft.initialize(nodes).await)
}

async fn learner(State(node): Served, Path(id): Path<u64>, address: String) -> Response {
    answered(node.raft.add_learner(id, BasicNode::new(address), true).await)
}

async fn voters(State(node): Served, Json(ids): Json<BTreeSet<u64>>) -> Response {
    answered(node.raft.change_membership(ids, false).await)
}

async fn build_snapshot(State(node): Served) -> Response {
    answered(node.raft.trigger().snapshot().await)
}

fn answered<T, E: ToString>(result: Result<T, E>) -> Response {
    match result {
        Ok(_) => StatusCode::OK.into_response(),
        Err(e) => unavailable(e),
    }
}

async fn status(State(node): Served) -> Json<Status> {
    let metrics = node.raft.metrics().borrow().clone();
    let index = |id: Option<openraft::LogId<u64>>| id.map_or(0, |id| id.index);
    // A leader that has ended leads nobody.
    let leads = metrics.state == ServerState::Leader || metrics.current_leader != Some(node.id);
    Json(Status {
        id: node.id,
        leader: metrics.current_leader.filter(|_| leads),
        voters: metrics.membership_config.voter_ids().collect(),
        applied: index(metrics.last_applied),
        last: metrics.last_log_index.unwrap_or(0),
        snapshot: index(metrics.snapshot),
        purged: index(metrics.purged),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_proposed() {
        let put = |key: usize, value: usize| {
            too_long(&Request::Put { key: "k".repeat(key), value: "v".repeat(value) })
        };
        assert_eq!(put(KEY_BYTES_MAX, VALUE_BYTES_MAX), None);
        assert_eq!(put(KEY_BYTES_MAX + 1, 1), Some(StatusCode::URI_TOO_LONG));
        assert_eq!(put(1, VALUE_BYTES_MAX + 1), Some(StatusCode::PAYLOAD_TOO_LARGE));
        let half = "v".repeat(VALUE_BYTES_MAX / 2 + 1);
        let both = Request::CompareAndSet { key: "k".to_owned(), expected: Some(half.clone()), value: half };
        assert_eq!(too_long(&both), Some(StatusCode::PAYLOAD_TOO_LARGE));
        let key = "k".repeat(KEY_BYTES_MAX + 1);
        assert_eq!(too_long(&Request::Delete { key }), Some(StatusCode::URI_TOO_LONG));
    }
}
