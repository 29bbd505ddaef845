//! Imports point to lower layers.
//!
//! The order of `mod` lines in a crate's root file is the order of its layers, the lowest first. A module may
//! name only itself and lower layers, in imports and in inline paths. A name that the root re-exports belongs to the layer that
//! defines it. Code compiled for tests only is exempt. There is no other list to maintain, except the table of layers in
//! `ARCHITECTURE.md`, which names the modules of the engine in the same order.
//!
//! One rule does not follow from the order: the modules of [`WRITE_PATH`] name no type that holds the manifest ([`HOLDERS`]), although
//! the manifest itself is in a lower layer.

use super::Finding;
use crate::source::{Path, Source};
use crate::tree::{Crate, Module, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The crate whose layers have a table.
const ENGINE: &str = "crates/tidesdb";
const PAGE: &str = "ARCHITECTURE.md";
/// The head of the table.
const TABLE: &str = "| layer | modules |";

/// Layers of the engine that must not reach the manifest, whatever the order of the layers.
const WRITE_PATH: [&str; 4] = ["context", "read", "write", "txn"];

/// Types through which the manifest is reached.
const HOLDERS: [&str; 3] = ["VersionSet", "MaintenanceCtx", "Engine"];

/// The layers of one crate.
struct House<'a> {
    /// Top-level modules, lowest first.
    floors: Vec<&'a str>,
    /// Names that the root re-exports, and the layer of each.
    exports: BTreeMap<&'a str, usize>,
}

/// A reference from one layer to another.
pub(super) struct Edge {
    /// The file.
    pub path: String,
    /// The line.
    pub line: usize,
    /// The layer that contains the reference.
    pub from: usize,
    /// The layer it refers to.
    pub to: usize,
}

/// Returns the findings of all crates except this one.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut out = sorting(tree);
    out.extend(manifest(tree));
    for krate in tree.crates.iter().filter(|krate| krate.dir.starts_with("crates/")) {
        let Some(house) = House::of(tree, krate) else { continue };
        out.extend(house.findings(tree, krate));
        if krate.dir == ENGINE {
            out.extend(house.undescribed(tree));
        }
    }
    out
}

/// Returns where the write path names what holds the manifest.
fn manifest(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    let layers = WRITE_PATH.map(|layer| format!("crates/tidesdb/src/{layer}/"));
    let is_of_path = |path: &str| layers.iter().any(|layer| path.starts_with(layer));
    for (path, source) in tree.sources.iter().filter(|(path, _)| is_of_path(path)) {
        for named in source.paths().iter().filter(|path| !source.in_test(path.at)) {
            let held = named.names.iter().find(|name| HOLDERS.contains(name));
            out.extend(held.map(|name| {
                Finding::new(
                    path,
                    named.line,
                    format!("`{name}`: the write path does not reach the manifest"),
                )
            }));
        }
    }
    out
}

/// Returns the number of imports that point up.
pub(super) fn upward(tree: &Tree, krate: &Crate) -> usize {
    let Some(house) = House::of(tree, krate) else { return 0 };
    house.edges(tree, krate).iter().filter(|edge| edge.to > edge.from).count()
}

