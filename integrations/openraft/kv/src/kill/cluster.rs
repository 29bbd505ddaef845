//! The nodes as processes, and the ways between them.

use crate::proxy::{Link, Proxy};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tidesdb_openraft_kv::server::Status;
use tokio::process::{Child, Command};

pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Nodes that a cluster has in its life: three, and those that replace one of them.
pub(crate) const NODES: u64 = 5;

/// How long the cluster may take to recover once nothing disturbs it.
const RECOVERY: Duration = Duration::from_secs(60);

/// A reserve that no disk has: to the node its disk is full.
const FULL: u64 = 1 << 60;

/// Bytes of a long value. Five of them are more than one commit of an append.
const LONG: usize = 900 << 10;

struct Member {
    address: String,
    process: Option<Child>,
}

/// How a node is started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start {
    /// Bytes that the disk has for the node; `None`: all that are free.
    pub(crate) room: Option<u64>,
}

pub(crate) struct Cluster {
    program: PathBuf,
    folder: PathBuf,
    stale_reads: bool,
    http: reqwest::Client,
    members: BTreeMap<u64, Member>,
    ways: BTreeMap<(u64, u64), Proxy>,
    /// The nodes that vote.
    pub(crate) voters: BTreeSet<u64>,
}

/// Returns an address that nothing listens on, below the ports that the system gives to connections: a node that starts again needs it again.
fn free() -> Done<String> {
    for _ in 0..100 {
        let port = rand::thread_rng().gen_range(20_000..32_000);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok(listener.local_addr()?.to_string());
        }
    }
    Err("no free port".into())
}

