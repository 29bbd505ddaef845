//! `tidesdb generations` from a shell: the whole life of a store, its output and exit codes, kills, hostile names.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tidesdb::{Comparator, Db, FamilyOptions, SyncMode};

use crate::cli::Stage;

fn json(stage: &Stage, words: &[&str]) -> Vec<Value> {
    let out = stage.ok(&[&["generations", "--store", "store", "--json"], words].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn generations_are_made_listed_proven_restored_and_pruned() {
    let stage = Stage::new();
    let ok = |words: &[&str]| stage.ok(&[&["generations", "--store", "store"], words].concat());
    stage.ok(&["put", "a", "1"]);
    assert!(ok(&["create"]).contains("not proven"));
    stage.ok(&["put", "a", "2"]);
    let text = ok(&["create", "--prove", "--rate", "50MiB"]);
    assert!(text.starts_with("generation 2 ") && text.contains("  proven "), "{text}");
    assert!(ok(&["prove", "1"]).contains("  proven "));
    let list = json(&stage, &["list"]);
    assert_eq!(list.len(), 2);
    assert!(list.iter().all(|made| made["proof"]["passed"] == true), "{list:?}");
    assert_eq!(ok(&["list"]).lines().count(), 2);
    assert!(ok(&["verify"]).lines().all(|line| line.ends_with("no damage")));
    ok(&["restore", "last"]);
    ok(&["restore", "first", "--generation", "1"]);
    assert_eq!(stage.ok(&["get", "--db", "last", "a"]).trim(), "2");
    assert_eq!(stage.ok(&["get", "--db", "first", "a"]).trim(), "1");
    assert_eq!(json(&stage, &["prune", "--keep-last", "1"])[0]["deleted"], serde_json::json!([1]));
    let left: Vec<_> = std::fs::read_dir(stage.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "no scratch folder is left: {left:?}");
    // With two databases in it, which one is the last must be said.
    stage.ok(&["generations", "--store", "store", "create", "--db", "first"]);
    let refused = stage.run(&["generations", "--store", "store", "restore", "which"]);
    assert!(refused.code == 2 && refused.err.contains("several databases"), "{}", refused.err);
    assert!(!stage.path("which").exists());
}

#[test]
fn what_cannot_be_done_is_said() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    let fails = |code: i32, words: &[&str], text: &str| {
        let run = stage.run(&[&["generations"], words].concat());
        assert!(run.code == code && run.err.contains(text), "{words:?}: {} {}", run.code, run.err);
    };
    fails(2, &["list"], "--store");
    fails(3, &["list", "--store", "none"], "cannot open none");
    fails(2, &["create", "--store", "store", "--db", "nodb"], "does not exist");
    fails(2, &["create", "--store", "db"], "is a database");
    fails(2, &["create", "--store", "store", "--rate", "0"], "is not a size");
    fails(2, &["create", "--store", "store", "--scratch", "x"], "--prove");
    assert!(!stage.path("store").exists() && !stage.path("none").exists() && !stage.path("nodb").exists());
    stage.ok(&["generations", "create", "--store", "store"]);
    fails(2, &["restore", "--store", "store", "db"], "must be empty");
    fails(2, &["restore", "--store", "store", "new", "--generation", "7"], "generation 7 does not exist");
    fails(2, &["delete", "--store", "store", "7"], "generation 7 does not exist");
    fails(2, &["prune", "--store", "store"], "--keep-last");
    fails(2, &["prune", "--store", "store", "--keep-last", "0"], "keeps no generation");
    fails(2, &["repair", "--store", "store"], "intact index");
    // Beside a writer: refused, as a backup is.
    let db = Db::open(stage.path("db")).unwrap();
    fails(4, &["create", "--store", "store"], "open elsewhere");
    drop(db);
    // A folder that is no store stays as it is.
    std::fs::create_dir(stage.path("foreign")).unwrap();
    std::fs::write(stage.path("foreign/notes.txt"), "mine").unwrap();
    let list = stage.ok(&["generations", "list", "--store", "foreign"]);
    assert_eq!(list, "foreign: no generations\n");
    fails(2, &["verify", "--store", "foreign"], "no generations");
    fails(2, &["restore", "--store", "foreign", "new"], "no generations");
    assert_eq!(std::fs::read_dir(stage.path("foreign")).unwrap().count(), 1);
}

#[test]
fn damage_is_found_and_repaired() {
    let mut stage = Stage::new();
    stage.is_ill = true;
    stage.ok(&["put", "a", "1"]);
    for _ in 0..2 {
        stage.ok(&["generations", "create", "--store", "store"]);
        stage.ok(&["put", "b", "1"]);
    }
    let table = stage.path("store/backup.000001.000000.klog");
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let run = stage.run(&["generations", "verify", "--store", "store"]);
    assert_eq!(run.code, 1);
    assert!(run.text().lines().all(|line| line.contains("checksum mismatch")), "{}", run.text());
    let prove = stage.run(&["generations", "prove", "2", "--store", "store"]);
    assert!(
        prove.code == 3 && prove.err.contains("corruption in object backup.000001.000000.klog"),
        "{}",
        prove.err
    );
    assert!(stage.ok(&["generations", "list", "--store", "store"]).contains("proof FAILED"));
    std::fs::remove_file(stage.path("store/backup.index")).unwrap();
    let create = stage.run(&["generations", "create", "--store", "store"]);
    assert!(create.code == 3 && create.err.contains("repair"), "{}", create.err);
    let found = stage.ok(&["generations", "repair", "--store", "store"]);
    assert!(found.ends_with("2 generations found\n"), "{found}");
    let run = stage.run(&["generations", "create", "--store", "store"]);
    assert!(run.code == 0 && run.text().starts_with("generation 3 "), "{} {}", run.text(), run.err);
}

/// `verify` of a store whose index is lost passed without a word, and other commands gave the advice for a database.
#[test]
fn a_lost_or_damaged_index_is_no_success_and_its_repair_is_named() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    stage.ok(&["generations", "create", "--store", "store"]);
    let index = stage.path("store/backup.index");
    let mut bytes = std::fs::read(&index).unwrap();
    std::fs::remove_file(&index).unwrap();
    let says = |words: &[&str], code: i32, what: &str| {
        let run = stage.run(&[&["generations", "--store", "store"], words].concat());
        assert!(run.code == code && run.err.contains(what), "{words:?}: {} {}", run.code, run.err);
        assert!(run.err.contains("`tidesdb generations repair`"), "{words:?}: {}", run.err);
    };
    let reading = [
        &["verify"][..],
        &["verify", "--json"],
        &["verify", "1"],
        &["prove", "1"],
        &["restore", "new"],
        &["restore", "new", "--generation", "1"],
    ];
    let writing = [&["create"][..], &["delete", "1"], &["prune", "--keep-last", "1"]];
    reading.iter().for_each(|words| says(words, 2, "store has no generations"));
    writing.iter().for_each(|words| says(words, 3, "corruption in backup.index"));
    bytes[20] ^= 1;
    std::fs::write(&index, bytes).unwrap();
    reading.iter().chain(&writing).for_each(|words| says(words, 3, "corruption in backup.index"));
    says(&["list"], 3, "corruption in backup.index");
    stage.ok(&["generations", "repair", "--store", "store"]);
    stage.ok(&["generations", "verify", "--store", "store"]);
}

