//! The real disk of every system: names, links, what others have open, and the lock across processes.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use tidesdb_io::{Access, Boot, Dir, Disk, FileExt};

use crate::open;

#[test]
fn names_are_single_components() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    dir.create_new("ok", 0).unwrap();
    let refused_on_windows = ["a\\b", "C:", "a:stream", "*", "?", "<"].iter().filter(|_| cfg!(windows));
    for name in ["", ".", "..", "a/b", "/etc/passwd", "../x", "nul\0"].iter().chain(refused_on_windows) {
        let errors = [
            dir.create_new(name, 0).map(drop),
            dir.open(name, Access::Read).map(drop),
            dir.rename("ok", name),
            dir.rename(name, "ok"),
            dir.unlink(name),
            dir.link("ok", &*dir, name),
            dir.link(name, &*dir, "new"),
            dir.lock(name, true).map(drop),
        ];
        for error in errors {
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
}

#[test]
fn links_reach_other_directories() {
    let temp = tempfile::tempdir().unwrap();
    let (a, b) = (open(&temp.path().join("a")), open(&temp.path().join("b")));
    a.create_new("one", 0).unwrap().write_all_at(b"same bytes", 0).unwrap();
    a.link("one", &*b, "two").unwrap();
    a.unlink("one").unwrap();
    let mut bytes = [0; 10];
    b.open("two", Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"same bytes");
    let (_, sim, _) = tidesdb_io::sim::env(1);
    let other = sim.open_dir(Path::new("/db"), true).unwrap();
    assert_eq!(b.link("two", &*other, "x").unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// On Windows a path of more than 260 characters needs another form, in which no character has a special meaning.
#[test]
fn paths_may_be_long_and_odd() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("x".repeat(200)).join("y".repeat(150)).join("\u{e4} \u{1f30a} z.d");
    let (dir, other) = (open(&path), open(&path.join("other")));
    let file = dir.create_new("1.new", 10).unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    file.sync_all().unwrap();
    dir.rename("1.new", "1").unwrap();
    dir.link("1", &*other, "2").unwrap();
    dir.sync().unwrap();
    assert_eq!((dir.list().unwrap(), other.list().unwrap()), (vec!["1".to_owned()], vec!["2".to_owned()]));
    drop(dir.lock("LOCK", true).unwrap());
    assert!(dir.space().unwrap().free > 0);
    dir.unlink("1").unwrap();
    let mut bytes = [0; 10];
    other.open("2", Access::Random).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"0123456789");
}

/// Offsets that a system gives another meaning, such as "the end" or "where the last call ended", are errors.
#[test]
fn offsets_beyond_the_longest_file_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let file = open(temp.path()).create_new("a", 4).unwrap();
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
        assert!(file.read_at(&mut [0], offset).is_err() && file.write_at(&[1], offset).is_err(), "{offset}");
        assert!(file.set_len(offset).is_err(), "{offset}");
    }
    assert_eq!(file.len().unwrap(), 4);
}

#[test]
fn the_boot_is_stable() {
    let temp = tempfile::tempdir().unwrap();
    let (boot, below) = (open(temp.path()).boot(), open(&temp.path().join("below")).boot());
    assert_eq!(boot, below, "one file system, one mount of it");
    assert!(!boot.is_exact || boot.id != [0; 16]);
    if cfg!(windows) || !Path::new("/proc/sys/kernel/random/boot_id").exists() && cfg!(target_os = "linux") {
        assert_eq!(boot, Boot::default());
    }
}

#[test]
fn a_directory_is_locked_once() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, again) = (open(temp.path()), open(temp.path()));
    let busy = |dir: &dyn Dir, exclusive| {
        dir.lock("LOCK", exclusive).unwrap_err().kind() == io::ErrorKind::WouldBlock
    };
    let writer = dir.lock("LOCK", true).unwrap();
    assert!(busy(&*again, true) && busy(&*again, false) && busy(&*dir, true));
    drop(writer);
    let readers = [dir.lock("LOCK", false).unwrap(), again.lock("LOCK", false).unwrap()];
    assert!(busy(&*again, true));
    let [first, second] = readers;
    drop(first);
    assert!(busy(&*dir, true));
    drop(second);
    dir.lock("LOCK", true).unwrap();
    dir.lock("LOCK", true).unwrap();
}