impl Cluster {
    /// Starts three nodes with empty folders, as one group.
    pub(crate) async fn start(program: &Path, folder: &Path, stale_reads: bool) -> Done<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let (mut members, mut ways) = (BTreeMap::new(), BTreeMap::new());
        for id in 1..=NODES {
            members.insert(id, Member { address: free()?, process: None });
        }
        for from in 1..=NODES {
            for to in (1..=NODES).filter(|to| *to != from) {
                ways.insert((from, to), Proxy::start(members[&to].address.clone()).await?);
            }
        }
        let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
        let voters = BTreeSet::from([1, 2, 3]);
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let mut cluster = Self { program, folder, stale_reads, http, members, ways, voters };
        for id in 1..=3 {
            cluster.run(id, Start::default()).await?;
        }
        let nodes: BTreeMap<u64, String> =
            (1..=3).map(|id| (id, cluster.members[&id].address.clone())).collect();
        let begun = Instant::now();
        while cluster.post(1, "cluster/init", serde_json::to_string(&nodes)?).await.is_err() {
            if begun.elapsed() > RECOVERY {
                return Err("the first node does not begin".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        cluster.recovered().await?;
        Ok(cluster)
    }

    /// The nodes damage the snapshots that they send while this file exists.
    fn damage(&self) -> PathBuf {
        self.folder.join("damage")
    }

    /// Returns the bytes that are free on the disk of the nodes.
    async fn free_bytes(&self) -> Done<u64> {
        let said = Command::new("df").args(["-k", "-P"]).arg(&self.folder).output().await?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let free = said.lines().nth(1).and_then(|line| line.split_whitespace().nth(3));
        Ok(free.ok_or("no answer of df")?.parse::<u64>()? << 10)
    }

    fn db(&self, id: u64) -> PathBuf {
        self.folder.join(format!("node-{id}.db"))
    }

    /// Starts the process of a node.
    pub(crate) async fn run(&mut self, id: u64, start: Start) -> Done {
        let mut command = Command::new(&self.program);
        command.args(["--id", &id.to_string(), "--listen", &self.members[&id].address, "--db"]);
        command.arg(self.db(id)).args(["--snapshot-every", "200", "--keep", "20"]);
        for ((_, to), way) in self.ways.range((id, 0)..=(id, NODES)) {
            command.arg("--route").arg(format!("{to}={}", way.address));
        }
        if let Some(room) = start.room {
            // Other programs may fill or free the disk meanwhile: then the node has less or more room.
            let kept = if room == 0 { FULL } else { self.free_bytes().await?.saturating_sub(room) };
            command.args(["--disk-free-min", &kept.to_string()]);
        }
        command.arg("--damage-while").arg(self.damage());
        if self.stale_reads {
            command.arg("--stale-reads");
        }
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("node-{id}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let process = command.spawn().map_err(|e| format!("{}: {e}", self.program.display()))?;
        self.member(id).process = Some(process);
        Ok(())
    }

    fn member(&mut self, id: u64) -> &mut Member {
        self.members.get_mut(&id).expect("a node of the cluster")
    }

    /// Ends a process as `kill -9` does.
    pub(crate) async fn kill(&mut self, id: u64) -> Done {
        if let Some(mut process) = self.member(id).process.take() {
            let _ = process.start_kill(); // it may have ended by itself
            process.wait().await?;
        }
        Ok(())
    }

    /// Stops or continues a process.
    pub(crate) async fn pause(&self, id: u64, stop: bool) -> Done {
        let pid = self.members[&id].process.as_ref().and_then(Child::id);
        if let Some(pid) = pid {
            let signal = if stop { "-STOP" } else { "-CONT" };
            Command::new("kill").args([signal, &pid.to_string()]).status().await?;
        }
        Ok(())
    }

    /// Returns true if the process of a node runs.
    fn runs(&mut self, id: u64) -> Done<bool> {
        let process = self.member(id).process.as_mut();
        let ended = process.map(|process| process.try_wait()).transpose()?;
        Ok(matches!(ended, Some(None)))
    }

    /// Starts those voters that do not run: they were killed, or have ended by themselves.
    pub(crate) async fn run_all(&mut self) -> Done {
        for id in self.voters.clone() {
            if !self.runs(id)? {
                self.run(id, Start::default()).await?;
            }
        }
        Ok(())
    }

    /// Sets the ways from `id` to the other nodes and, if `both`, back.
    pub(crate) fn connect(&self, id: u64, link: Link, both: bool) {
        for ((from, to), way) in &self.ways {
            if *from == id || (both && *to == id) {
                way.set(link);
            }
        }
    }

    pub(crate) fn address(&self, id: u64) -> String {
        self.members[&id].address.clone()
    }

    async fn post(&self, id: u64, path: &str, body: String) -> Done {
        let post = self.http.post(format!("http://{}/{path}", self.members[&id].address));
        let json = post.header("content-type", "application/json").body(body);
        let answer = json.timeout(Duration::from_secs(30)).send().await?;
        let status = answer.status();
        if status.is_success() { Ok(()) } else { Err(format!("{status}: {}", answer.text().await?).into()) }
    }

    pub(crate) async fn status(&self, id: u64) -> Done<Status> {
        let get = self.http.get(format!("http://{}/status", self.members[&id].address));
        Ok(get.timeout(Duration::from_secs(2)).send().await?.json().await?)
    }

    /// Returns the leader of the highest number of nodes.
    pub(crate) async fn leader(&self) -> Option<u64> {
        for id in &self.voters {
            if let Ok(status) = self.status(*id).await
                && status.leader == Some(*id)
            {
                return Some(*id);
            }
        }
        None
    }

    /// Asks the leader for a snapshot.
    pub(crate) async fn build_snapshot(&self) -> Done {
        match self.leader().await {
            Some(leader) => self.post(leader, "cluster/snapshot", String::new()).await,
            None => Ok(()),
        }
    }

    /// Waits for a leader, but not long.
    async fn next_leader(&self) -> Option<u64> {
        let begun = Instant::now();
        loop {
            let leader = self.leader().await;
            if leader.is_some() || begun.elapsed() > Duration::from_secs(5) {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Writes long values at the leader, all at once.
    async fn write_long(&self, count: usize) {
        let Some(leader) = self.next_leader().await else { return };
        let url = format!("http://{}/kv/long", self.members[&leader].address);
        let writes: Vec<_> = (0..count)
            .map(|_| {
                let put = self.http.put(&url).body("x".repeat(LONG));
                tokio::spawn(put.send())
            })
            .collect();
        for write in writes {
            let _ = write.await; // some may have no answer
        }
    }

    /// Lets a disk become full while its node gets a long append.
    pub(crate) async fn fill(&mut self, id: u64, room: u64) -> Done {
        self.kill(id).await?;
        self.write_long(14).await;
        self.run(id, Start { room: Some(room) }).await?;
        self.write_long(6).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.kill(id).await
    }

    /// Lets a node get a damaged snapshot. Returns true if it has ended, as it must then.
    pub(crate) async fn damage_snapshot(&mut self, id: u64, entries: usize) -> Done<bool> {
        self.kill(id).await?;
        // More than the leader keeps behind a snapshot, so that the node needs one.
        for _ in 0..entries.div_ceil(50) {
            if let Some(leader) = self.next_leader().await {
                let url = format!("http://{}/kv/short", self.members[&leader].address);
                let writes: Vec<_> =
                    (0..50).map(|_| tokio::spawn(self.http.put(&url).body("x").send())).collect();
                for write in writes {
                    let _ = write.await; // some may have no answer
                }
            }
        }
        let _ = self.build_snapshot().await; // there may be no leader now
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::write(self.damage(), "")?;
        self.run(id, Start::default()).await?;
        let begun = Instant::now();
        while self.runs(id)? && begun.elapsed() < Duration::from_secs(3) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::fs::remove_file(self.damage())?;
        let ended = !self.runs(id)?;
        self.kill(id).await?;
        Ok(ended)
    }

    /// Repeats a change of the membership until it is made.
    async fn change(&self, path: &str, body: &str) -> Done {
        let begun = Instant::now();
        loop {
            let result = match self.leader().await {
                Some(leader) => self.post(leader, path, body.to_owned()).await,
                None => Err("no leader".into()),
            };
            match result {
                Err(e) if begun.elapsed() > RECOVERY => return Err(format!("{path} {body}: {e}").into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Destroys the voter `old`, and brings the empty node `new` in its place. Returns how long it took, and the entry up to which the new
    /// one got a snapshot.
    pub(crate) async fn replace(&mut self, old: u64, new: u64) -> Done<(Duration, u64)> {
        self.kill(old).await?;
        std::fs::remove_dir_all(self.db(old))?;
        let begun = Instant::now();
        self.run(new, Start::default()).await?;
        self.change(&format!("cluster/learner/{new}"), &self.address(new)).await?;
        // openraft takes a learner that has not even started for one that is not far behind.
        while !self.status(new).await.is_ok_and(|status| status.snapshot > 0) {
            if begun.elapsed() > RECOVERY {
                return Err(format!("node {new} gets no snapshot").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.voters.remove(&old);
        self.voters.insert(new);
        self.change("cluster/voters", &serde_json::to_string(&self.voters)?).await?;
        let took = begun.elapsed();
        Ok((took, self.status(new).await?.snapshot))
    }

    /// Waits until one node leads and all have applied the same entries. Returns how long it took.
    pub(crate) async fn recovered(&mut self) -> Done<Duration> {
        let begun = Instant::now();
        loop {
            self.run_all().await?;
            let mut seen = BTreeSet::new();
            for id in &self.voters {
                let Ok(status) = self.status(*id).await else { break };
                let same = status.voters == self.voters && status.last == status.applied;
                seen.insert((status.leader.filter(|_| same), status.applied));
                if *id == self.voters.iter().copied().max().unwrap_or(0)
                    && seen.len() == 1
                    && seen.iter().all(|(leader, _)| leader.is_some())
                {
                    return Ok(begun.elapsed());
                }
            }
            if begun.elapsed() > RECOVERY {
                return Err(format!("no agreement after {RECOVERY:?}: {seen:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
