//! Hostile names and directories, and databases that are already open. For Unix: its links, pipes, modes and shell.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidesdb::{Db, Error, FamilyOptions, SyncMode};
use tidesdb_io::sim::{self, OpKind, OpSet};

/// Names that have a meaning for some system.
fn hostile_names() -> Vec<String> {
    let long = "n".repeat(127);
    let names = [
        "..",
        ".",
        "../x",
        "../../etc/passwd",
        "a/b",
        "/",
        "nul\0byte",
        "CON",
        "con",
        "CURRENT",
        "LOCK",
        "000001.wal",
        "Ab",
        "aB",
        "x\ny",
        "\u{202E}gnp",
        "\u{1F40B}",
        "e\u{301}",
        "\u{E9}",
        " ",
        "--help",
        "%s%n",
        &long,
    ];
    names.map(str::to_owned).to_vec()
}

#[test]
fn family_names_are_data() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    let db = Db::open(&dir).unwrap();
    for name in hostile_names() {
        let family = db.create_family(&name, FamilyOptions::default()).unwrap();
        family.put(b"name", name.as_bytes()).unwrap();
    }
    for bad in ["".to_owned(), "n".repeat(128), "\u{1F40B}".repeat(64)] {
        assert!(matches!(
            db.create_family(&bad, FamilyOptions::default()),
            Err(Error::InvalidArgument { .. })
        ));
        assert!(matches!(db.rename_family("..", &bad), Err(Error::InvalidArgument { .. })));
    }
    check_names(&db, false);
    db.close().unwrap();
    let db = Db::open(&dir).unwrap();
    check_names(&db, true);
    db.close().unwrap();
    let outside: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(outside, ["db"], "a file was created outside the database");
    for entry in fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let numbered = name.split('.').next().unwrap().bytes().all(|b| b.is_ascii_digit());
        assert!(numbered || ["CURRENT", "LOCK", "RESERVE", "EVENTS"].contains(&&*name), "{name:?}");
    }
}

fn check_names(db: &Db, reopened: bool) {
    for name in hostile_names() {
        let value = db.family(&name).unwrap().get(b"name").unwrap();
        assert_eq!(value.as_deref(), Some(name.as_bytes()), "reopened: {reopened}");
    }
    assert_eq!(db.families().len(), hostile_names().len() + 1);
}

/// Creates a small database with every kind of file, without closing it.
fn small(dir: &Path) {
    let db = Db::options(dir).background_threads(0).with(|o| o.wal_segment_bytes = 1 << 20).open().unwrap();
    db.put(b"flushed", &[7; 2000]).unwrap();
    db.flush().unwrap();
    db.put(b"logged", &[8; 2000]).unwrap();
    db.sync().unwrap();
    db.abandon();
}

fn open_small(dir: &Path) -> tidesdb::Result<Db> {
    let db = Db::options(dir).background_threads(0).open()?;
    for (key, byte) in [(&b"flushed"[..], 7), (b"logged", 8)] {
        let value = db.get(key)?;
        assert_eq!(value.as_deref(), Some(&[byte; 2000][..]), "silently lost");
    }
    Ok(db)
}

/// Replaces each file in turn: `make` receives the path, and the path of the original file, which was moved outside.
fn in_place_of_each_file(make: impl Fn(&Path, &Path)) {
    let temp = tempfile::tempdir().unwrap();
    let model = temp.path().join("model");
    small(&model);
    let names: Vec<_> =
        fs::read_dir(&model).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        let dir = temp.path().join(format!("db-{name}"));
        fs::create_dir(&dir).unwrap();
        for entry in fs::read_dir(&model).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
        }
        let outside = temp.path().join(format!("outside-{name}"));
        fs::rename(dir.join(&name), &outside).unwrap();
        let before = fs::read(&outside).unwrap();
        make(&dir.join(&name), &outside);
        match open_small(&dir) {
            Err(e) => println!("{name}: {e}"),
            // Files without contents that are needed, or files that are replaced by the open.
            Ok(db) => {
                let is_needless =
                    [".free", ".wal", ".manifest", "EVENTS"].iter().any(|end| name.ends_with(end));
                assert!(is_needless, "{name} was opened through the replacement");
                db.close().unwrap();
            }
        }
        assert_eq!(fs::read(&outside).unwrap(), before, "a file outside was changed through {name}");
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    in_place_of_each_file(|at, outside| symlink(outside, at).unwrap());
}

#[test]
fn pipes_and_directories_are_refused() {
    in_place_of_each_file(|at, _| {
        assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
    });
    in_place_of_each_file(|at, _| fs::create_dir(at).unwrap());
}

