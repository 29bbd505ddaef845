//! Runs every runner with a small workload, so that each test of the whole engine is part of `cargo test`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use testkit::report::PLANT;

/// The program with all runners.
const TESTKIT: &str = env!("CARGO_BIN_EXE_testkit");

/// Runs a runner. It must succeed and print the line of its test.
fn run(program: &str, args: &[&str], line: &str) {
    let out = Command::new(TESTKIT).arg(program).args(args).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    print!("{stdout}");
    eprint!("{stderr}");
    assert!(out.status.success(), "{program} {args:?}: {}", out.status);
    assert!(stdout.lines().any(|l| l.starts_with(line)), "no line {line}");
}

#[test]
fn crash() {
    run("crash", &["--points", "250", "--threads", "2", "--seed", "11"], "T01 ");
}

#[test]
fn crash_on_disks_of_other_systems() {
    for disk in ["macos", "windows"] {
        let args = ["--points", "120", "--threads", "2", "--seed", "24", "--disk", disk];
        run("crash", &args, "T01 ");
    }
}

#[test]
fn faults() {
    let args = ["--cases", "400", "--points", "30", "--seed", "12"];
    run("faults", &[&args[..], &["--only", "9"]].concat(), "T09 ");
    run("faults", &[&args[..], &["--only", "10"]].concat(), "T10 ");
    run("faults", &[&args[..], &["--only", "11"]].concat(), "T11 ");
}

#[test]
fn kill() {
    run("kill", &["--kills", "12", "--seed", "13"], "T04 ");
}

#[test]
fn beside() {
    run("beside", &["--refreshes", "100", "--seed", "20"], "T46 ");
}

#[test]
fn sweep() {
    run("sweep", &["--stride", "127", "--blocks", "10", "--seed", "14"], "T27 ");
}

#[test]
fn model() {
    run("model", &["--ops", "40000", "--length", "2000", "--seed", "15"], "T14 ");
}

#[test]
fn metamorphic() {
    run("metamorphic", &["--configs", "12", "--length", "12000", "--seed", "19"], "T15 ");
}

#[test]
fn tmpfs() {
    run("tmpfs", &["--rounds", "2", "--mib", "40", "--seed", "17", "--scarce", "0"], "T49 ");
}

#[test]
fn families() {
    run("families", &["--sizes", "250,1000", "--rows", "30000", "--idle", "0"], "T52 ");
}

/// The names of all runners.
fn programs() -> Vec<String> {
    let files = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runners")).unwrap();
    let mut names: Vec<_> =
        files.map(|f| f.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.retain(|name| name != "mod");
    names.sort_unstable();
    names
}

/// Runs a runner.
fn output(program: &str, args: &[&str], planted: Option<&str>) -> Output {
    let mut command = Command::new(TESTKIT);
    command.arg(program);
    if let Some(case) = planted {
        command.env(PLANT, case);
    }
    command.args(args).output().unwrap()
}

/// Runners once ignored what they did not know: a mistyped argument ran the default and passed.
#[test]
fn arguments_that_are_unknown_or_no_numbers_are_refused() {
    let number = |program: &str| if program == "latency" { "--mib" } else { "--seed" };
    for program in &programs() {
        let wrong = [["--sede", "1"], [number(program), "one"], [number(program), "-1"], ["--case", "1x"]];
        for args in wrong {
            let out = output(program, &args, None);
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(2), "{program} {args:?}: {said}");
            assert!(out.stdout.is_empty() && said.starts_with("error: "), "{program} {args:?}: {said}");
        }
    }
    let out = output("nonsense", &[], None);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("`nonsense`") && said.contains("crash"), "{said}");
}

