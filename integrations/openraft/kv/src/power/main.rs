//! The power failure test: three nodes in one process on simulated disks. Nodes lose their power, one or all at once; their disks keep what was
//! synced and some of the rest, in pieces. Some lose it after their disk became full in the middle of an append or a snapshot, or after they got
//! a damaged snapshot. Clients read and write meanwhile. The history of each key must have an order that explains it, and after each round all
//! nodes must have the same entries.

mod cluster;

use cluster::{Cluster, Done, Hub};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidesdb_io::sim::Image;
use tidesdb_openraft_kv::Request;
use tidesdb_openraft_kv::history::{Operation, Recorder, Value, Verdict};

const USAGE: &str = "usage: kv-power [--failures N] [--seed N]

  --failures N  power failures; 1000
  --seed N      decides which, and what the disks keep; 1
";

/// Failures after which the histories are checked and other keys are used.
const ROUND: u64 = 10;

/// Rounds of a cluster; then a new one begins.
const LIFE: u64 = 10;

const CLIENTS: u64 = 4;
const KEYS: usize = 3;

/// How long a client waits for an answer, and how long a round may wait for a leader.
const PATIENCE: Duration = Duration::from_secs(2);
const RECOVERY: Duration = Duration::from_secs(60);

fn parse() -> Done<(u64, u64)> {
    let (mut failures, mut seed) = (1000, 1);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--failures" => failures = value.parse()?,
            "--seed" => seed = value.parse()?,
            _ => return Err(format!("unknown option {arg}").into()),
        }
    }
    Ok((failures, seed))
}

