//! Runs what docs/how-to/replicate.md shows of a shell.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the blocks for a shell of a page, in their order.
fn blocks(page: &str) -> Vec<&str> {
    page.split("\n```sh")
        .skip(1)
        .filter_map(|rest| rest.split_once('\n')?.1.split_once("\n```"))
        .map(|(block, _)| block)
        .collect()
}

#[test]
fn the_blocks_of_the_page_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let page = std::fs::read_to_string(root.join("docs/how-to/replicate.md")).expect("the page");
    let blocks = blocks(&page);
    assert_eq!(blocks.len(), 4);
    let dir = tempfile::tempdir().expect("a folder");
    // The program is built already, and elsewhere. Whatever happens, no process is left.
    let mut script = String::from("set -eu\ntrap 'kill -9 $(cat node-*.pid) 2> /dev/null || true' EXIT\n");
    for (at, block) in blocks.iter().enumerate() {
        let lines = block.lines().filter(|line| !line.starts_with("cargo build"));
        let lines = lines.map(|line| match line.strip_prefix("kv=") {
            Some(_) => format!("kv='{}'", env!("CARGO_BIN_EXE_kv")),
            None => line.to_owned(),
        });
        script += &format!("echo; echo '== block {at}'\n{}\n", lines.collect::<Vec<_>>().join("\n"));
    }
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(dir.path()).stdin(Stdio::null());
    let output = bash.output().expect("bash");
    let said = String::from_utf8_lossy(&output.stdout);
    let failures = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}\n{failures}");
    let parts: Vec<&str> = said.split("== block ").collect();
    let [_, _, first, death, lost] = parts[..] else { panic!("{said}") };
    assert!(first.ends_with("blue\n") || first.contains("blue"), "{said}");
    assert!(death.contains("blue") && death.contains("\"leader\""), "{said}");
    assert!(lost.contains("\"voters\":[1,2,4]"), "{said}");
}