/// The scratch folder of `.` was inside of the database and of the store.
#[test]
fn a_proof_in_the_folder_of_the_database_works() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    for (folder, words) in [
        ("db", &["create", "--db", ".", "--store", "../store", "--prove"][..]),
        ("store", &["prove", "1", "--store", "."]),
    ] {
        let mut command = stage.command(&[&["generations"], words].concat());
        let output = command.current_dir(stage.path(folder)).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("  proven "), "{output:?}");
    }
    assert_eq!(std::fs::read_dir(stage.dir.path()).unwrap().count(), 2, "no scratch folder is left");
}

#[test]
fn a_family_of_an_unknown_order_is_named() {
    let stage = Stage::new();
    let order = Comparator::custom("mine", |a, b| b.cmp(a));
    let db = Db::options(stage.path("db")).comparator(order.clone()).open().unwrap();
    db.create_family("f", FamilyOptions::default().comparator(order)).unwrap().put("k", "v").unwrap();
    let store = std::sync::Arc::new(tidesdb::store::DirectoryStore::open(stage.path("store")).unwrap());
    tidesdb::backup::Backups::new(store).create(&db).unwrap();
    db.close().unwrap();
    let prove = stage.run(&["generations", "prove", "1", "--store", "store"]);
    assert!(prove.code == 2 && prove.err.contains("\"mine\""), "{} {}", prove.code, prove.err);
    stage.ok(&["generations", "restore", "--store", "store", "copy"]); // needs no order
    assert!(stage.ok(&["generations", "list", "--store", "store"]).contains("not proven"));
}