#[test]
fn links_at_the_paths_of_new_files_are_harmless() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    let victim = temp.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    small(&dir);
    for n in 0..40 {
        for ext in ["klog", "vlog", "wal", "wal.free", "manifest"] {
            let _ = symlink(&victim, dir.join(format!("{n:06}.{ext}")));
        }
    }
    let _ = symlink(&victim, dir.join("CURRENT.new"));
    if let Ok(db) = open_small(&dir) {
        let _ = db.put(b"k", &[1; 3000]);
        let _ = db.flush();
        drop(db);
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

/// Starts a child that commits until it is killed; returns when it has opened the database.
fn busy_child(dir: &Path, umask: &str) -> Child {
    let script = format!("umask {umask}; exec \"$0\" kill --child \"$1\" 2");
    let mut child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_testkit")])
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    child
}

#[test]
fn files_are_private_with_any_umask() {
    for umask in ["000", "077", "022"] {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("deep/db");
        let mut child = busy_child(&dir, umask);
        std::thread::sleep(std::time::Duration::from_millis(200));
        child.kill().unwrap();
        child.wait().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir) & 0o077, 0, "umask {umask}");
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "umask {umask}: {}", path.display());
        }
    }
}

fn is_locked<T>(result: &tidesdb::Result<T>) -> bool {
    matches!(result, Err(Error::Locked { .. }))
}

#[test]
fn one_opener_at_a_time_in_a_process() {
    let temp = tempfile::tempdir().unwrap();
    let db = Db::open(temp.path()).unwrap();
    assert!(is_locked(&Db::open(temp.path())));
    assert!(is_locked(&Db::options(temp.path()).read_only(true).open()));
    let again = temp.path().join(".").join("..").join(temp.path().file_name().unwrap());
    assert!(is_locked(&Db::open(&again)), "another path must find the same lock");
    let clone = db.clone();
    drop(db);
    assert!(is_locked(&Db::open(temp.path())), "a clone keeps the database open");
    drop(clone);
    let db = Db::open(temp.path()).unwrap();
    db.close().unwrap();
    let readers: Vec<Db> = (0..3).map(|_| Db::options(temp.path()).read_only(true).open().unwrap()).collect();
    assert!(is_locked(&Db::open(temp.path())));
    drop(readers);
    Db::open(temp.path()).unwrap().close().unwrap();
}

#[test]
fn one_opener_at_a_time_among_processes() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    for _ in 0..3 {
        let mut child = busy_child(&dir, "022");
        assert!(is_locked(&Db::open(&dir)));
        child.kill().unwrap();
        child.wait().unwrap();
        let db = Db::open(&dir).unwrap(); // the lock was released when its holder died
        assert!(db.family("second").unwrap().contains(b"counter0").is_ok());
        db.abandon();
    }
}

#[test]
fn reading_changes_nothing() {
    for closed in [false, true] {
        let (env, disk, _clock) = sim::env(5);
        let open = |read_only| {
            Db::options("/db")
                .env(env.clone())
                .background_threads(0)
                .read_only(read_only)
                .sync(SyncMode::Full)
                .with(|o| o.wal_segment_bytes = 64 << 10)
                .open()
        };
        assert!(matches!(open(true), Err(Error::NotFound { .. })), "a missing database must not be created");
        let db = open(false).unwrap();
        db.put(b"flushed", &[7; 2000]).unwrap();
        db.flush().unwrap();
        db.put(b"logged", &[8; 2000]).unwrap();
        if closed {
            db.close().unwrap()
        } else {
            db.abandon()
        }
        let from = disk.ops().len();
        let db = open(true).unwrap();
        assert_eq!(db.get(b"flushed").unwrap().as_deref(), Some(&[7; 2000][..]));
        assert_eq!(db.get(b"logged").unwrap().as_deref(), Some(&[8; 2000][..]));
        assert_eq!(db.iter().unwrap().count(), 2);
        assert!(db.verify().unwrap().is_ok());
        assert!(matches!(db.put(b"k", b"v"), Err(Error::ReadOnly)));
        assert!(matches!(db.flush(), Err(Error::ReadOnly)));
        assert!(matches!(db.compact(), Err(Error::ReadOnly)));
        assert!(matches!(db.sync(), Err(Error::ReadOnly)));
        assert!(matches!(db.checkpoint("/copy"), Err(Error::ReadOnly)));
        assert!(matches!(db.create_family("f", FamilyOptions::default()), Err(Error::ReadOnly)));
        db.close().unwrap();
        let changes: Vec<_> = disk.ops()[from..]
            .iter()
            .filter(|op| OpSet::CHANGES.has(op.kind) && op.kind != OpKind::Lock)
            .cloned()
            .collect();
        assert!(changes.is_empty(), "closed {closed}: {changes:?}");
    }
}

#[test]
fn a_read_only_directory_can_be_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    small(&dir);
    let set = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    let state = || {
        let mut all: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|e| {
                let e = e.unwrap();
                let meta = e.metadata().unwrap();
                (e.file_name(), meta.len(), meta.modified().unwrap())
            })
            .collect();
        all.sort();
        all
    };
    set(0o555);
    let before = state();
    let db = Db::options(&dir).read_only(true).open().unwrap();
    assert_eq!(db.get(b"logged").unwrap().as_deref(), Some(&[8; 2000][..]));
    assert_eq!(db.get(b"flushed").unwrap().as_deref(), Some(&[7; 2000][..]));
    db.close().unwrap();
    assert_eq!(state(), before);
    set(0o755);
}
