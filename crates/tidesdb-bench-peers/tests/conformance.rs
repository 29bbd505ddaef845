//! Checks every enabled program against a model.

use std::process::Command;

#[cfg_attr(
    not(any(
        feature = "fjall",
        feature = "libtidesdb",
        feature = "lmdb",
        feature = "redb",
        feature = "rocksdb",
        feature = "surrealkv",
        feature = "tidesdb-c"
    )),
    expect(dead_code, reason = "without an enabled engine there is nothing to test")
)]
#[track_caller]
fn conforms(program: &str, engine: &str) {
    for seed in [1, 2] {
        let dir = tempfile::tempdir().expect("cannot create a temporary directory");
        let out = Command::new(program)
            .args(["conform", engine])
            .arg(dir.path())
            .arg(format!("{seed}"))
            .output()
            .expect("cannot start the program");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(out.status.success(), "{engine}: {}{}", text(&out.stdout), text(&out.stderr));
        assert!(text(&out.stdout).contains("durability device, batch 20"), "{}", text(&out.stdout));
        let transactions = text(&out.stdout).matches("transactions, ").count();
        let offered = ["rocksdb", "rocksdb:blob", "tidesdb-c"].contains(&engine);
        assert_eq!(transactions, if offered { 5 } else { 0 }, "{}", text(&out.stdout));
    }
}

#[cfg(feature = "fjall")]
#[test]
fn fjall() {
    conforms(env!("CARGO_BIN_EXE_tidesdb-bench-fjall"), "fjall");
}

#[cfg(feature = "lmdb")]
#[test]
fn lmdb() {
    conforms(env!("CARGO_BIN_EXE_tidesdb-bench-lmdb"), "lmdb");
}

#[cfg(feature = "redb")]
#[test]
fn redb() {
    conforms(env!("CARGO_BIN_EXE_tidesdb-bench-redb"), "redb");
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb() {
    conforms(env!("CARGO_BIN_EXE_tidesdb-bench-rocksdb"), "rocksdb");
    conforms(env!("CARGO_BIN_EXE_tidesdb-bench-rocksdb"), "rocksdb:blob");
}

#[cfg(feature = "surrealkv")]
#[test]
fn surrealkv() {
    conforms(env!("CARGO_BIN_EXE_tidesdb-bench-surrealkv"), "surrealkv");
}

#[cfg(feature = "tidesdb-c")]
#[test]
fn tidesdb_c() {
    conforms(env!("CARGO_BIN_EXE_tidesdb-bench-tidesdb-c"), "tidesdb-c");
}

/// Invalid arguments cause an error message and exit code 2.
#[cfg(feature = "fjall")]
#[test]
fn invalid_arguments_are_refused() {
    for args in [&["{}"][..], &[], &["conform", "fjall", "/nonesuch", "x"]] {
        let out = Command::new(env!("CARGO_BIN_EXE_tidesdb-bench-fjall")).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(!out.stderr.is_empty());
    }
}

/// A file that is not a libtidesdb is refused before any function is called. Set `TIDESDB_LIBRARY` to test a real
/// library as well.
#[cfg(feature = "libtidesdb")]
#[test]
fn libtidesdb() {
    let program = env!("CARGO_BIN_EXE_tidesdb-bench-libtidesdb");
    let dir = tempfile::tempdir().expect("cannot create a temporary directory");
    let text = dir.path().join("text.so");
    std::fs::write(&text, "not a library").unwrap();
    let refused = |engine: &str| {
        let out = Command::new(program).args(["conform", engine]).arg(dir.path()).arg("1").output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{engine}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(refused("libtidesdb").contains("needs a path"));
    let missing = refused("libtidesdb:/nonesuch/libtidesdb.so");
    assert!(missing.contains("/nonesuch/libtidesdb.so: cannot be loaded"), "{missing}");
    assert!(refused(&format!("libtidesdb:{}", text.display())).contains("cannot be loaded"));
    let other = refused("libtidesdb:libm.so.6");
    assert!(other.contains("libm.so.6: it has no function tidesdb_default_config"), "{other}");
    let model = dir.path().join("libmodel.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model_libtidesdb.c");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-pthread", "-o"]);
    assert!(compile.arg(&model).arg(source).status().expect("cannot run the C compiler").success());
    conforms(program, &format!("libtidesdb:{}", model.display()));
    if let Ok(library) = std::env::var("TIDESDB_LIBRARY") {
        conforms(program, &format!("libtidesdb:{library}"));
    }
}