#[test]
fn the_registry_holds_even_if_the_lock_file_is_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    let _held = dir.lock("LOCK", true).unwrap();
    dir.unlink("LOCK").unwrap();
    assert_eq!(dir.lock("LOCK", true).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// Not a test of its own: the child process of the next test. Locks the given directory, prints the result and
/// waits.
#[test]
#[ignore = "run by another test as a child process"]
fn child_that_holds_a_lock() {
    let Ok(path) = std::env::var("LOCK_CHILD_DIR") else { return };
    let exclusive = std::env::var("LOCK_CHILD_EXCLUSIVE").is_ok();
    let result = open(Path::new(&path)).lock("LOCK", exclusive);
    println!("\nchild: {}", if result.is_ok() { "held" } else { "busy" });
    io::stdout().flush().unwrap();
    io::stdin().read_line(&mut String::new()).unwrap();
}

/// The child process. Its output pipe stays open, because the child could not exit cleanly otherwise.
struct Child {
    process: std::process::Child,
    _output: io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Child {
    /// Starts the child. Also returns what it printed.
    fn start(path: &Path, exclusive: bool) -> (Self, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "real_disk::child_that_holds_a_lock", "--ignored", "--nocapture"]);
        command.env("LOCK_CHILD_DIR", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        if exclusive {
            command.env("LOCK_CHILD_EXCLUSIVE", "1");
        }
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let said = output.find_map(|line| line.unwrap().strip_prefix("child: ").map(str::to_owned));
        (Self { process, _output: output }, said.unwrap())
    }

    fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn other_processes_are_kept_out() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    let held = dir.lock("LOCK", true).unwrap();
    for exclusive in [true, false] {
        let (child, said) = Child::start(temp.path(), exclusive);
        assert_eq!(said, "busy");
        child.end();
    }
    drop(held);

    let (mut child, said) = Child::start(temp.path(), true);
    assert_eq!(said, "held");
    assert_eq!(dir.lock("LOCK", false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    // The lock ends with the process, even if it is killed.
    child.process.kill().unwrap();
    child.process.wait().unwrap();
    let reader = dir.lock("LOCK", false).unwrap();
    let (child, said) = Child::start(temp.path(), false);
    assert_eq!(said, "held", "readers share the lock");
    drop(reader);
    child.end();
    dir.lock("LOCK", true).unwrap();
}

/// Somebody takes the file of the lock for a leftover of a crash, and removes it.
#[cfg(unix)]
#[test]
fn other_processes_are_kept_out_although_the_lock_file_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    for held_by_writer in [true, false] {
        let held = dir.lock("LOCK", held_by_writer).unwrap();
        dir.unlink("LOCK").unwrap();
        for exclusive in [true, false] {
            let (child, said) = Child::start(temp.path(), exclusive);
            assert_eq!(said, if held_by_writer || exclusive { "busy" } else { "held" });
            child.end();
        }
        drop(held);
    }
    let (child, said) = Child::start(temp.path(), true);
    assert_eq!(said, "held");
    child.end();
}

#[test]
fn a_durable_write_changes_its_own_bytes() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    let file = dir.create_new("a", 8192).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.write_all_durably_at(&[2; 100], 50).unwrap();
    let mut bytes = vec![0; 8192];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let wanted = |at: usize| if (50..150).contains(&at) { 2 } else { 1 };
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == wanted(at)));
    assert!(dir.open("a", Access::Read).unwrap().write_durably_at(&[3], 0).is_err());
}

/// Regression test: a buffer of 64 KiB, for file systems that cannot reserve space, was part of the stack of every call that reserves
/// some. A thread of a C program with a stack of 64 KiB ended the process.
#[test]
fn reserving_space_needs_little_stack() {
    let temp = tempfile::tempdir().unwrap();
    let file = open(temp.path()).create_new("a", 0).unwrap();
    let reserve = move || file.allocate(0, 1 << 20).unwrap();
    std::thread::Builder::new().stack_size(40 << 10).spawn(reserve).unwrap().join().unwrap();
}

#[test]
fn a_directory_is_empty_if_it_has_no_entry_of_any_kind() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    assert!(dir.is_empty().unwrap());
    drop(open(&temp.path().join("folder")));
    assert!(dir.list().unwrap().is_empty() && !dir.is_empty().unwrap());
    std::fs::remove_dir(temp.path().join("folder")).unwrap();
    dir.create_new("file", 0).unwrap();
    assert!(!dir.is_empty().unwrap());
    dir.unlink("file").unwrap();
    assert!(dir.is_empty().unwrap());
}