/// Kills `create` at many times: whatever is listed is whole, and the next one works.
#[test]
fn a_killed_create_leaves_whole_generations() {
    let stage = Stage::new();
    let db = Db::options(stage.path("db")).sync(SyncMode::None).open().unwrap();
    let noise = |n: u32, len: u32| -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(n * 77) >> 13) as u8).collect()
    };
    for n in 0..40 {
        db.put(n.to_string(), noise(n, 100_000)).unwrap();
    }
    db.close().unwrap();
    let (mut killed, mut has_any) = (0, false);
    for n in 0..20u64 {
        stage.ok(&["put", "round", &n.to_string()]);
        let words = ["generations", "create", "--store", "store", "--prove", "--rate", "20MiB"];
        let mut child = stage.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(n * n));
        let _ = child.kill();
        killed += u32::from(!child.wait().unwrap().success());
        if stage.path("store").exists() {
            let run = stage.run(&["generations", "verify", "--store", "store"]);
            // The first ones may have been killed before there was a generation; afterwards none may be lost.
            assert!(
                run.code == 0 || !has_any && run.err.contains("no generations"),
                "{} {}",
                run.code,
                run.err
            );
            has_any |= run.code == 0;
        }
    }
    assert!(killed > 5, "{killed}");
    stage.ok(&["generations", "create", "--store", "store", "--prove"]);
    stage.ok(&["generations", "prune", "--store", "store", "--keep-last", "1"]);
    stage.ok(&["generations", "restore", "--store", "store", "copy"]);
    let [copy, db] = [&["dump", "copy"][..], &["dump"]].map(|words| stage.run(words).out);
    assert!(copy == db && !db.is_empty());
    let names: Vec<String> = std::fs::read_dir(stage.path("store"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock+")
        .collect();
    assert!(names.iter().all(|name| !name.contains('+')), "{names:?}");
}

/// Ctrl-C: the call ends soon, says so, and leaves neither a folder nor a file that was begun.
#[test]
#[cfg(unix)]
fn an_interrupt_ends_each_call_and_removes_what_it_had_begun() {
    let stage = Stage::new();
    let db = Db::options(stage.path("db")).sync(SyncMode::None).open().unwrap();
    let mut noise = 1u32;
    for n in 0..40 {
        let value: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(1 << 20)
        .collect();
        db.put(n.to_string(), value).unwrap();
    }
    db.close().unwrap();
    let names = || {
        let all = std::fs::read_dir(stage.dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string());
        let mut all: Vec<String> = all.map(Result::unwrap).collect();
        all.sort();
        all
    };
    // At its rate each call takes 40 seconds.
    let run = |words: &[&str]| {
        let words = [&["generations", "--store", "store"], words, &["--rate", "1MiB"]].concat();
        let (code, text) = interrupted(&stage, &words);
        assert!(code == Some(130) && text.starts_with("error: stopped: "), "{words:?}: {code:?} {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    run(&["create"]);
    run(&["create", "--prove"]);
    assert_eq!(stage.ok(&["generations", "list", "--store", "store"]), "store: no generations\n");
    assert_eq!(names(), ["db", "store"], "no scratch folder");
    stage.ok(&["generations", "create", "--store", "store"]);
    run(&["verify"]);
    run(&["prove", "1"]);
    assert_eq!(names(), ["db", "store"]);
    assert!(stage.ok(&["generations", "list", "--store", "store"]).contains("not proven"));
    run(&["restore", "new"]);
    assert_eq!(std::fs::read_dir(stage.path("new")).unwrap().count(), 0);
    stage.ok(&["generations", "--store", "store", "restore", "new"]);
    stage.ok(&["verify", "--db", "new"]);
}

/// Runs the program, and does what Ctrl-C does after a second, or later if it had not begun by then. Returns its exit code and its messages.
#[cfg(unix)]
fn interrupted(stage: &Stage, words: &[&str]) -> (Option<i32>, String) {
    let mut last = (None, String::new());
    for seconds in [1, 2, 4, 8] {
        let child = stage.command(words).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let out = child.wait_with_output().unwrap();
        last = (out.status.code(), String::from_utf8(out.stderr).unwrap());
        if last.0.is_some() {
            break;
        }
    }
    last
}

#[test]
#[cfg(not(feature = "s3"))]
fn a_store_in_s3_needs_the_feature() {
    let stage = Stage::new();
    stage.ok(&["put", "a", "1"]);
    for words in [&["list"][..], &["create"]] {
        let refused = stage.run(&[&["generations", "--store", "s3://bucket/prefix"], words].concat());
        assert_eq!(refused.code, 2);
        assert!(
            refused.err.contains("without stores in S3") && refused.err.contains("--features s3"),
            "{}",
            refused.err
        );
    }
    assert!(!stage.path("s3:").exists());
}