/// Runners once printed numbers that, given back to them, ran other cases.
#[test]
fn the_command_of_a_violation_runs_the_failed_case_alone() {
    let runs: [(&str, &[&str], u64); 5] = [
        ("crash", &["--points", "20", "--seed", "11"], 11_000_000),
        ("faults", &["--only", "9", "--cases", "100", "--points", "2", "--seed", "12"], 12_000_001),
        ("model", &["--ops", "600", "--length", "100", "--seed", "15", "--threads", "1"], 15_000_003),
        ("metamorphic", &["--configs", "2", "--length", "2000", "--keys", "90", "--seed", "19"], 1),
        ("sweep", &["--stride", "3001", "--blocks", "2", "--seed", "14"], 3),
    ];
    for (program, args, case) in runs {
        let panics = format!("panic {case}");
        for planted in [case.to_string(), panics] {
            let out = output(program, args, Some(&planted));
            let said = violations(&out);
            let [line] = &said[..] else { panic!("{program}: not one violation: {said:?}") };
            assert!(!out.status.success() && line.ends_with("planted by a test"), "{program}: {line}");
            let command: Vec<&str> = line.split('`').nth(1).unwrap().split(' ').collect();
            assert_eq!(command[..3], ["cargo", "xtask", program]);
            let again = output(program, &command[3..], Some(&planted));
            assert_eq!((again.status.success(), violations(&again)), (false, said.clone()), "{command:?}");
            let other = output(program, &command[3..], Some(&(case + 1).to_string()));
            assert!(other.status.success(), "{command:?} runs another case too");
            let mended = output(program, &command[3..], None);
            let said = String::from_utf8_lossy(&mended.stderr);
            assert!(mended.status.success(), "{command:?} without the plant: {said}");
        }
    }
}

/// Each habit of a simulated disk matters: an engine, or a file of a system, that does not respect it fails on that disk, and the command of
/// the violation names the disk.
#[test]
fn a_fault_that_breaks_a_habit_is_found() {
    let faults = [
        ("macos", "fsync"),
        ("macos", "barrier"),
        ("macos", "fsync-dir"),
        ("windows", "rename-later"),
        ("windows", "bytes-only"),
        ("windows", "hold-current"),
        ("windows", "open-listed"),
    ];
    let case = ["--points", "70", "--case", "23000000"];
    for (disk, fault) in faults {
        let args = [&["--disk", disk], &case[..]].concat();
        let out = output("crash", &args, Some(fault));
        let said = violations(&out);
        assert!(!out.status.success() && !said.is_empty(), "{fault} is not found");
        assert!(said[0].contains(&format!("`cargo xtask crash {}`", args.join(" "))), "{}", said[0]);
    }
    // These two are found beside a reader, before the first crash.
    for fault in ["hold-current", "open-listed"] {
        let case = ["--points", "5", "--case", "23000000"];
        assert!(output("crash", &case, Some(fault)).status.success(), "Linux allows it: {fault}");
    }
}

/// Returns the violations that a program has printed.
fn violations(out: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&out.stderr);
    said.lines().filter(|line| line.starts_with("VIOLATION")).map(str::to_owned).collect()
}

/// Two ids once named two programs each.
#[test]
fn the_page_lists_every_runner_with_its_own_ids() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/testing/README.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let ids = |cells: &str| cells.split(" | ").next().unwrap().split(", ").map(str::to_owned).collect();
    let listed: BTreeMap<&str, BTreeSet<String>> = rows.map(|(name, cells)| (name, ids(cells))).collect();
    let runners = programs();
    assert_eq!(listed.keys().collect::<Vec<_>>(), runners.iter().collect::<Vec<_>>());
    let mut owners = BTreeMap::new();
    for (name, ids) in &listed {
        for id in ids {
            assert_eq!(owners.insert(id.clone(), name), None, "{id} names two programs");
        }
        let source =
            std::fs::read_to_string(root.join(format!("crates/testkit/src/runners/{name}.rs"))).unwrap();
        let is_id = |word: &&str| word.len() == 3 && word.starts_with('T') && word[1..].parse::<u8>().is_ok();
        let words = source.split(|c: char| !c.is_ascii_alphanumeric());
        let used: BTreeSet<String> = words.filter(is_id).map(str::to_owned).collect();
        let own: BTreeSet<String> = ids.iter().filter(|id| id.starts_with('T')).cloned().collect();
        assert_eq!(used, own, "the ids in {name}.rs");
    }
    // One has a build of its own, and so a command of its own.
    let tables =
        ["stages.rs", "main.rs"].map(|file| std::fs::read_to_string(root.join("xtask/src").join(file)));
    for name in &runners {
        let entry = format!("(\"{name}\", ");
        let is_listed = tables.iter().any(|table| table.as_ref().unwrap().contains(&entry));
        assert!(is_listed, "`cargo xtask {name}` is missing");
    }
}
