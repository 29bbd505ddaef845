//! The real disk: permissions, refusals, durability of names, and the lock across processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tidesdb_io::{Access, Advice, Dir, Disk, FileExt, RealDisk};

fn open(path: &Path) -> Arc<dyn Dir> {
    RealDisk::new().open_dir(path, true).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_and_directories_are_private_whatever_the_umask() {
    tidesdb_io::sim::alone(|| {
        let old = rustix::process::umask(rustix::fs::Mode::empty());
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x/y/db");
        let dir = open(&path);
        dir.create_new("file", 0).unwrap();
        dir.create_new("long", 10_000).unwrap();
        let _lock = dir.lock("LOCK", true).unwrap();
        rustix::process::umask(old);
        for made in ["x", "x/y", "x/y/db"] {
            assert_eq!(mode(&temp.path().join(made)), 0o700, "{made}");
        }
        for made in ["file", "long", "LOCK"] {
            assert_eq!(mode(&path.join(made)), 0o600, "{made}");
        }
    });
}

#[test]
fn only_regular_files_are_opened_and_listed() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    dir.create_new("file", 0).unwrap();
    std::fs::create_dir(temp.path().join("dir")).unwrap();
    symlink("file", temp.path().join("link")).unwrap();
    symlink("nowhere", temp.path().join("dangling")).unwrap();
    let fifo = temp.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::os::unix::net::UnixListener::bind(temp.path().join("socket")).unwrap();

    assert_eq!(dir.list().unwrap(), ["file"]);
    for access in [Access::Read, Access::ReadWrite] {
        dir.open("file", access).unwrap();
        for name in ["dir", "link", "dangling", "fifo", "socket"] {
            let error = dir.open(name, access).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::NotFound, "{name}: {error}");
        }
        assert_eq!(dir.open("dir", access).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
    for name in ["dir", "link", "dangling", "fifo", "socket"] {
        let error = dir.create_new(name, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
        assert!(dir.lock(name, true).is_err(), "{name}");
        assert!(dir.link(name, &*dir, "new").is_err(), "{name}");
    }
    assert!(!temp.path().join("nowhere").exists(), "created through a symbolic link");
    assert!(!temp.path().join("new").exists());
}

#[test]
fn names_are_single_components() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    dir.create_new("ok", 0).unwrap();
    for name in ["", ".", "..", "a/b", "/etc/passwd", "../x", "nul\0"] {
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
fn a_directory_may_be_a_link_and_must_be_a_directory() {
    let temp = tempfile::tempdir().unwrap();
    let (real, alias, file) = (temp.path().join("real"), temp.path().join("alias"), temp.path().join("file"));
    let disk = RealDisk::new();
    assert_eq!(disk.open_dir(&real, false).unwrap_err().kind(), io::ErrorKind::NotFound);
    open(&real).create_new("a", 0).unwrap();
    symlink(&real, &alias).unwrap();
    assert_eq!(open(&alias).list().unwrap(), ["a"]);
    assert_eq!(open(&alias).path(), alias);
    std::fs::write(&file, b"").unwrap();
    for create in [false, true] {
        for path in [&file, &file.join("below")] {
            let error = disk.open_dir(path, create).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{path:?}");
        }
    }
}

#[test]
fn preallocation_makes_real_blocks() {
    let temp = tempfile::tempdir().unwrap();
    let dir = open(temp.path());
    let file = dir.create_new("wal", 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    let blocks = || std::fs::metadata(temp.path().join("wal")).unwrap().blocks() * 512;
    assert!(blocks() >= 1 << 20, "{} bytes", blocks());
    let mut all = vec![1; 1 << 20];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all.iter().all(|&b| b == 0));
    file.write_all_at(b"x", 5).unwrap();
    file.allocate(0, 2 << 20).unwrap();
    assert!(blocks() >= 2 << 20);
    file.advise(Advice::DontNeed, 0, 0).unwrap();
    file.read_exact_at(&mut all[..8], 0).unwrap();
    assert_eq!(all[..8], [0, 0, 0, 0, 0, b'x', 0, 0]);
    // More than any file system holds: creation must fail and leave no file.
    assert!(dir.create_new("huge", i64::MAX as u64 - 4096).is_err());
    assert_eq!(dir.list().unwrap(), ["wal"]);
    let space = dir.space().unwrap();
    assert!(space.free > 0 && space.free <= space.total);
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

#[test]
fn the_boot_id_is_stable() {
    let disk = RealDisk::new();
    assert_eq!(disk.boot_id(), RealDisk::new().boot_id());
    assert_eq!(disk.boot_id() != [0; 16], Path::new("/proc/sys/kernel/random/boot_id").exists());
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
        command.args(["--exact", "child_that_holds_a_lock", "--ignored", "--nocapture"]);
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
