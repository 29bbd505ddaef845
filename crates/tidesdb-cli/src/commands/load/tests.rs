use super::super::stage::Stage;
use super::*;

fn load(stage: &Stage, name: &str, content: &[u8], more: &[&str]) -> Result<String, Failure> {
    let path = stage.file(name, content);
    let words = [&["load", path.to_str().unwrap()][..], more].concat();
    stage.try_run(&words, false).map(|(_, out)| out)
}

#[test]
fn each_format_by_its_extension() {
    let stage = Stage::new();
    load(&stage, "a.tsv", b"t\\t\tv\tw\n", &[]).unwrap();
    load(&stage, "a.csv", b"key,value\nc,\"x\"\"y\"\n", &[]).unwrap();
    load(&stage, "a.jsonl", b"{\"key\":\"j\",\"value\":\"\\u0001\"}\n", &[]).unwrap();
    load(&stage, "cities.csv", b"name,n\nOslo,7\n", &["--key-column", "name", "--value-column", "n"])
        .unwrap();
    load(&stage, "people.ndjson", b"{\"id\":5}\n", &["--key", "id"]).unwrap();
    load(&stage, "raw", b"C:\\x\t\\\n", &["--format", "tsv", "--no-escapes"]).unwrap();
    load(&stage, "plain.csv", b"p,q\n", &["--no-header"]).unwrap();
    let expected = "5\t{\"id\":5}\nC:\\\\x\t\\\\\nOslo\t7\nc\tx\"y\nj\t\x01\np\tq\nt\\t\tv\tw\n";
    assert_eq!(stage.run(&["scan"]), expected);
}

/// A carriage return is a byte of the value, as the format says. A file in which all rows have one was written on Windows.
#[test]
fn lines_that_end_as_on_windows_are_noticed() {
    let stage = Stage::new();
    let remark = |content: &[u8], more: &[&str]| {
        load(&stage, "a.tsv", content, more).unwrap().contains("every value ends with a carriage return")
    };
    assert!(remark(b"a\t1\r\nb\t2\r\n", &[]));
    assert_eq!(stage.run(&["get", "a"]), "1\r");
    assert!(!remark(b"a\t1\r\nb\t2\n", &[]));
    assert!(!remark(b"", &[]));
    assert!(!remark(b"a\t1\r\nb\t2\r\n", &["--crlf"]));
    assert_eq!(stage.run(&["scan"]), "a\t1\nb\t2\n");
    let refused = load(&stage, "a.csv", b"key,value\r\n", &["--crlf"]).unwrap_err();
    assert!(refused.message().contains("--crlf is for TSV"), "{}", refused.message());
}

/// Numbers were converted to floating point: these two keys became one, and the second row replaced the first.
#[test]
fn rows_whose_keys_are_long_numbers_stay_apart() {
    let stage = Stage::new();
    let content = b"{\"id\":18446744073709551616,\"n\":1.0}\n{\"id\":18446744073709551617,\"n\":1e3}\n{\"id\":-0,\"n\":-0}\n";
    let told = load(&stage, "a.jsonl", content, &["--key", "id", "--value", "n"]).unwrap();
    assert!(!told.contains("replaced"), "{told}");
    assert_eq!(stage.run(&["scan"]), "-0\t-0\n18446744073709551616\t1.0\n18446744073709551617\t1e3\n");
}

#[test]
fn replaced_values_are_counted_and_the_last_wins() {
    let stage = Stage::with(&["m"]);
    let mut content: Vec<String> = (0..3000).map(|n| format!("k{:04}\t{n}\n", n % 2500)).collect();
    content.push("m\tnew\nz\t1\nz\t2\n".to_owned());
    let out = load(&stage, "a.tsv", content.concat().as_bytes(), &["--json"]).unwrap();
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told["rows"], &told["replaced"]), (&3003.into(), &502.into()));
    assert_eq!(stage.run(&["get", "k0001"]), "2501");
    assert_eq!(stage.run(&["get", "z"]), "2");
    assert_eq!(stage.run(&["scan", "-c"]), "2502\n");
}

#[test]
fn a_bad_row_is_reported_or_skipped() {
    let stage = Stage::new();
    let content = b"a\t1\n\tempty key\nb\t2\nno tab\nc\t3\n";
    let failure = load(&stage, "a.tsv", content, &[]).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message().contains("a.tsv, line 2: "), "{}", failure.message());
    let out = load(&stage, "a.tsv", content, &["--skip-bad"]).unwrap();
    assert!(out.contains("2 malformed rows skipped, the first in line 2: "), "{out}");
    assert_eq!(stage.run(&["scan", "-k"]), "a\nb\nc\n");
}

#[test]
fn the_number_of_rows_loaded_before_a_bad_one_is_reported() {
    let stage = Stage::new();
    let mut content: String = (0..2500).map(|n| format!("{n:05}\tv\n")).collect();
    content.push_str("bad\n");
    let failure = load(&stage, "a.tsv", content.as_bytes(), &[]).unwrap_err();
    assert!(failure.message().contains("line 2501"), "{}", failure.message());
    let kept = stage.run(&["scan", "-c"]);
    let told = format!("loaded before it: {} rows", crate::text::grouped(kept.trim().parse().unwrap()));
    assert!(failure.message().contains(&told), "{} / {kept}", failure.message());
}

#[test]
fn large_values_fill_a_batch_by_bytes() {
    let stage = Stage::new();
    let value = "x".repeat(1 << 20);
    let content: String = (0..9).map(|n| format!("{n}\t{value}\n")).collect();
    load(&stage, "a.tsv", content.as_bytes(), &[]).unwrap();
    assert_eq!(stage.run(&["scan", "-c"]), "9\n");
}

#[test]
fn wrong_options_are_reported_before_anything_is_read() {
    let stage = Stage::new();
    for (name, more) in [
        ("a.txt", &[][..]),
        ("a.tsv", &["--key", "x"]),
        ("a.tsv", &["--no-header"]),
        ("a.csv", &["--no-escapes"]),
        ("a.csv", &[]),
        ("a.csv", &["--key", "nothing"]),
    ] {
        assert_eq!(load(&stage, name, b"a,b\nc,d\n", more).unwrap_err().exit, Exit::Usage, "{name} {more:?}");
    }
    assert_eq!(stage.fails(&["load", "--format", "tsv", "/nonexistent"]).exit, Exit::Failed);
    assert_eq!(
        stage.fails(&["load", "--format", "tsv", stage.dir.path().to_str().unwrap()]).exit,
        Exit::Usage
    );
}