#[tokio::main]
async fn main() -> ExitCode {
    let (failures, seed) = match parse() {
        Ok(options) => options,
        Err(e) => {
            eprintln!("kv-power: {e}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match run(failures, seed).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("kv-power: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of violations.
async fn run(failures: u64, seed: u64) -> Done<u64> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut cluster, mut made, mut operations, mut violations) = (None, 0, 0, 0);
    let mut counts = Counts::default();
    let begun = Instant::now();
    for round in 0..failures.div_ceil(ROUND) {
        if round % LIFE == 0 {
            cluster = Some(Cluster::start(random.r#gen()).await?);
        }
        let Some(cluster) = &mut cluster else { continue };
        let keys: Vec<_> =
            (0..KEYS).map(|key| (format!("round-{round}-key-{key}"), Recorder::default())).collect();
        let count = ROUND.min(failures - made);
        one_round(cluster, &keys, count, &mut random, &mut counts).await?;
        made += count;
        for (key, recorder) in keys {
            operations += recorder.counts().0;
            let checked = recorder.clone();
            match tokio::task::spawn_blocking(move || checked.check()).await? {
                Verdict::Linearizable => {}
                Verdict::Undecided => return Err(format!("the history of {key} is too long").into()),
                Verdict::Violated => {
                    violations += 1;
                    println!("VIOLATION: no order explains the history of {key}\n{}", recorder.text());
                }
            }
        }
        let Counts { full, damaged } = &counts;
        println!(
            "{made} power failures, {} after a disk became full ({} nodes had ended), {} after a damaged snapshot ({}), \
             {operations} operations, {violations} violations, {:.0?}",
            full.made,
            full.ended,
            damaged.made,
            damaged.ended,
            begun.elapsed()
        );
    }
    Ok(violations)
}

/// How often a fault was made before a failure of the power, and how often it had ended the node.
#[derive(Default)]
struct Counts {
    full: Fault,
    damaged: Fault,
}

#[derive(Default)]
struct Fault {
    made: u64,
    ended: u64,
}

impl Fault {
    fn count(&mut self, ended: bool) {
        self.made += 1;
        self.ended += u64::from(ended);
    }
}

/// Lets a node or some of them lose their power, for some reason.
async fn failure(cluster: &mut Cluster, random: &mut StdRng, counts: &mut Counts) -> Done {
    let mut ids = [1, 2, 3];
    ids.shuffle(random);
    let leader = cluster.leader();
    let image = Image::STANDARD.choose(random).ok_or("no image")?;
    let seed = random.r#gen();
    let ids: Vec<u64> = match (random.gen_range(0..20), leader) {
        (0, _) => {
            let room = random.gen_range(0..16 << 20);
            counts.full.count(cluster.full_disk(ids[0], room, image, seed).await?);
            return Ok(());
        }
        (1, _) => {
            counts.damaged.count(cluster.damaged_snapshot(ids[0], image, seed).await?);
            return Ok(());
        }
        (2..6, _) => ids.to_vec(),
        (6..10, _) => ids[..2].to_vec(),
        (10..14, _) | (_, None) => ids[..1].to_vec(),
        (_, Some(leader)) => vec![leader],
    };
    cluster.power_failure(&ids, image, seed).await
}

async fn one_round(
    cluster: &mut Cluster,
    keys: &[(String, Recorder)],
    failures: u64,
    random: &mut StdRng,
    counts: &mut Counts,
) -> Done {
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (hub, keys, random) =
                (cluster.hub.clone(), keys.to_vec(), StdRng::seed_from_u64(random.r#gen()));
            let client = Client { hub, random, leader: None };
            tokio::spawn(client.run(keys, Arc::clone(&stop), Arc::clone(&next)))
        })
        .collect();
    for _ in 0..failures {
        // Long enough for a leader to begin, or not.
        tokio::time::sleep(Duration::from_millis(random.gen_range(0..500))).await;
        failure(cluster, random, counts).await?;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await?;
    }
    let mut last = Client { hub: cluster.hub.clone(), random: StdRng::seed_from_u64(0), leader: None };
    let begun = Instant::now();
    for (key, recorder) in keys {
        while last.read(key, recorder).await.is_none() {
            if begun.elapsed() > RECOVERY {
                return Err(format!("{key} cannot be read after the failures").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    cluster.agree().await
}

struct Client {
    hub: Hub,
    random: StdRng,
    leader: Option<u64>,
}

impl Client {
    async fn run(mut self, keys: Vec<(String, Recorder)>, stop: Arc<AtomicBool>, next: Arc<AtomicU64>) {
        let mut seen: Vec<Option<Value>> = vec![None; keys.len()];
        while !stop.load(Ordering::Relaxed) {
            let at = self.random.gen_range(0..keys.len());
            let (key, recorder) = &keys[at];
            let value = next.fetch_add(1, Ordering::Relaxed);
            let found = match self.random.gen_range(0..10) {
                0..5 => self.read(key, recorder).await,
                5..8 => self.change(key, recorder, None, value).await,
                _ => self.change(key, recorder, Some(seen[at]), value).await,
            };
            match found {
                Some(found) => seen[at] = found,
                None => tokio::time::sleep(Duration::from_millis(self.random.gen_range(5..30))).await,
            }
            tokio::time::sleep(Duration::from_millis(self.random.gen_range(0..8))).await;
        }
    }

    fn node(&mut self) -> Option<(u64, cluster::Node)> {
        let id = self.leader.unwrap_or_else(|| self.random.gen_range(1..=3));
        let node = self.hub.node(id);
        // Asked again if it does not answer.
        self.leader = node.as_ref().and_then(|node| node.raft.metrics().borrow().current_leader);
        node.filter(|_| self.leader == Some(id)).map(|node| (id, node))
    }

    async fn read(&mut self, key: &str, recorder: &Recorder) -> Option<Option<Value>> {
        let (id, node) = self.node()?;
        let running = recorder.call();
        let agreed = tokio::time::timeout(PATIENCE, node.raft.ensure_linearizable()).await;
        let found = match agreed {
            Ok(Ok(_)) => node.reader.get(key).ok(),
            _ => None,
        };
        let found = found.filter(|_| self.hub.has(id, node.life));
        let Some(found) = found else {
            self.leader = None;
            return None;
        };
        let value = found.and_then(|bytes| String::from_utf8_lossy(&bytes).parse().ok());
        running.done(Operation::Read(value));
        Some(value)
    }

    /// Writes, or compares first if there is an `expected` value.
    async fn change(
        &mut self,
        key: &str,
        recorder: &Recorder,
        expected: Option<Option<Value>>,
        value: Value,
    ) -> Option<Option<Value>> {
        let (id, node) = self.node()?;
        let (done, maybe, request) = match expected {
            None => (
                Operation::Write(value),
                Operation::Write(value),
                Request::Put { key: key.to_owned(), value: value.to_string() },
            ),
            Some(expected) => (
                Operation::Swap(expected, value),
                Operation::MaybeSwap(expected, value),
                Request::CompareAndSet {
                    key: key.to_owned(),
                    expected: expected.map(|expected| expected.to_string()),
                    value: value.to_string(),
                },
            ),
        };
        let running = recorder.call();
        let written = tokio::time::timeout(PATIENCE, node.raft.client_write(request)).await;
        match written {
            Ok(Ok(written)) if self.hub.has(id, node.life) => {
                if written.data.done {
                    running.done(done);
                    return Some(Some(value));
                }
                let found = written.data.found.and_then(|found| found.parse().ok());
                running.done(Operation::Read(found));
                Some(found)
            }
            _ => {
                self.leader = None;
                running.unknown(maybe);
                None
            }
        }
    }
}
