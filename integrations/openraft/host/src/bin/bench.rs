//! Measures `openraft-rocksstore` under `load.rs` of `kv-bench`: `bench FOLDER SECONDS CLIENTS...`.

#[path = "../../../kv/src/bench/load.rs"]
mod load;

use openraft::storage::Adaptor;
use openraft_rocksstore::{RocksRequest, RocksStore, TypeConfig};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, seconds, clients @ ..] = &args[..] else {
        return Err("usage: bench FOLDER SECONDS CLIENTS...".into());
    };
    let time = Duration::from_secs(seconds.parse()?);
    for clients in clients {
        let clients = clients.parse()?;
        let _ = std::fs::remove_dir_all(folder); // it may not exist
        std::fs::create_dir_all(folder)?;
        let mut stores = Vec::new();
        for node in 0..load::NODES {
            let store = RocksStore::new(Path::new(folder).join(node.to_string())).await;
            stores.push(Adaptor::<TypeConfig, _>::new(store));
        }
        let request = |n: u64| RocksRequest::Set { key: format!("key {n:012}"), value: "v".repeat(100) };
        let figures = load::measure(stores, request, clients, time, (|| (), || ())).await?;
        load::line("RocksDB", clients, &figures, None);
    }
    Ok(())
}
