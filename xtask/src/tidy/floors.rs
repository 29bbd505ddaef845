//! Imports point down.
//!
//! The order of `mod` lines in a crate's root file is the order of its floors, the lowest first. A module may
//! name its own and lower floors only, in imports and in inline paths alike; a name that the root re-exports
//! counts as the floor it comes from. Code compiled for tests only is free. There is no other list to keep.

use super::Finding;
use crate::source::{Path, Source};
use crate::tree::{Crate, Module, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The floors of one crate.
struct House<'a> {
    /// Top-level modules, lowest first.
    floors: Vec<&'a str>,
    /// Names that the root re-exports, and the floor of each.
    exports: BTreeMap<&'a str, usize>,
}

/// One floor naming another.
pub(super) struct Edge {
    /// The file.
    pub path: String,
    /// The line.
    pub line: usize,
    /// The floor that names.
    pub from: usize,
    /// The floor that is named.
    pub to: usize,
}

/// Findings of all crates but this one.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = sorting(tree);
    for krate in tree.crates.iter().filter(|krate| krate.dir.starts_with("crates/")) {
        let Some(house) = House::of(tree, krate) else { continue };
        let edges = house.edges(tree, krate);
        for edge in edges.iter().filter(|edge| edge.to > edge.from) {
            let text = format!(
                "`{}` names `{}`, which stands on a higher floor",
                house.floors[edge.from], house.floors[edge.to]
            );
            out.push(Finding::new(&edge.path, edge.line, text));
        }
        if let (Some(root), Some(knot)) = (&krate.root, house.knot(&edges)) {
            out.push(Finding::new(root, 1, format!("these modules name each other in a circle: {knot}")));
        }
    }
    out
}

/// Number of imports that point up.
pub(super) fn upward(tree: &Tree, krate: &Crate) -> usize {
    let Some(house) = House::of(tree, krate) else { return 0 };
    house.edges(tree, krate).iter().filter(|edge| edge.to > edge.from).count()
}

/// rustfmt would sort the `mod` lines, and so the floors, by name.
fn sorting(tree: &Tree) -> Vec<Finding> {
    match tree.texts.get("rustfmt.toml") {
        Some(text) if !text.lines().any(|line| line.trim() == "reorder_modules = false") => {
            vec![Finding::new(
                "rustfmt.toml",
                1,
                "needs `reorder_modules = false`: the order of `mod` lines has a meaning",
            )]
        }
        _ => Vec::new(),
    }
}

