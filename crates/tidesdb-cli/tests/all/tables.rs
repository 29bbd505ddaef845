//! Sorted loads, and tables that are exported and taken, by the built program.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use crate::cli::{Stage, files_of};

/// Sorted rows go to tables; those that no commit has taken leave nothing.
#[test]
fn a_killed_load_of_sorted_rows_leaves_a_prefix() {
    let stage = Stage::new();
    let rows: String = (0..20_000).map(|n| format!("{n:07}\t{n:01000}\n")).collect();
    let mut child = stage.command(&["load", "--format", "tsv"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&rows.as_bytes()[..rows.len() / 2]).unwrap();
    // The program has read all but what its buffer and the pipe hold.
    child.kill().unwrap();
    child.wait().unwrap();
    drop(stdin);
    let is_building = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("INGEST-");
    assert!(
        files_of(&stage.path("db"), "klog").iter().any(is_building),
        "the load was killed before its tables"
    );
    let dump = stage.ok(&["dump"]);
    assert!(rows.starts_with(&dump) && dump.len() > 4 << 20, "{} bytes", dump.len());
    stage.ok(&["put", "a", "opened for writing"]);
    assert!(!files_of(&stage.path("db"), "klog").iter().any(is_building));
    let told = stage.with_input(&["load", "--format", "tsv"], rows.as_bytes());
    assert_eq!(told.code, 0, "{}", told.err);
    assert!(told.text().ends_with(" rows were written as sorted tables\n"), "{}", told.text());
    assert!(stage.ok(&["dump", "--to", "a"]) == rows, "loading again completes it");
}

#[test]
fn tables_are_exported_beside_a_writer_and_taken_without_one() {
    let stage = Stage::new();
    let db = tidesdb::Db::open(stage.path("db")).unwrap();
    db.put("a", "1").unwrap();
    db.put("b", vec![b'x'; 9000]).unwrap();
    let run = stage.run(&["export", "rows"]);
    assert!(run.code == 0 && run.err.contains("open elsewhere"), "{}", run.err);
    assert!(run.text().contains("\n1 table, "), "{}", run.text());
    let run = stage.run(&["ingest", "rows-000001.klog"]);
    assert_eq!(run.code, 4, "{}", run.err);
    db.delete("a").unwrap();
    db.close().unwrap();
    // A pattern of the shell names the values too.
    let mut files: Vec<_> = ["klog", "vlog"].iter().flat_map(|end| files_of(stage.dir.path(), end)).collect();
    files.sort_unstable();
    let names: Vec<&str> = files.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    stage.ok(&[&["ingest", "--move"], &names[..]].concat());
    assert_eq!(stage.ok(&["scan", "-k"]), "a\nb\n");
    // A database that does not exist is created.
    stage.ok(&["export", "rows"]);
    stage.ok(&["ingest", "--db", "new", "rows-000001.klog"]);
    assert_eq!(stage.ok(&["scan", "-k", "--db", "new"]), "a\nb\n");
    assert_eq!(stage.run(&["export", "--db", "none", "rows"]).code, 2);
}
