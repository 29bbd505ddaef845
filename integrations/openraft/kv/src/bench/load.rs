//! The load that the stores are compared with: three nodes in one process, on folders of a disk, and clients that write. Between the nodes
//! there is no network, so what is measured is openraft and the stores.

use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::impls::OneshotResponder;
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use openraft::{BasicNode, Config, Raft, RaftTypeConfig, TokioRuntime};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Seconds before the measurement.
const WARM: Duration = Duration::from_secs(1);

/// Nodes of the group.
pub(crate) const NODES: u64 = 3;

/// What a load has measured.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) entries: u64,
    pub(crate) seconds: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

struct Nodes<C: RaftTypeConfig>(Arc<Mutex<BTreeMap<u64, Raft<C>>>>);

impl<C: RaftTypeConfig> Clone for Nodes<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Link<C: RaftTypeConfig> {
    nodes: Nodes<C>,
    to: u64,
}

type Refused<E> = RPCError<u64, BasicNode, E>;

/// The types of a group that can be measured.
pub(crate) trait Group:
    RaftTypeConfig<
        NodeId = u64,
        Node = BasicNode,
        Responder = OneshotResponder<Self>,
        AsyncRuntime = TokioRuntime,
    >
{
}

impl<C> Group for C where
    C: RaftTypeConfig<
            NodeId = u64,
            Node = BasicNode,
            Responder = OneshotResponder<C>,
            AsyncRuntime = TokioRuntime,
        >
{
}

impl<C: Group> Link<C> {
    async fn call<A, E: Error, F: Future<Output = Result<A, E>>>(
        &self,
        call: impl FnOnce(Raft<C>) -> F,
    ) -> Result<A, Refused<E>> {
        let node = self.nodes.0.lock().unwrap_or_else(PoisonError::into_inner).get(&self.to).cloned();
        let node = node.ok_or_else(|| Unreachable::new(&std::io::Error::other("not started")))?;
        call(node).await.map_err(|e| RPCError::RemoteError(RemoteError::new(self.to, e)))
    }
}

impl<C: Group> RaftNetworkFactory<C> for Nodes<C> {
    type Network = Link<C>;

    async fn new_client(&mut self, to: u64, _: &BasicNode) -> Link<C> {
        Link { nodes: self.clone(), to }
    }
}

impl<C: Group> RaftNetwork<C> for Link<C> {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<C>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Refused<RaftError<u64>>> {
        self.call(|raft| async move { raft.append_entries(request).await }).await
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<C>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Refused<RaftError<u64, InstallSnapshotError>>> {
        self.call(|raft| async move { raft.install_snapshot(request).await }).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, Refused<RaftError<u64>>> {
        self.call(|raft| async move { raft.vote(request).await }).await
    }
}

/// Starts the nodes and lets `clients` write for so long. `begin` and `end` are called around the measurement.
pub(crate) async fn measure<C, L, M>(
    stores: Vec<(L, M)>,
    request: impl Fn(u64) -> C::D + Clone + Send + 'static,
    clients: u64,
    time: Duration,
    (begin, end): (impl FnOnce(), impl FnOnce()),
) -> Result<Figures, Box<dyn Error>>
where
    C: Group,
    L: RaftLogStorage<C>,
    M: RaftStateMachine<C>,
{
    // Elections would be part of the figures.
    let config = Config {
        heartbeat_interval: 500,
        election_timeout_min: 5000,
        election_timeout_max: 6000,
        ..Config::default()
    };
    let config = Arc::new(config.validate()?);
    let nodes = Nodes::<C>(Arc::default());
    for (id, (log, machine)) in (1..).zip(stores) {
        let raft = Raft::new(id, Arc::clone(&config), nodes.clone(), log, machine).await?;
        nodes.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, raft);
    }
    let leader = nodes.0.lock().unwrap_or_else(PoisonError::into_inner)[&1].clone();
    let members: BTreeMap<u64, BasicNode> = (1..=NODES).map(|id| (id, BasicNode::new(""))).collect();
    leader.initialize(members).await?;
    leader.wait(Some(Duration::from_secs(30))).current_leader(1, "the first node leads").await?;

    let next = Arc::new(AtomicU64::new(0));
    let measured = Arc::new(Mutex::new(Vec::new()));
    let (from, until) = (Instant::now() + WARM, Instant::now() + WARM + time);
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (leader, request) = (leader.clone(), request.clone());
            let (next, measured) = (Arc::clone(&next), Arc::clone(&measured));
            tokio::spawn(async move {
                let mut own = Vec::new();
                while Instant::now() < until {
                    let entry = request(next.fetch_add(1, Ordering::Relaxed));
                    let begun = Instant::now();
                    if leader.client_write(entry).await.is_err() {
                        break;
                    }
                    if begun >= from {
                        own.push(begun.elapsed());
                    }
                }
                measured.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own);
            })
        })
        .collect();
    tokio::time::sleep_until(from.into()).await;
    begin();
    tokio::time::sleep_until(until.into()).await;
    end();
    for task in tasks {
        task.await?;
    }
    let times = std::mem::take(&mut *measured.lock().unwrap_or_else(PoisonError::into_inner));
    let all = std::mem::take(&mut *nodes.0.lock().unwrap_or_else(PoisonError::into_inner));
    for raft in all.into_values() {
        raft.shutdown().await?;
    }
    Ok(figures(times, time))
}

fn figures(mut times: Vec<Duration>, time: Duration) -> Figures {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    Figures { entries: times.len() as u64, seconds: time.as_secs_f64(), p50: at(0.5), p99: at(0.99) }
}

/// Prints a line of the table.
pub(crate) fn line(store: &str, clients: u64, figures: &Figures, syncs: Option<u64>) {
    let Figures { entries, seconds, p50, p99 } = figures;
    let per_second = *entries as f64 / seconds;
    let syncs =
        syncs.map(|syncs| format!("{:.2} syncs per entry on all nodes", syncs as f64 / *entries as f64));
    println!(
        "{store:<12} {clients:>3} clients {per_second:>9.0} entries/s  p50 {p50:>10.1?}  p99 {p99:>10.1?}  {}",
        syncs.unwrap_or_default()
    );
}