/// Without this setting, rustfmt would sort the `mod` lines, and so the layers, by name.
fn sorting(tree: &Tree) -> Vec<Finding> {
    match tree.texts.get("rustfmt.toml") {
        Some(text) if !text.lines().any(|line| line.trim() == "reorder_modules = false") => {
            vec![Finding::new(
                "rustfmt.toml",
                1,
                "needs `reorder_modules = false`: the order of `mod` lines defines the layers",
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
            let first = path.names.iter().find(|name| !matches!(**name, "crate" | "self"));
            let floor = first.and_then(|first| floors.iter().position(|floor| floor == first));
            if let Some(floor) = floor.filter(|_| !floors.contains(&path.alias)) {
                exports.insert(path.alias, floor);
            }
        }
        Some(House { floors, exports })
    }

    /// Returns the first module in which the table of layers differs from the root of the crate.
    fn undescribed(&self, tree: &Tree) -> Option<Finding> {
        let text = tree.texts.get(PAGE)?;
        let (at, _) = text.lines().enumerate().find(|(_, line)| line.starts_with(TABLE))?;
        let rows = text.lines().skip(at + 2).take_while(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('|').nth(2));
        let listed: Vec<&str> =
            cells.flat_map(str::split_whitespace).map(|name| name.trim_matches('`')).collect();
        let first =
            (0..listed.len().max(self.floors.len())).find(|&i| listed.get(i) != self.floors.get(i))?;
        let name = |list: &[&str]| list.get(first).map_or("nothing".to_owned(), |name| format!("`{name}`"));
        let text =
            format!("the table of layers has {} where `lib.rs` has {}", name(&listed), name(&self.floors));
        Some(Finding::new(PAGE, at + 1, text))
    }

    fn findings(&self, tree: &Tree, krate: &Crate) -> Vec<Finding> {
        let edges = self.edges(tree, krate);
        let upward: BTreeSet<_> = edges
            .iter()
            .filter(|edge| edge.to > edge.from)
            .map(|e| (&e.path, e.line, e.from, e.to))
            .collect();
        let names = |(path, line, from, to): &(&String, usize, usize, usize)| {
            let (from, to) = (self.floors[*from], self.floors[*to]);
            Finding::new(path, *line, format!("`{from}` names `{to}`, which is in a higher layer"))
        };
        let mut out: Vec<_> = upward.iter().map(names).collect();
        let root = krate.root.as_deref().unwrap_or(&krate.dir);
        match self.knot(&edges) {
            Some(knot) => {
                out.push(Finding::new(root, 1, format!("these modules form an import cycle: {knot}")))
            }
            None if !out.is_empty() => out.push(Finding::new(root, 1, self.advice(&edges))),
            None => {}
        }
        out
    }

    /// Returns an order of the layers without imports that point up, as close to the current one as possible.
    fn advice(&self, edges: &[Edge]) -> String {
        let mut order: Vec<usize> = Vec::new();
        let ready = |floor: usize, order: &[usize]| {
            let mut needs = edges.iter().filter(|edge| edge.from == floor);
            !order.contains(&floor) && needs.all(|edge| order.contains(&edge.to))
        };
        while let Some(next) = (0..self.floors.len()).find(|&floor| ready(floor, &order)) {
            order.push(next);
        }
        let names: Vec<_> = order.iter().map(|&floor| self.floors[floor]).collect();
        format!("this order of `mod` lines would be valid: {}", names.join(", "))
    }

    /// Returns every reference from one layer to another, outside of tests.
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

    /// Returns the layer that `path` refers to in module `here`.
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
            // The whole root is treated as the highest layer.
            return self.floors.len().checked_sub(1);
        }
        self.floor(top).or_else(|| self.exports.get(top).copied())
    }

    fn floor(&self, name: &str) -> Option<usize> {
        self.floors.iter().position(|floor| *floor == name)
    }

    /// Returns the smallest import cycle, if there is one.
    fn knot(&self, edges: &[Edge]) -> Option<String> {
        // Each cycle has an import that points up.
        let upward = edges.iter().filter(|edge| edge.to > edge.from);
        let circle = upward.filter_map(|edge| self.way(edges, edge.to, edge.from)).min_by_key(Vec::len)?;
        let names: Vec<_> = circle.iter().chain(circle.first()).map(|&floor| self.floors[floor]).collect();
        Some(names.join(" -> "))
    }

    /// Returns a shortest path between two layers along the imports.
    fn way(&self, edges: &[Edge], from: usize, to: usize) -> Option<Vec<usize>> {
        let mut before = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(floor) = queue.pop_front() {
            if floor == to {
                let step = |floor: &usize| before.get(floor).copied().filter(|_| *floor != from);
                let mut way: Vec<_> = std::iter::successors(Some(to), step).collect();
                way.reverse();
                return Some(way);
            }
            for edge in edges.iter().filter(|edge| edge.from == floor) {
                before.entry(edge.to).or_insert_with(|| {
                    queue.push_back(edge.to);
                    floor
                });
            }
        }
        None
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
            assert_eq!(findings(ROOT, low, ""), ["crates/a/src/low.rs:1", "crates/a/src/lib.rs:1"], "{low}");
        }
    }

    #[test]
    fn a_write_path_that_names_the_manifest_fires() {
        let findings = |path: &str| {
            let code = "use crate::version::{Change, VersionSet}; #[cfg(test)] mod t { use crate::version::VersionSet; }";
            places(&manifest(&tree(&[(path, code)])))
        };
        assert_eq!(findings("crates/tidesdb/src/write/batch.rs"), ["crates/tidesdb/src/write/batch.rs:1"]);
        assert_eq!(findings("crates/tidesdb/src/flush.rs"), [] as [&str; 0]);
    }

    #[test]
    fn a_better_order_is_named() {
        let tree = tree(&[
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/src/lib.rs", "mod a { use crate::c::X; } mod b { use crate::a::X; } mod c {}"),
        ]);
        let advice = "this order of `mod` lines would be valid: c, a, b";
        assert!(check(&tree).iter().any(|finding| finding.text == advice));
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
    fn the_smallest_cycle_is_reported() {
        let tree = tree(&[
            ("crates/a/Cargo.toml", MANIFEST),
            (
                "crates/a/src/lib.rs",
                "mod a { use crate::d::X; } mod b { use crate::{a::X, c::X}; } mod c { use crate::b::X; }
                 mod d { use crate::c::X; }",
            ),
        ]);
        let told: Vec<_> =
            check(&tree).into_iter().filter(|finding| finding.text.contains("cycle")).collect();
        assert_eq!(told.len(), 1);
        assert!(told[0].text.ends_with(": c -> b -> c"), "{}", told[0].text);
    }

    #[test]
    fn the_table_of_layers_names_the_modules_in_order() {
        let page = |first: &str, second: &str| {
            let rows = format!("| low | {first} | x |\n| high | {second} | y |");
            let text = format!(
                "# A\n| layer | modules | purpose |\n| --- | --- | --- |\n{rows}\n\n| other | table |\n"
            );
            let tree = tree(&[
                ("crates/tidesdb/Cargo.toml", MANIFEST),
                ("crates/tidesdb/src/lib.rs", "mod a { } mod b { } #[cfg(test)] mod tests { } mod c { }"),
                ("ARCHITECTURE.md", &text),
            ]);
            places(&check(&tree))
        };
        assert_eq!(page("`a` `b`", "`c`"), [] as [&str; 0]);
        for (first, second) in
            [("`a` `b`", ""), ("`a`", "`c`"), ("`b` `a`", "`c`"), ("`a` `b`", "`c` `gone`")]
        {
            assert_eq!(page(first, second), ["ARCHITECTURE.md:2"], "{first} {second}");
        }
    }

    #[test]
    fn rustfmt_must_not_sort() {
        let fires = |text| !check(&tree(&[("rustfmt.toml", text)])).is_empty();
        assert!(fires("max_width = 110\n"));
        assert!(!fires("max_width = 110\nreorder_modules = false\n"));
    }
}
