//! Three nodes in this process, each on a simulated disk, and the network between them.

use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidesdb::Db;
use tidesdb_io::sim::{self, Image, SimDisk};
use tidesdb_openraft::{Reader, Stores};
use tidesdb_openraft_kv::network::damage;
use tidesdb_openraft_kv::{Kv, KvRaft, Request, Types};

/// How long all nodes may take to agree once nothing disturbs them.
const RECOVERY: Duration = Duration::from_secs(60);

/// Entries that the leader keeps behind a snapshot.
const KEPT: u64 = 5;

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// A node that has power.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) raft: KvRaft,
    pub(crate) reader: Reader,
    db: Db,
    disk: Arc<SimDisk>,
    /// Changes with each failure. What a node says after its failure was not said.
    pub(crate) life: u64,
}

#[derive(Default)]
struct Wires {
    /// All nodes that have power, by their numbers.
    nodes: BTreeMap<u64, Node>,
    /// Nodes that no call reaches or leaves.
    cut: BTreeSet<u64>,
    /// Nodes that get damaged snapshots.
    damaged: BTreeSet<u64>,
}

/// The nodes that have power, and the ways between them.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<Wires>>);

impl Hub {
    fn wires(&self) -> MutexGuard<'_, Wires> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node(&self, id: u64) -> Option<Node> {
        self.wires().nodes.get(&id).cloned()
    }

    pub(crate) fn has(&self, id: u64, life: u64) -> bool {
        self.wires().nodes.get(&id).is_some_and(|node| node.life == life)
    }

    /// Returns true if a call from one node to the other one arrives.
    fn connects(&self, from: u64, to: u64) -> bool {
        let wires = self.wires();
        !wires.cut.contains(&from) && !wires.cut.contains(&to)
    }
}

/// The network of one life of a node.
#[derive(Clone)]
struct Wire {
    hub: Hub,
    from: (u64, u64),
}

struct Link {
    wire: Wire,
    to: u64,
}

type Refused<E> = RPCError<u64, BasicNode, E>;

fn unreachable<E: Error>() -> Refused<E> {
    Unreachable::new(&std::io::Error::other("no power")).into()
}

impl RaftNetworkFactory<Types> for Wire {
    type Network = Link;

    async fn new_client(&mut self, to: u64, _: &BasicNode) -> Link {
        Link { wire: self.clone(), to }
    }
}

impl Link {
    /// Makes a call of the other node, unless one of both loses its power before the answer.
    async fn call<A, E: Error>(
        &self,
        call: impl AsyncFnOnce(&KvRaft) -> Result<A, E>,
    ) -> Result<A, Refused<E>> {
        let (hub, (from, life)) = (&self.wire.hub, self.wire.from);
        let reached = hub.has(from, life) && hub.connects(from, self.to);
        let node = hub.node(self.to).filter(|_| reached).ok_or_else(unreachable)?;
        let answer = call(&node.raft).await;
        if !hub.has(self.to, node.life) || !hub.has(from, life) || !hub.connects(from, self.to) {
            return Err(unreachable());
        }
        answer.map_err(|e| RPCError::RemoteError(RemoteError::new(self.to, e)))
    }
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Refused<RaftError<u64>>> {
        self.call(async |raft| raft.append_entries(request).await).await
    }

