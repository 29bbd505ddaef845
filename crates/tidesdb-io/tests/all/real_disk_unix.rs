//! The real disk of Unix systems: permissions, links and other special files, blocks.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use tidesdb_io::{Access, Advice, Disk, FileExt, RealDisk};

use crate::open;

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
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
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

/// The error was that of the system for the folder that had just been made: no such file.
#[test]
fn a_link_that_leads_nowhere_is_named_with_its_target() {
    let temp = tempfile::tempdir().unwrap();
    let (gone, alias) = (temp.path().join("gone"), temp.path().join("alias"));
    symlink(&gone, &alias).unwrap();
    for path in [&alias, &alias.join("below")] {
        let error = RealDisk::new().open_dir(path, true).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{text}");
        assert!(text.contains(&format!("{} is a link to {}", alias.display(), gone.display())), "{text}");
    }
    assert!(!gone.exists());
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
