//! Calls that a signal interrupts, as file systems of other programs and of the network let it: nothing of that reaches the engine.

use std::path::Path;
use std::process::Command;

use tidesdb_io::{Access, Advice, Disk, FileExt, RealDisk};

/// The folder in which the calls are made, in the process whose calls are interrupted.
const FOLDER: &str = "TIDESDB_TEST_INTERRUPTED";
/// Files of that folder.
const FILES: [&str; 5] = ["a", "b", "c", "LOCK", "above"];
/// Calls of Linux with a file or a folder that can be interrupted.
const CALLS: [&str; 19] = [
    "openat",
    "newfstatat",
    "fstat",
    "pread64",
    "preadv2",
    "pwrite64",
    "pwritev2",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "fadvise64",
    "ftruncate",
    "fallocate",
    "renameat",
    "unlinkat",
    "linkat",
    "getdents64",
    "flock",
    "fstatfs",
];

/// Makes each call of the disk, and checks what it did.
fn make_all_calls(folder: &Path) {
    let dir = RealDisk::new().open_dir(&folder.join("above"), true).unwrap();
    drop(dir);
    let dir = RealDisk::new().open_dir(folder, false).unwrap();
    drop(dir.lock("LOCK", true).unwrap());
    let file = dir.create_new("a", 8192).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    assert_eq!(file.write_at(b"more", 100).unwrap(), 4);
    file.write_all_durably_at(b"durable", 4096).unwrap();
    file.set_len(10_000).unwrap();
    file.allocate(10_000, 2000).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    for advice in [Advice::WillNeed, Advice::DontNeed, Advice::SyncSoon] {
        file.advise(advice, 0, 0).unwrap();
    }
    assert_eq!(file.len().unwrap(), 12_000);
    dir.link("a", &*dir, "b").unwrap();
    dir.rename("b", "c").unwrap();
    dir.sync().unwrap();
    let again = dir.open("c", Access::Random).unwrap();
    let mut bytes = [0; 7];
    assert_eq!(again.read_at(&mut bytes, 0).unwrap(), 7);
    assert_eq!(&bytes, b"written");
    again.read_exact_at(&mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"durable");
    again.read_cached_at(&mut bytes, 0).unwrap();
    again.is_cached(0).unwrap();
    again.without_descriptor().unwrap();
    if let Some(map) = file.map_shared(8192).unwrap() {
        map.expect_order();
        map.release().unwrap();
    }
    let mut names = dir.list().unwrap();
    names.sort();
    assert_eq!(names, ["LOCK", "a", "c"]);
    assert!(!dir.is_empty().unwrap());
    dir.unlink("c").unwrap();
    assert!(dir.space().unwrap().total > 0);
}

/// A sync that a signal interrupted once poisoned a database, and a put failed because the kind of the file system was asked for.
#[test]
fn a_call_that_is_interrupted_is_made_again() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return make_all_calls(folder.as_ref());
    }
    if !Command::new("strace").args(["-f", "-qq", "true"]).output().is_ok_and(|ran| ran.status.success()) {
        println!("SKIPPED: strace is missing, or may not trace here");
        return;
    }
    let mut made = Vec::new();
    for call in CALLS {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path();
        let log = folder.with_extension("strace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o"]).arg(&log).arg("-P").arg(folder);
        strace.args(FILES.iter().flat_map(|name| ["-P".into(), folder.join(name)]));
        // Every second call of a thread, from the first one on.
        strace.args(["-e", &format!("trace=?{call}"), "-e", &format!("inject=?{call}:error=EINTR:when=1+2")]);
        strace.arg(std::env::current_exe().unwrap()).env(FOLDER, folder);
        strace.args(["interrupted::a_call_that_is_interrupted_is_made_again", "--exact", "--nocapture"]);
        let ran = strace.output().unwrap();
        let seen = std::fs::read_to_string(&log).unwrap_or_default();
        let _ = std::fs::remove_file(&log); // in the folder of temporary files
        let said =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success() && said.contains("1 passed"), "{call}:\n{said}\n{seen}");
        let interrupted = seen.matches("EINTR").count();
        println!("{call}: {interrupted} calls interrupted");
        made.extend((interrupted > 0).then_some(call));
    }
    // Systems differ in a few: one of the names of `fstat`, and what a file system supports.
    for needed in
        ["openat", "pread64", "pwrite64", "fsync", "fdatasync", "fstatfs", "getdents64", "flock", "renameat"]
    {
        assert!(made.contains(&needed), "no call of {needed} was interrupted: {made:?}");
    }
}
