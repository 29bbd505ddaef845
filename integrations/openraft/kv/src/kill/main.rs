//! The kill test: three nodes as processes, clients that read and write, and somebody who kills nodes, cuts and slows their connections,
//! stops processes, fills disks, damages snapshots and replaces nodes. Afterwards the history of each key must have an order that explains it.

mod proxy;
mod cluster;
mod client;

use client::{Client, Workload};
use cluster::{Cluster, Done, NODES, Start};
use proxy::Link;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidesdb_openraft_kv::history::{Recorder, Verdict};

const USAGE: &str =
    "usage: kv-kill [--rounds N] [--seconds N] [--seed N] [--folder DIR] [--plant stale-reads]

  --rounds N   rounds of faults; 50
  --seconds N  seconds of each; 4
  --seed N     decides the faults and what the clients do; 1
  --folder DIR the databases and the logs of the nodes; a folder in that of temporary files
  --plant stale-reads
               nodes answer reads without asking the others: the run must find a violation
";

/// Rounds of a cluster; then a new one begins.
const LIFE: u64 = 10;

/// Rounds of a cluster in which a node is replaced by an empty one.
const REPLACED: [u64; 2] = [4, 8];

const CLIENTS: u64 = 6;
const KEYS: usize = 4;

struct Options {
    rounds: u64,
    seconds: u64,
    seed: u64,
    folder: PathBuf,
    stale_reads: bool,
}

fn parse() -> Done<Options> {
    let folder = std::env::temp_dir().join(format!("kv-kill-{}", std::process::id()));
    let mut options = Options { rounds: 50, seconds: 4, seed: 1, folder, stale_reads: false };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(format!("{arg} needs a value"))?;
        match (arg.as_str(), value.as_str()) {
            ("--rounds", _) => options.rounds = value.parse()?,
            ("--seconds", _) => options.seconds = value.parse()?,
            ("--seed", _) => options.seed = value.parse()?,
            ("--folder", _) => options.folder = value.into(),
            ("--plant", "stale-reads") => options.stale_reads = true,
            _ => return Err(format!("unknown option {arg} {value}").into()),
        }
    }
    Ok(options)
}

