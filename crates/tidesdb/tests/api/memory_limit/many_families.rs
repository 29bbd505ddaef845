//! Families in thousands under the least memory limit. The test has a process of its own: it looks at the anonymous memory of the process.

use std::path::Path;
use std::process::Command;

use tidesdb::{Db, Error, Family, FamilyOptions, HealthState, SyncMode};
use tidesdb_io::sim;

const LIMIT: u64 = 16 << 20;
/// In the environment: measure an open of the database in this folder.
const MEASURE: &str = "TIDESDB_TEST_MEASURE";
/// The test in its program.
const NAME: &str =
    "memory_limit::many_families::families_are_refused_when_there_are_too_many_and_writes_go_on";

fn open(dir: &Path) -> Db {
    Db::options(dir).memory_limit(LIMIT).sync(SyncMode::None).open().unwrap()
}

fn anonymous() -> u64 {
    tidesdb_io::anonymous_bytes().unwrap_or(0)
}

/// Creates families until one is refused.
fn create(db: &Db) -> (Vec<Family>, Error) {
    let mut made = Vec::new();
    loop {
        match db.create_family(&format!("f{}", made.len()), FamilyOptions::default()) {
            Ok(family) => made.push(family),
            Err(e) => return (made, e),
        }
        assert!(made.len() < 3500, "so many do not fit");
    }
}

/// With a row in each of some thousand families, every write of any family was refused for ever, and the health was good.
#[test]
fn families_are_refused_when_there_are_too_many_and_writes_go_on() {
    sim::alone(|| match std::env::var_os(MEASURE) {
        Some(dir) => idle(Path::new(&dir)),
        None => fill(),
    });
}

/// Creates families until there is no room, writes to all of them, and has another process open them.
fn fill() {
    let dir = tempfile::tempdir().unwrap();
    let before = anonymous();
    let within = |what: &str| {
        let used = anonymous().saturating_sub(before);
        assert!(used <= LIMIT / 100 * 115, "{what}: {used} bytes of memory");
    };
    let db = open(dir.path());
    let (families, refused) = create(&db);
    let Error::MemoryLimit { what } = &refused else { panic!("{refused}") };
    assert!(what.contains(&format!("room for {} families", families.len() + 1)), "{what}"); // with the default family
    within("idle families");
    for round in 0..3u32 {
        for (n, family) in families.iter().enumerate() {
            family.put(b"row", &round.to_be_bytes()).unwrap();
            if n % 100 == 0 {
                within("a row in each family");
            }
        }
        assert_eq!(db.health().state, HealthState::Healthy, "{}", db.health());
        if round == 2 {
            db.flush().unwrap();
            within("a table in each family");
        }
    }
    drop(families);
    db.close().unwrap();
    let mut measure = Command::new(std::env::current_exe().unwrap());
    measure.args(["--nocapture", "--exact", NAME]).env(MEASURE, dir.path());
    let out = measure.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let db = open(dir.path());
    assert!(matches!(db.create_family("one more", FamilyOptions::default()), Err(Error::MemoryLimit { .. })));
    let names: Vec<String> = db.families().into_iter().filter(|name| name != "default").collect();
    for name in &names {
        let row = db.family(name).unwrap().get(b"row").unwrap();
        assert_eq!(row.unwrap(), 2u32.to_be_bytes(), "{name}");
    }
    names.iter().take(50).for_each(|name| db.drop_family(name).unwrap());
    db.create_family("one more", FamilyOptions::default()).unwrap();
    db.close().unwrap();
}

/// What a family with a table takes of the memory while nothing uses it.
fn idle(dir: &Path) {
    let empty = tempfile::tempdir().unwrap();
    let _other = open(empty.path()); // what any open database takes
    let before = anonymous();
    let db = open(dir);
    let families = db.families().len() as u64;
    let used = anonymous().saturating_sub(before) / families;
    eprintln!("{used} bytes for each of {families} idle families");
    // With its table, and its part of the log and the threads of a second database.
    assert!(used <= 6 << 10, "{used} bytes for each of {families} idle families");
}
