use super::*;
use crate::{Db, Family, SyncMode};

/// A database with tables, a value log and, unless it was closed, a log.
fn fill(path: &Path) -> Db {
    let db = Db::options(path).sync(SyncMode::Full).open().unwrap();
    let big = vec![7; 5000];
    for n in 0..2000u32 {
        db.put(format!("key{n:05}").as_bytes(), b"a small value").unwrap();
    }
    let users: Family = db.create_family("users", Default::default()).unwrap();
    for n in 0..20u32 {
        let value: Vec<u8> = big.iter().enumerate().map(|(i, b)| (i as u32 * n) as u8 ^ b).collect();
        users.put(format!("big{n}").as_bytes(), &value).unwrap();
    }
    db.flush().unwrap();
    db.put(b"late", b"in the log").unwrap();
    db.delete(b"key00007").unwrap();
    db
}

fn files_of(path: &Path, extension: &str) -> Vec<String> {
    let names = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|n| n.ends_with(extension)).collect();
    names.sort_unstable();
    names
}

/// Returns the lines and the damage of one inspection.
fn look(inspect: impl FnOnce(&mut dyn FnMut(&str)) -> Result<Vec<Error>>) -> (String, Vec<Error>) {
    let mut text = String::new();
    let damage = inspect(&mut |line| {
        text.push_str(line);
        text.push('\n');
    });
    (text, damage.unwrap())
}

/// Flips a bit, inspects the file, and restores it.
fn flipped(
    path: &Path,
    file: &str,
    at: usize,
    inspect: impl FnOnce(&mut dyn FnMut(&str)) -> Result<Vec<Error>>,
) -> Vec<Error> {
    let path = path.join(file);
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes[at] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let damage = look(inspect).1;
    std::fs::write(&path, whole).unwrap();
    damage
}

#[test]
fn every_kind_of_file_shows_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let db = fill(path);
    let (text, damage) = look(|show| manifest(path, show));
    assert!(damage.is_empty());
    for part in ["family 2: create \"users\"", "add table", "state: log from segment", "key00000 .. key01999"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    let log = files_of(path, ".wal").pop().unwrap();
    let (text, damage) = look(|show| wal(path, &log, true, show));
    assert!(damage.is_empty(), "{damage:?}");
    assert!(
        text.contains("Put family 1 late, 10 bytes") && text.contains("Delete family 1 key00007"),
        "{text}"
    );
    for name in files_of(path, ".klog") {
        let (text, damage) = look(|show| table(path, &name, true, show));
        assert!(damage.is_empty(), "{damage:?}");
        assert!(text.contains("block 0, ") && text.contains("seqno"), "{text}");
    }
    let (text, damage) = look(|show| vlog(path, &files_of(path, ".vlog")[0], true, show));
    assert!(damage.is_empty(), "{damage:?}");
    assert!(text.contains("family \"users\"") && text.matches("value of 5000 bytes").count() == 20, "{text}");
    drop(db);
}

#[test]
fn a_layout_has_the_tables_of_its_tree() {
    let dir = tempfile::tempdir().unwrap();
    let db = fill(dir.path());
    db.compact().unwrap();
    for n in [1, 3] {
        db.put(format!("key{n:05}").as_bytes(), b"newer").unwrap();
        db.delete(b"key00100").unwrap();
        db.flush().unwrap();
    }
    let layouts = layouts(dir.path()).unwrap();
    let layout = layouts.iter().find(|layout| layout.tree.family == "default").unwrap();
    let place = |table: &LayoutTable| (table.level, table.run);
    let (first, rest) = layout.tables.split_at(2);
    assert_eq!(first.iter().map(place).collect::<Vec<_>>(), [(1, 1), (1, 2)], "each flushed table is a run");
    assert_eq!(
        (&*first[0].first_key, &*first[0].last_key),
        (&b"key00003"[..], &b"key00100"[..]),
        "the newest first"
    );
    assert_eq!((first[0].entries, first[0].tombstones), (2, 1));
    assert!(!rest.is_empty() && rest.iter().all(|table| place(table) == (2, 1)), "{rest:?}");
    for (layout, tree) in layouts.iter().zip(trees(dir.path()).unwrap()) {
        for level in &tree.levels {
            let tables = || layout.tables.iter().filter(|table| table.level == level.level);
            assert_eq!(tables().count(), level.tables);
            assert_eq!(tables().map(|table| table.bytes).sum::<u64>(), level.bytes);
            assert_eq!(tables().map(|table| table.run).max().unwrap_or(0), level.runs);
        }
        assert_eq!(layout.partition_starts.len() + usize::from(tree.bytes > 0), tree.partitions);
    }
}

#[test]
fn damage_is_reported_with_file_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fill(path).close().unwrap();
    let tables = files_of(path, ".klog");
    let name = tables.iter().max_by_key(|n| std::fs::metadata(path.join(n)).unwrap().len()).unwrap();
    let damage = flipped(path, name, 1000, |show| table(path, name, false, show));
    assert!(
        matches!(&damage[..], [Error::Corrupt { file, offset, .. }] if **file == **name && *offset <= 1000),
        "{damage:?}"
    );
    let name = &files_of(path, ".vlog")[0];
    let damage = flipped(path, name, 3000, |show| vlog(path, name, false, show));
    assert!(
        matches!(&damage[..], [Error::Corrupt { file, offset, .. }] if **file == **name && *offset <= 3000),
        "{damage:?}"
    );
    let name = &files_of(path, ".manifest")[0];
    let damage = flipped(path, name, 5 * 4096 + 40, |show| manifest(path, show));
    assert!(matches!(&damage[..], [Error::Corrupt { offset: 20480, .. }]), "{damage:?}");
}

#[test]
fn a_damaged_log_record_is_reported_at_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fill(path).abandon();
    let name = files_of(path, ".wal").pop().unwrap();
    let (text, _) = look(|show| wal(path, &name, false, show));
    let first: usize =
        text.lines().find_map(|l| l.trim().strip_prefix('@')?.split(' ').next()?.parse().ok()).unwrap();
    let damage = flipped(path, &name, first + 20, |show| wal(path, &name, false, show));
    assert!(
        matches!(&damage[..], [Error::Corrupt { file, offset, .. }] if **file == *name && *offset == first as u64),
        "{damage:?}"
    );
    let damage = flipped(path, &name, 20, |show| wal(path, &name, false, show));
    assert!(matches!(&damage[..], [Error::Corrupt { offset: 0, .. }]), "{damage:?}");
}

#[test]
fn missing_files_are_not_found() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path()).unwrap().close().unwrap();
    let mut ignore = |_: &str| ();
    assert!(matches!(wal(dir.path(), "000001.klog", false, &mut ignore), Err(Error::NotFound { .. })));
    assert!(matches!(table(dir.path(), "999999.klog", false, &mut ignore), Err(Error::NotFound { .. })));
    assert!(matches!(vlog(dir.path(), "../x.vlog", false, &mut ignore), Err(Error::NotFound { .. })));
    assert!(manifest(dir.path().join("none"), &mut ignore).is_err());
}