/// What a run has seen.
#[derive(Default)]
struct Totals {
    operations: usize,
    unknown: usize,
    faults: BTreeMap<&'static str, u64>,
    violations: u64,
    undecided: u64,
    slowest_recovery: Duration,
    replaced: Vec<Duration>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match parse() {
        Ok(options) => options,
        Err(e) => {
            eprintln!("kv-kill: {e}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let mut totals = Totals::default();
    let ended = run(&options, &mut totals).await;
    println!(
        "{} operations, {} without an answer, faults {:?}",
        totals.operations, totals.unknown, totals.faults
    );
    println!("slowest recovery {:.1?}, nodes replaced in {:.1?}", totals.slowest_recovery, totals.replaced);
    if let Err(e) = ended {
        eprintln!("kv-kill: {e}; the folder is {}", options.folder.display());
        return ExitCode::FAILURE;
    }
    println!("{} rounds, {} violations", options.rounds, totals.violations);
    if totals.undecided > 0 {
        println!("{} histories were too long for the checker", totals.undecided);
    }
    let held = totals.violations == 0 && totals.undecided == 0;
    if held || options.stale_reads {
        let _ = std::fs::remove_dir_all(&options.folder);
    } else {
        println!("the folder is {}", options.folder.display());
    }
    if options.stale_reads {
        let found = totals.violations > 0;
        println!("the plant was {}", if found { "found" } else { "NOT found" });
        return if found { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(options: &Options, totals: &mut Totals) -> Done {
    let program = std::env::current_exe()?.with_file_name("kv");
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut cluster = None;
    for round in 0..options.rounds {
        if round % LIFE == 0 {
            drop(cluster.take()); // its processes end
            let folder = options.folder.join(format!("cluster-{}", round / LIFE));
            cluster = Some(Cluster::start(&program, &folder, options.stale_reads).await?);
        }
        let Some(cluster) = &mut cluster else { continue };
        let begun = Instant::now();
        let keys = one_round(options, round, cluster, &mut random, totals).await?;
        let mut counts = (0, 0);
        for (key, recorder) in &keys {
            let (done, unknown) = recorder.counts();
            counts = (counts.0 + done, counts.1 + unknown);
            let checked = recorder.clone();
            match tokio::task::spawn_blocking(move || checked.check()).await? {
                Verdict::Linearizable => {}
                Verdict::Undecided => totals.undecided += 1,
                Verdict::Violated => {
                    totals.violations += 1;
                    std::fs::write(options.folder.join(format!("{key}.history")), recorder.text())?;
                    println!("VIOLATION: no order explains the history of {key}");
                }
            }
        }
        totals.operations += counts.0;
        totals.unknown += counts.1;
        println!(
            "round {round}: {} operations, {} without an answer, {:.1?}",
            counts.0,
            counts.1,
            begun.elapsed()
        );
        if options.stale_reads && totals.violations > 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// Lets clients work while the faults of a round happen. Returns the histories of its keys.
async fn one_round(
    options: &Options,
    round: u64,
    cluster: &mut Cluster,
    random: &mut StdRng,
    totals: &mut Totals,
) -> Done<Vec<(String, Recorder)>> {
    let nodes = cluster.voters.iter().map(|id| (*id, cluster.address(*id))).collect();
    let keys = (0..KEYS).map(|key| (format!("round-{round}-key-{key}"), Recorder::default())).collect();
    let workload = Arc::new(Workload {
        nodes: Mutex::new(nodes),
        keys,
        next_value: AtomicU64::new(1),
        stop: AtomicBool::new(false),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(Client::new(Arc::clone(&workload), random.r#gen()).run()))
        .collect();

    let begun = Instant::now();
    let place = REPLACED.iter().position(|replaced| *replaced == round % LIFE);
    if let Some(place) = place {
        let new = NODES - REPLACED.len() as u64 + 1 + place as u64;
        replace(cluster, &workload, new, random, totals).await?;
    }
    while begun.elapsed() < Duration::from_secs(options.seconds) {
        let fault = fault(cluster, random).await?;
        *totals.faults.entry(fault).or_default() += 1;
    }
    cluster.run_all().await?;
    workload.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await?;
    }
    let recovery = cluster.recovered().await?;
    totals.slowest_recovery = totals.slowest_recovery.max(recovery);
    let mut last = Client::new(Arc::clone(&workload), 0);
    for (key, recorder) in &workload.keys {
        if !last.read_at_last(key, recorder, 200).await {
            return Err(format!("{key} cannot be read after the faults").into());
        }
    }
    Ok(workload.keys.clone())
}

/// Replaces a voter by the empty node `new`, which must get a snapshot.
async fn replace(
    cluster: &mut Cluster,
    workload: &Workload,
    new: u64,
    random: &mut StdRng,
    totals: &mut Totals,
) -> Done {
    let old = cluster.voters.iter().copied().choose(random).ok_or("no node")?;
    let (took, snapshot) = cluster.replace(old, new).await?;
    if snapshot == 0 {
        return Err(format!("node {new} got no snapshot").into());
    }
    let mut nodes = workload.nodes.lock().map_err(|_| "a client has panicked")?;
    nodes.remove(&old);
    nodes.insert(new, cluster.address(new));
    *totals.faults.entry("replaced").or_default() += 1;
    totals.replaced.push(took);
    Ok(())
}

/// Makes something go wrong for a while. Returns its name.
async fn fault(cluster: &mut Cluster, random: &mut StdRng) -> Done<&'static str> {
    let any = cluster.voters.iter().copied().choose(random).ok_or("no node")?;
    let leader = cluster.leader().await.unwrap_or(any);
    let id = if random.gen_bool(0.5) { leader } else { any };
    sleep(random, 50, 400).await;
    let name = match random.gen_range(0..13) {
        0..3 => {
            cluster.kill(id).await?;
            sleep(random, 50, 900).await;
            "killed"
        }
        3 => {
            for id in cluster.voters.clone() {
                cluster.kill(id).await?;
            }
            sleep(random, 0, 300).await;
            "all killed"
        }
        4 | 5 => {
            cluster.connect(id, Link::Cut, true);
            sleep(random, 300, 1600).await;
            "cut"
        }
        6 => {
            cluster.connect(id, Link::Silent, true);
            sleep(random, 300, 1600).await;
            "silent"
        }
        7 => {
            cluster.connect(id, Link::Cut, false);
            sleep(random, 300, 1200).await;
            "cut one way"
        }
        8 => {
            cluster.connect(id, Link::Slow(Duration::from_millis(random.gen_range(20..200))), true);
            sleep(random, 300, 1200).await;
            "slow"
        }
        9 => {
            cluster.pause(id, true).await?;
            sleep(random, 200, 1600).await;
            cluster.pause(id, false).await?;
            "stopped"
        }
        10 => {
            cluster.kill(id).await?;
            cluster.run(id, Start { room: Some(0) }).await?;
            sleep(random, 400, 1200).await;
            cluster.kill(id).await?;
            "disk full"
        }
        11 => {
            cluster.fill(id, random.gen_range(1..24) << 20).await?;
            "disk fills up"
        }
        _ => match cluster.damage_snapshot(id, 100).await? {
            true => "damaged snapshot",
            false => "killed for a while",
        },
    };
    cluster.connect(id, Link::Open, true);
    cluster.run_all().await?;
    let _ = cluster.build_snapshot().await; // there may be no leader now
    Ok(name)
}

async fn sleep(random: &mut StdRng, from: u64, to: u64) {
    tokio::time::sleep(Duration::from_millis(random.gen_range(from..to))).await;
}
