//! Measures the stores under `load.rs`: `kv-bench FOLDER SECONDS CLIENTS...`.

mod load;

use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use tidesdb::Db;
use tidesdb_openraft::Stores;
use tidesdb_openraft_kv::{Kv, Request, Types};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, seconds, clients @ ..] = &args[..] else {
        return Err("usage: kv-bench FOLDER SECONDS CLIENTS...".into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    for clients in clients {
        let clients = clients.parse()?;
        let _ = std::fs::remove_dir_all(folder); // it may not exist
        std::fs::create_dir_all(folder)?;
        let (mut dbs, mut stores) = (Vec::new(), Vec::new());
        for node in 0..load::NODES {
            let path = Path::new(folder).join(format!("{node}.db"));
            let db = Db::open(&path)?;
            let node = Stores::open(&db, path.with_extension("receiving"))?;
            stores.push((node.log_store::<Types>(1), node.state_machine(1, Kv)));
            dbs.push(db);
        }
        let syncs = || dbs.iter().map(|db| db.stats().syncs.count).sum::<u64>();
        let before = Mutex::new((0, 0));
        let set = |end: bool| {
            let now = syncs();
            if let Ok(mut counts) = before.lock() {
                if end { counts.1 = now } else { counts.0 = now }
            }
        };
        let request = |n: u64| Request::Put { key: format!("key {n:012}"), value: "v".repeat(100) };
        let figures = load::measure(stores, request, clients, time, (|| set(false), || set(true))).await?;
        let counts = before.into_inner()?;
        load::line("TidesDB", clients, &figures, Some(counts.1 - counts.0));
        dbs.into_iter().try_for_each(Db::close)?;
    }
    Ok(())
}