impl<'a> House<'a> {
    fn of(tree: &'a Tree, krate: &Crate) -> Option<House<'a>> {
        let root = tree.sources.get(krate.root.as_ref()?)?;
        let mods = root.mods();
        let nested = |at: usize| mods.iter().any(|m| m.body.as_ref().is_some_and(|body| body.contains(&at)));
        let top = mods.iter().filter(|m| !root.in_test(m.at) && !nested(m.at));
        let floors: Vec<_> = top.map(|m| m.name).collect();
        let mut exports = BTreeMap::new();
        for path in root.paths().iter().filter(|path| path.import) {
            let names = path.names.iter().filter(|name| !matches!(**name, "crate" | "self"));
            if let Some(floor) = names.clone().next().and_then(|first| floors.iter().position(|f| f == first))
            {
                if !floors.contains(&path.alias) {
                    exports.insert(path.alias, floor);
                }
            }
        }
        Some(House { floors, exports })
    }

    /// Every mention of a floor by another one, outside of tests.
    fn edges(&self, tree: &Tree, krate: &Crate) -> Vec<Edge> {
        let mut out = Vec::new();
        for (file, module) in krate.modules.iter().filter(|(_, module)| module.main && !module.test) {
            self.edges_of(file, module, &tree.sources[file], &mut out);
        }
        out
    }

    fn edges_of(&self, file: &str, module: &Module, source: &Source, out: &mut Vec<Edge>) {
        let mods = source.mods();
        for path in source.paths().iter().filter(|path| !source.in_test(path.at)) {
            let around = mods.iter().filter(|m| m.body.as_ref().is_some_and(|body| body.contains(&path.at)));
            let mut here: Vec<_> = module.path.iter().map(String::as_str).collect();
            here.extend(around.map(|m| m.name));
            let Some(from) = here.first().and_then(|top| self.floor(top)) else { continue };
            if let Some(to) = self.target(&here, path).filter(|to| *to != from) {
                out.push(Edge { path: file.to_owned(), line: path.line, from, to });
            }
        }
    }

    /// The floor that `path` means when it is written in module `here`.
    fn target(&self, here: &[&str], path: &Path<'_>) -> Option<usize> {
        let mut base = match *path.names.first()? {
            "crate" => Vec::new(),
            "self" | "super" => here.to_vec(),
            _ => return None,
        };
        for name in path.names.iter().skip_while(|name| matches!(**name, "crate" | "self")) {
            if *name == "super" {
                base.pop();
            } else {
                base.push(name);
            }
        }
        let top = *base.first()?;
        if top == "*" {
            // The whole root, so the highest floor.
            return self.floors.len().checked_sub(1);
        }
        self.floor(top).or_else(|| self.exports.get(top).copied())
    }

    fn floor(&self, name: &str) -> Option<usize> {
        self.floors.iter().position(|floor| *floor == name)
    }

    /// The modules that reach each other both ways, if there are any.
    fn knot(&self, edges: &[Edge]) -> Option<String> {
        let mut reach: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.floors.len()];
        for edge in edges {
            reach[edge.from].insert(edge.to);
        }
        // Floors are few: close the relation by brute force.
        for middle in 0..reach.len() {
            for from in 0..reach.len() {
                if reach[from].contains(&middle) {
                    let more = reach[middle].clone();
                    reach[from].extend(more);
                }
            }
        }
        let knot: Vec<_> =
            (0..reach.len()).filter(|&i| reach[i].contains(&i)).map(|i| self.floors[i]).collect();
        (!knot.is_empty()).then(|| knot.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::{MANIFEST, places, tree};
    use super::*;

    fn findings(root: &str, low: &str, high: &str) -> Vec<String> {
        places(&check(&tree(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", root),
            ("crates/a/src/low.rs", low),
            ("crates/a/src/high.rs", high),
        ])))
    }

    const ROOT: &str = "mod low; mod high; pub use high::High; pub use low::{Low, inner as renamed};";

    #[test]
    fn downward_is_silent() {
        let high = "use crate::low::Low; use crate::{Low, renamed}; fn f() { super::low::g(); self::h::i() }";
        assert_eq!(findings(ROOT, "use std::io; fn f() { crate::low::g() }", high), [] as [&str; 0]);
    }

    #[test]
    fn upward_fires_in_every_spelling() {
        for low in [
            "use crate::high::High;",
            "use crate::{low::Low, high::{self}};",
            "use crate::High;",
            "use super::high;",
            "mod deep { use super::super::high::High; }",
            "fn f() -> crate::high::High { todo() }",
            "fn f() { m!(crate::High::new()) }",
            "use crate::*;",
        ] {
            assert_eq!(findings(ROOT, low, ""), ["crates/a/src/low.rs:1"], "{low}");
        }
    }

    #[test]
    fn tests_and_visibility_are_free() {
        let low = "pub(in crate::high) fn f() {} #[cfg(test)] mod tests { use crate::high::High; }";
        assert_eq!(findings(ROOT, low, ""), [] as [&str; 0]);
        assert_eq!(
            findings("#[cfg(test)] mod low; mod high;", "use crate::high::High;", ""),
            [] as [&str; 0]
        );
    }

    #[test]
    fn a_circle_is_told_once() {
        let found = findings(ROOT, "use crate::high::High;", "use crate::low::Low;");
        assert_eq!(found, ["crates/a/src/low.rs:1", "crates/a/src/lib.rs:1"]);
    }

    #[test]
    fn rustfmt_must_not_sort() {
        let fires = |text| !check(&tree(&[("rustfmt.toml", text)])).is_empty();
        assert!(fires("max_width = 110\n"));
        assert!(!fires("max_width = 110\nreorder_modules = false\n"));
    }
}
