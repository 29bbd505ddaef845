//! A node of the replicated key-value store.

use openraft::{Config, Raft, SnapshotPolicy};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tidesdb::Db;
use tidesdb_openraft::Stores;
use tidesdb_openraft_kv::network::Network;
use tidesdb_openraft_kv::server::{Node, router};
use tidesdb_openraft_kv::{Kv, Types};
use tokio::net::TcpListener;

const USAGE: &str = "usage: kv --id N --listen HOST:PORT --db FOLDER [OPTION]...

  --route N=HOST:PORT   reach node N by this address, not by that of the membership
  --snapshot-every N    entries from one snapshot to the next one; 5000
  --keep N              entries that stay in the log behind a snapshot; 1000
  --disk-free-min N     bytes that stay free on the disk
  --damage-while FILE   damage the snapshots that are sent while FILE exists: wrong, for tests
  --stale-reads         serve reads without asking the other nodes: wrong, for tests
";

/// The number of the group in the database: this program has one.
const GROUP: u64 = 1;

/// What the command line says.
struct Options {
    id: u64,
    listen: String,
    db: PathBuf,
    routes: BTreeMap<u64, String>,
    snapshot_every: u64,
    keep: u64,
    disk_free_min: Option<u64>,
    damage: Option<PathBuf>,
    stale_reads: bool,
}

fn parse(args: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let (mut id, mut listen, mut db) = (None, None, None);
    let (mut routes, mut disk_free_min, mut damage, mut stale_reads) = (BTreeMap::new(), None, None, false);
    let (mut snapshot_every, mut keep) = (5000, 1000);
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--id" => id = Some(value()?.parse()?),
            "--listen" => listen = Some(value()?),
            "--db" => db = Some(PathBuf::from(value()?)),
            "--route" => {
                let route = value()?;
                let (node, address) = route.split_once('=').ok_or("--route needs N=HOST:PORT")?;
                routes.insert(node.parse()?, address.to_owned());
            }
            "--snapshot-every" => snapshot_every = value()?.parse()?,
            "--keep" => keep = value()?.parse()?,
            "--disk-free-min" => disk_free_min = Some(value()?.parse()?),
            "--damage-while" => damage = Some(PathBuf::from(value()?)),
            "--stale-reads" => stale_reads = true,
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let (id, listen) = (id.ok_or("no --id")?, listen.ok_or("no --listen")?);
    let db = db.ok_or("no --db")?;
    Ok(Options { id, listen, db, routes, snapshot_every, keep, disk_free_min, damage, stale_reads })
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(e) => {
            eprintln!("kv: {e}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("kv: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the database before it listens: whoever reaches the node reaches its group.
async fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let mut open = Db::options(&options.db);
    if let Some(bytes) = options.disk_free_min {
        open = open.with(|settings| settings.disk_free_min = bytes);
    }
    // Opens and closes wait for the device; nothing else runs yet, or any more.
    let db = open.open()?;
    let mut receiving = options.db.into_os_string();
    receiving.push(".receiving");
    let stores = Stores::open(&db, receiving)?;
    let machine = stores.state_machine(GROUP, Kv);
    let reader = machine.reader();
    let config = Config {
        cluster_name: "kv".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 800,
        install_snapshot_timeout: 5000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.snapshot_every),
        max_in_snapshot_log_to_keep: options.keep,
        ..Config::default()
    };
    let config = Arc::new(config.validate()?);
    let network = Network::new(options.routes, options.damage)?;
    let log = stores.log_store(GROUP);
    let raft = Raft::<Types>::new(options.id, config, network, log, machine).await?;

    let mut metrics = raft.metrics();
    let node = Node { id: options.id, raft: raft.clone(), reader, stale_reads: options.stale_reads };
    let listener = TcpListener::bind(&options.listen).await?;
    eprintln!("kv: node {} serves {}", options.id, options.listen);
    let ended: Result<(), Box<dyn Error>> = tokio::select! {
        served = axum::serve(listener, router(node)) => served.map_err(Into::into),
        _ = tokio::signal::ctrl_c() => Ok(()),
        // After an error of the stores the group goes on without this node.
        failed = metrics.wait_for(|metrics| metrics.running_state.is_err()) => match failed {
            Ok(metrics) => Err(format!("the node has ended: {:?}", metrics.running_state).into()),
            Err(e) => Err(e.into()),
        },
    };
    let _ = raft.shutdown().await; // it may have ended by itself
    drop((raft, stores));
    db.close()?;
    ended
}
