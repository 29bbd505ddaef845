//! A process that makes and prunes generations is killed at any moment, with faults on its way to the server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidesdb::backup::{Backups, PrunePolicy};
use tidesdb::{Db, SyncMode, WriteBatch};

use super::faults::often;
use super::proxy::Proxy;
use super::{given, new_prefix, noise, options};
use crate::s3;

const ROWS: u64 = 60;
const NAME: &str = "tests::s3::kills::writes_and_makes_generations_for_ever";

/// The rows of one round: all of them, and which round it is.
fn check(db: &Db) -> u64 {
    let round = db.get("round").unwrap().expect("a round");
    let round = u64::from_le_bytes((&*round).try_into().unwrap());
    for n in 0..ROWS {
        assert!(
            *db.get(n.to_le_bytes()).unwrap().unwrap() == noise(round << 32 | n, 3000)[..],
            "round {round}, row {n}"
        );
    }
    round
}

/// Not a test: the process that is killed.
#[test]
#[ignore = "run by the other one"]
fn writes_and_makes_generations_for_ever() {
    let Some(path) = std::env::var_os("TIDESDB_S3_CHILD") else { return };
    let store = s3(options(&given("TIDESDB_S3_PROXY"), &given("TIDESDB_S3_PREFIX"))).unwrap();
    let backups = Backups::new(Arc::new(store));
    let db = Db::options(path).sync(SyncMode::None).open().unwrap();
    let mut round =
        db.get("round").unwrap().map_or(0, |round| u64::from_le_bytes((&*round).try_into().unwrap()));
    let family = db.default_family();
    loop {
        round += 1;
        let mut batch = WriteBatch::new();
        for n in 0..ROWS {
            batch.put(family, n.to_le_bytes(), noise(round << 32 | n, 3000)).unwrap();
        }
        batch.put(family, "round", round.to_le_bytes()).unwrap();
        db.write(&mut batch).unwrap();
        backups.create(&db).unwrap();
        backups.prune(&PrunePolicy::default().keep_last(3)).unwrap();
    }
}

#[test]
#[ignore = "needs a server, and minutes"]
fn after_each_kill_all_generations_restore() {
    let kills: u64 = given("TIDESDB_S3_KILLS").parse().unwrap();
    let proxy = Proxy::new(|request| often(request, 21, 12));
    let (temp, prefix) = (tempfile::tempdir().unwrap(), new_prefix());
    let folder = temp.path().join("db");
    let reader = Backups::new(Arc::new(s3(options(&given("TIDESDB_S3_ENDPOINT"), &prefix)).unwrap()));
    let (mut restored, mut last) = (0, 0);
    for kill in 0..kills {
        let mut child = start(&folder, &proxy, &prefix);
        // From before it has opened the database to some generations later.
        let wait = noise(kill, 8).iter().fold(0, |sum: u64, byte| sum * 3 + u64::from(*byte)) % 1800;
        std::thread::sleep(Duration::from_millis(200 + wait));
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "kill {kill}: the process ended by itself: {ended:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        proxy.settle();
        let all = reader.list().unwrap();
        for made in &all {
            let path = temp.path().join(format!("{kill}.{}", made.number));
            reader
                .restore(made.number, &path)
                .unwrap_or_else(|e| panic!("kill {kill}: generation {}: {e}", made.number));
            check(&Db::open(&path).unwrap());
            std::fs::remove_dir_all(&path).unwrap();
            restored += 1;
        }
        let newest = all.last().map_or(0, |made| made.number);
        assert!(newest >= last, "kill {kill}: a generation that counted is gone");
        last = newest;
    }
    println!("{kills} kills, {last} generations made, {restored} restores");
    assert!(last > kills / 4, "{last} generations");
}

fn start(folder: &Path, proxy: &Proxy, prefix: &str) -> std::process::Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([NAME, "--exact", "--include-ignored"]).env("TIDESDB_S3_CHILD", folder);
    child.env("TIDESDB_S3_PROXY", proxy.endpoint()).env("TIDESDB_S3_PREFIX", prefix);
    child.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap()
}
