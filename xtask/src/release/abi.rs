//! Whether programs in C that were built against an earlier version run on this one.

use crate::cargo::{Done, said};
use crate::install::{CRATE, read};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The lists that say what a program in C sees: symbols, and sizes, offsets and constants. The stage `c` compares the library with them.
const SYMBOLS: &str = "c-tests/symbols.txt";
const LAYOUTS: [&str; 2] = ["c-tests/layout.golden", "c-tests/layout32.golden"];

/// Compares the lists with those of the commit `baseline`, or of the newest version that has a tag.
///
/// # Errors
/// What was removed or changed.
pub(super) fn compare(root: &Path, baseline: Option<&str>) -> Done {
    let git = |args: &[&str]| said(Command::new("git").args(args).current_dir(root));
    let newest = || git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~1"]).ok();
    let Some(baseline) = baseline.map(str::to_owned).or_else(newest) else {
        println!("  no version has a tag: there is nothing to compare the C interface with");
        return Ok(());
    };
    let baseline = baseline.trim();
    git(&["rev-parse", "--verify", "--quiet", &format!("{baseline}^{{commit}}")])
        .map_err(|_| format!("there is no commit `{baseline}`"))?;
    let mut broken = Vec::new();
    for list in LAYOUTS.into_iter().chain([SYMBOLS]) {
        let path = format!("{CRATE}/{list}");
        // A list that is newer than the baseline has nothing to be compared with.
        let Ok(old) = git(&["show", &format!("{baseline}:{path}")]) else { continue };
        broken.extend(changed(&old, &read(&root.join(&path))?));
    }
    if broken.is_empty() {
        println!("  the C interface has all of that of {baseline}");
        return Ok(());
    }
    Err(format!(
        "programs in C that were built against {baseline} do not run on this:\n  {}",
        broken.join("\n  ")
    ))
}

/// Returns the lines of `old` that are gone or changed. A structure that begins with its size may grow.
fn changed(old: &str, new: &str) -> Vec<String> {
    let new: BTreeMap<&str, &str> = new.lines().map(split).collect();
    let growing: BTreeSet<&str> = old.lines().filter_map(|line| line.strip_suffix(".size 0")).collect();
    let is_kept = |name: &str, was: &str| match new.get(name) {
        Some(is) if growing.contains(name) => number(is) >= number(was),
        Some(is) => *is == was,
        None => false,
    };
    let broken = old.lines().map(split).filter(|(name, was)| !is_kept(name, was));
    broken.map(|(name, was)| format!("{name}: {was} -> {}", new.get(name).unwrap_or(&"gone"))).collect()
}

fn split(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_were_built_against_stays() {
        let old = "grows_t 16\ngrows_t.size 0\ngrows_t.flags 8\nfixed_t 8\nfixed_t.a 0\nCODE -3\nopen\ndata data 4\n";
        assert_eq!(changed(old, old), [""; 0]);
        let more = format!("{}grows_t.more 16\nclose\n", old.replace("grows_t 16", "grows_t 24"));
        assert_eq!(changed(old, &more), [""; 0]);
        for (from, to, what) in [
            ("grows_t 16", "grows_t 8", "grows_t: 16 -> 8"),
            ("flags 8", "flags 12", "grows_t.flags: 8 -> 12"),
            ("fixed_t 8", "fixed_t 16", "fixed_t: 8 -> 16"),
            ("CODE -3", "CODE -4", "CODE: -3 -> -4"),
            ("open\n", "", "open:  -> gone"),
            ("data data 4", "data data 8", "data: data 4 -> data 8"),
        ] {
            assert_eq!(changed(old, &old.replace(from, to)), [what]);
        }
    }

    /// The lists are where they are looked for, and a commit is equal to itself.
    #[test]
    fn the_lists_of_this_tree_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for list in LAYOUTS.into_iter().chain([SYMBOLS]) {
            let text = read(&root.join(CRATE).join(list)).expect("a list");
            assert!(text.lines().count() > 100 && changed(&text, &text).is_empty(), "{list}");
        }
    }
}
