//! Tests of the benchmark as a program: child processes, files, exit codes.

use std::path::Path;
use std::process::{Command, Output};

fn bench(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidesdb-bench"));
    command.args(args).env("TMPDIR", dir).output().expect("the program starts")
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[test]
fn a_suite_runs_and_is_kept_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (kept, databases) = (dir.path().join("kept"), dir.path().join("databases"));
    let kept_arg = kept.to_str().unwrap();
    let args = ["quick", "--scale", "0.003", "--repeat", "2", "--engine", "tidesdb,null", "--out", kept_arg];
    let out = bench(dir.path(), &[&args[..], &["--dir", databases.to_str().unwrap()]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let table = text(&out);
    for words in ["get_random", "queue_b10", "seed 1", "ITER", "sync Full"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert_eq!(std::fs::read_dir(&databases).unwrap().count(), 0, "databases are removed");
    let csv = std::fs::read_to_string(kept.join("results.csv")).unwrap();
    assert!(csv.starts_with("engine,test_name,operation,ops_per_sec,duration_sec,"));
    let page = std::fs::read_to_string(kept.join("report.html")).unwrap();
    assert!(page.contains("No rival was measured") && page.contains("put_random_b1"));
    let results = kept.join("results.json");
    let results = results.to_str().unwrap();
    let again = dir.path().join("again");
    let out = bench(dir.path(), &["report", results, "--out", again.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    assert!(text(&out).contains("get_random") && text(&out).contains("report.html"));
    assert_eq!(std::fs::read_to_string(again.join("report.html")).unwrap(), page);
    assert!(again.join("plots/02-writes.svg").is_file());
    let same = bench(dir.path(), &["compare", results, results]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same));
    assert!(text(&same).contains("geometric mean"));
}

#[test]
fn an_engine_is_killed_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    for durability in ["none", "os", "device"] {
        let args =
            ["run", "--workload", "kill", "--ops", "20000", "--batch", "100", "--durability", durability];
        let out = bench(dir.path(), &[&args[..], &["--out", kept.to_str().unwrap()]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        for words in ["REOPEN", "OPEN", "PUT", "ITER"] {
            assert!(text(&out).contains(words), "{words}: {}", text(&out));
        }
        let results = std::fs::read_to_string(kept.join("results.json")).unwrap();
        assert!(results.contains("\"acknowledged\": 20000") && results.contains("\"survived\": 20000"));
    }
}

#[test]
fn large_values_are_scaled() {
    let dir = tempfile::tempdir().unwrap();
    let databases = dir.path().join("databases");
    let run = |suite, scale| {
        let args = [suite, "--scale", scale, "--verify", "--dir", databases.to_str().unwrap()];
        let out = bench(dir.path(), &args);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        assert_eq!(std::fs::read_dir(&databases).unwrap().count(), 0, "databases are removed");
    };
    run("1gb", "0.002");
}

#[test]
fn churn_overload_and_values_run_at_a_small_scale() {
    let dir = tempfile::tempdir().unwrap();
    let (databases, kept) = (dir.path().join("databases"), dir.path().join("kept"));
    for (suite, words) in [
        ("churn", ["churn_4k@0.0005", "used/live", "at rest / calm"]),
        ("overload", ["overload_1k@0.0005", "drained/s", "without progress"]),
        ("values", ["values_none_get@0.0005", "written/raw", "ITER"]),
    ] {
        let args = [suite, "--scale", "0.0005", "--dir", databases.to_str().unwrap()];
        let out = bench(dir.path(), &[&args[..], &["--out", kept.to_str().unwrap()]].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        assert!(words.iter().all(|word| text(&out).contains(word)), "{}", text(&out));
        assert_eq!(std::fs::read_dir(&databases).unwrap().count(), 0, "databases are removed");
        let seconds = std::fs::read_to_string(kept.join("seconds.csv")).unwrap();
        assert!(seconds.contains(",allocated_bytes,live_bytes,"), "{seconds}");
        let space = kept.join("plots/18-seconds-space.svg");
        assert_eq!(space.is_file(), suite == "churn", "the plot of the bytes that exist");
        let _ = std::fs::remove_file(space);
    }
}

#[test]
fn beyond_memory_runs_inside_a_cgroup_or_reports_that_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (databases, kept) = (dir.path().join("databases"), dir.path().join("kept"));
    let args = ["beyond-memory", "--scale", "0.002", "--verify", "--dir", databases.to_str().unwrap()];
    let out = bench(dir.path(), &[&args[..], &["--out", kept.to_str().unwrap()]].concat());
    if out.status.code() == Some(2) {
        let reasons = ["no cgroup with a memory limit can be created", "in memory (tmpfs)"];
        assert!(reasons.iter().any(|reason| text(&out).contains(reason)), "{}", text(&out));
        assert!(!kept.join("results.json").exists(), "nothing was run");
        return;
    }
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    for words in ["beyond_get_while_writing", "MULTIGET", "read/op", "no rival"] {
        assert!(text(&out).contains(words), "{words}: {}", text(&out));
    }
    assert_eq!(std::fs::read_dir(&databases).unwrap().count(), 0, "databases are removed");
    let seconds = std::fs::read_to_string(kept.join("seconds.csv")).unwrap();
    assert!(seconds.starts_with("engine,row,repetition,at_sec,length_sec,part,"), "{seconds}");
    assert!(["beyond_load", "beyond_scan", "settle"].iter().all(|word| seconds.contains(word)), "{seconds}");
    let plots = kept.join("plots");
    assert!(
        std::fs::read_dir(plots).unwrap().flatten().any(|f| f.file_name() == "18-seconds-throughput.svg")
    );
}

#[test]
fn a_rival_that_is_not_built_is_explained_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let databases = dir.path().join("databases");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidesdb-bench"));
    command.args(["quick", "--vs", "rocksdb", "--dir"]).arg(&databases);
    let out = command.env("TIDESDB_BENCH_PEERS", dir.path()).output().unwrap();
    // The program may have been built in the directory of this program.
    if !Path::new(env!("CARGO_BIN_EXE_tidesdb-bench")).with_file_name("tidesdb-bench-rocksdb").exists() {
        assert_eq!(out.status.code(), Some(2), "{}", text(&out));
        for words in ["libclang-dev", "--features rocksdb", "minutes", "TIDESDB_BENCH_PEERS"] {
            assert!(text(&out).contains(words), "{words}: {}", text(&out));
        }
        assert!(!databases.exists());
    }
    assert!(text(&bench(dir.path(), &["list"])).contains("tidesdb-bench-peers --features fjall"));
}

#[test]
fn a_slower_result_is_flagged() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().to_str().unwrap();
    let out = bench(dir.path(), &["run", "--engine", "null", "--ops", "2000", "--out", kept]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let old = std::fs::read_to_string(dir.path().join("results.json")).unwrap();
    let slow = old.replace("\"seconds\": 0.0", "\"seconds\": 9.0");
    assert_ne!(old, slow);
    let (a, b) = (dir.path().join("results.json"), dir.path().join("slow.json"));
    std::fs::write(&b, slow).unwrap();
    let page = dir.path().join("compare.html");
    let out = bench(
        dir.path(),
        &["compare", a.to_str().unwrap(), b.to_str().unwrap(), "--html", page.to_str().unwrap()],
    );
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(std::fs::read_to_string(page).unwrap().contains("regression"));
    assert!(text(&out).contains("WORSE"), "{}", text(&out));
}

#[test]
fn single_rows_and_mistakes() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| bench(dir.path(), &[&["run", "--ops", "4000"], args].concat());
    for args in [
        &["--workload", "write", "--pattern", "random", "--batch", "100"][..],
        &["--workload", "read", "--pattern", "stride", "--verify"],
        &["--workload", "blend", "--pattern", "scrambled", "--shares", "50,20,10,10,10", "--rate", "50000"],
        &["--workload", "transaction", "--isolation", "si", "--tx-ops", "5", "--conflict", "high"],
        &["--workload", "write", "--batch", "100", "--isolation", "read-committed"],
        &["--workload", "mixed", "--seconds", "0.1", "--durability", "none"],
        &["--workload", "range", "--compressible", "sawtooth", "--range", "10", "--unsettled"],
    ] {
        let out = run(args);
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out));
    }
    for (args, words) in [
        (&["--engine", "nonesuch"][..], "nonesuch"),
        (&["--threads", "0"], "threads"),
        (&["--workload", "transaction", "--isolation", "none"], "serializable"),
        (&["--workload", "transaction", "--tx-ops", "0"], "a transaction has"),
        (&["--workload", "sleep"], "sleep"),
    ] {
        let out = run(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", text(&out));
        assert!(text(&out).contains(words), "{}", text(&out));
    }
    assert_eq!(bench(dir.path(), &["nonesuch"]).status.code(), Some(2));
    for (args, meant) in [
        (&["standrad"][..], "did you mean \"standard\"?"),
        (&["lst"], "did you mean \"list\"?"),
        (&["quick", "--engine", "tidsdb"], "did you mean \"tidesdb\"?"),
        (&["quick", "--vs", "rocksbd"], "did you mean \"rocksdb\"?"),
        (&["run", "--workload", "wrte"], "'write'"),
        (&["run", "--isolation", "serialisable"], "'serializable'"),
    ] {
        let out = bench(dir.path(), args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", text(&out));
        assert!(text(&out).contains(meant), "{args:?}: {}", text(&out));
    }
    assert!(text(&bench(dir.path(), &["list"])).contains("sync_write_random_500K_t16_b1000"));
}

#[test]
fn a_row_that_cannot_run_fails_and_so_does_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let out = bench(dir.path(), &["run", "--ops", "1000", "--value-size", "100000000000000", "--json"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out));
    assert!(text(&out).contains("without a result"), "{}", text(&out));
}