    async fn install_snapshot(
        &mut self,
        mut request: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Refused<RaftError<u64, InstallSnapshotError>>> {
        if self.wire.hub.wires().damaged.contains(&self.to) {
            damage(&mut request);
        }
        self.call(async |raft| raft.install_snapshot(request).await).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, Refused<RaftError<u64>>> {
        self.call(async |raft| raft.vote(request).await).await
    }
}

pub(crate) struct Cluster {
    pub(crate) hub: Hub,
    folder: TempDir,
    lives: u64,
}

impl Cluster {
    pub(crate) async fn start(seed: u64) -> Done<Self> {
        let mut cluster = Self { hub: Hub::default(), folder: TempDir::new()?, lives: 0 };
        for id in 1..=3 {
            cluster.power_on(id, SimDisk::new(seed.wrapping_mul(3).wrapping_add(id))).await?;
        }
        let nodes: BTreeMap<u64, BasicNode> = (1..=3).map(|id| (id, BasicNode::new(""))).collect();
        let first = cluster.hub.node(1).ok_or("no first node")?;
        first.raft.initialize(nodes).await?;
        Ok(cluster)
    }

    /// Starts a node on `disk`.
    async fn power_on(&mut self, id: u64, disk: SimDisk) -> Done {
        self.lives += 1;
        let (env, disk, _) = sim::env_on(disk, self.lives);
        disk.limit_space(None);
        let db = tokio::task::spawn_blocking(|| Db::options("/db").env(env).background_threads(1).open());
        let db = db.await??;
        let stores = Stores::open(&db, self.folder.path().join(id.to_string()))?;
        let machine = stores.state_machine(1, Kv);
        let reader = machine.reader();
        let config = Config {
            heartbeat_interval: 30,
            election_timeout_min: 100,
            election_timeout_max: 200,
            install_snapshot_timeout: 5000,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(100),
            max_in_snapshot_log_to_keep: KEPT,
            ..Config::default()
        };
        let wire = Wire { hub: self.hub.clone(), from: (id, self.lives) };
        let log = stores.log_store(1);
        let raft = Raft::new(id, Arc::new(config.validate()?), wire, log, machine).await?;
        self.hub.wires().nodes.insert(id, Node { raft, reader, db, disk, life: self.lives });
        Ok(())
    }

    /// Takes the power of some nodes in one moment. Their disks keep what `image` says. Then they start again.
    pub(crate) async fn power_failure(&mut self, ids: &[u64], image: &Image, seed: u64) -> Done {
        let mut disks = Vec::new();
        {
            let mut wires = self.hub.wires();
            for id in ids {
                if let Some(node) = wires.nodes.remove(id) {
                    disks.push((*id, node.disk.crash_image(image, seed), node));
                }
            }
        }
        for (id, disk, node) in disks {
            // What is left of its life belongs to nobody.
            let _ = node.raft.shutdown().await;
            let db = node.db.clone();
            drop(node);
            let _ = tokio::task::spawn_blocking(move || db.close()).await;
            self.power_on(id, disk).await?;
        }
        Ok(())
    }

    /// Writes `count` values of so many bytes at the leader, all at once.
    async fn write(&self, count: usize, bytes: usize) {
        let begun = Instant::now();
        let leader = loop {
            match self.leader().and_then(|leader| self.hub.node(leader)) {
                Some(leader) => break leader,
                None if begun.elapsed() > Duration::from_secs(2) => return,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let writes: Vec<_> = (0..count)
            .map(|_| {
                let (raft, value) = (leader.raft.clone(), "x".repeat(bytes));
                let put = Request::Put { key: "other".to_owned(), value };
                tokio::spawn(tokio::time::timeout(Duration::from_secs(2), async move {
                    raft.client_write(put).await
                }))
            })
            .collect();
        for write in writes {
            let _ = write.await; // some may have no answer
        }
    }

    /// Lets a node be alone while the others write entries of so many bytes.
    async fn leave_behind(&self, id: u64, count: usize, bytes: usize) {
        self.hub.wires().cut.insert(id);
        self.write(count, bytes).await;
    }

    /// Waits for the end of a node, but not long. Returns true if it has ended.
    async fn ends(&self, id: u64) -> bool {
        let begun = Instant::now();
        let ended =
            || self.hub.node(id).is_none_or(|node| node.raft.metrics().borrow().running_state.is_err());
        while !ended() && begun.elapsed() < Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        ended()
    }

    /// Lets the disk of a node become full while it gets a long append or a snapshot, then takes its power. Returns true if the node has ended
    /// by itself.
    pub(crate) async fn full_disk(&mut self, id: u64, room: u64, image: &Image, seed: u64) -> Done<bool> {
        // Five of them are more than a commit of an append; with some more entries they are sent as a snapshot.
        self.leave_behind(id, 12, 900 << 10).await;
        if seed.is_multiple_of(3) {
            self.write(120, 10).await;
        }
        if let Some(node) = self.hub.node(id) {
            node.disk.limit_space(Some(room));
        }
        self.hub.wires().cut.remove(&id);
        self.write(6, 900 << 10).await;
        let ended = self.ends(id).await;
        self.power_failure(&[id], image, seed).await?;
        Ok(ended)
    }

    /// Lets a node get a damaged snapshot, then takes its power. Returns true if the node has ended by itself.
    pub(crate) async fn damaged_snapshot(&mut self, id: u64, image: &Image, seed: u64) -> Done<bool> {
        self.leave_behind(id, 220, 10).await;
        {
            let mut wires = self.hub.wires();
            wires.damaged.insert(id);
            wires.cut.remove(&id);
        }
        let ended = self.ends(id).await;
        self.hub.wires().damaged.remove(&id);
        self.power_failure(&[id], image, seed).await?;
        Ok(ended)
    }

    /// Waits until all nodes run and have applied the same entries.
    pub(crate) async fn agree(&mut self) -> Done {
        let begun = Instant::now();
        loop {
            let mut seen = BTreeSet::new();
            for id in 1..=3 {
                let node = self.hub.node(id).ok_or(format!("node {id} does not run"))?;
                let metrics = node.raft.metrics().borrow().clone();
                if let Err(e) = &metrics.running_state {
                    return Err(format!("node {id} has ended: {e}").into());
                }
                seen.insert((metrics.current_leader, metrics.last_log_index, metrics.last_applied));
            }
            if let (1, Some((Some(_), last, applied))) = (seen.len(), seen.first())
                && *last == applied.map(|applied| applied.index)
            {
                return Ok(());
            }
            if begun.elapsed() > RECOVERY {
                return Err(format!("no agreement after {RECOVERY:?}: {seen:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the node that leads, as it says.
    pub(crate) fn leader(&self) -> Option<u64> {
        let wires = self.hub.wires();
        let leads = |id: u64, node: &Node| {
            let metrics = node.raft.metrics().borrow().clone();
            metrics.running_state.is_ok() && metrics.current_leader == Some(id) && !wires.cut.contains(&id)
        };
        wires.nodes.iter().find(|(id, node)| leads(**id, node)).map(|(id, _)| *id)
    }
}
