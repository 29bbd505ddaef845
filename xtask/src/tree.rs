//! The files of the repository, its crates, and the module of each source file.
//!
//! Checks access only a [`Tree`], so a test can build one from a few lines of text.

use crate::source::Source;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// All text files by path, relative to the root of the repository, with `/` between folders.
#[derive(Default)]
pub(crate) struct Tree {
    /// Files other than Rust sources.
    pub texts: BTreeMap<String, String>,
    /// Rust sources.
    pub sources: BTreeMap<String, Source>,
    /// Crates, in order of their paths.
    pub crates: Vec<Crate>,
    /// Paths of all files, text or not.
    pub paths: Vec<String>,
}

/// A package.
pub(crate) struct Crate {
    /// Folder of its manifest, relative to the root.
    pub dir: String,
    /// The file that declares its top-level modules: `lib.rs`, else `main.rs`.
    pub root: Option<String>,
    /// Sources that are reached by a `mod` line or by Cargo.
    pub modules: BTreeMap<String, Module>,
}

/// The role of a source file in its crate.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// Names from the crate root; empty for the root.
    pub path: Vec<String>,
    /// True if it belongs to the crate's own root file, false for a test, example or benchmark.
    pub main: bool,
    /// True if it is compiled for tests only.
    pub test: bool,
}

impl Tree {
    /// Reads the files that Git tracks or would track; without Git, all but `target` and hidden folders.
    ///
    /// # Errors
    /// If the root cannot be listed. Files that are not UTF-8 are left out.
    pub(crate) fn read(root: &Path) -> std::io::Result<Tree> {
        let paths = match git_files(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let read = |path: &String| Some((path.clone(), std::fs::read_to_string(root.join(path)).ok()?));
        let files: Vec<_> = paths.iter().filter_map(read).collect();
        Ok(Tree { paths, ..Tree::of(files) })
    }

    /// Creates a tree of these files.
    pub(crate) fn of(files: Vec<(String, String)>) -> Tree {
        let mut tree =
            Tree { paths: files.iter().map(|(path, _)| path.clone()).collect(), ..Tree::default() };
        for (path, text) in files {
            if path.ends_with(".rs") {
                tree.sources.insert(path, Source::new(text));
            } else {
                tree.texts.insert(path, text);
            }
        }
        let manifests = tree.texts.iter().filter(|(path, text)| {
            Path::new(path).file_name().is_some_and(|name| name == "Cargo.toml") && text.contains("[package]")
        });
        let dirs: Vec<_> = manifests.map(|(path, _)| parent(path)).collect();
        tree.crates = dirs.into_iter().map(|dir| tree.outline(dir)).collect();
        tree
    }

    /// Returns the crate whose folder contains `path`.
    pub(crate) fn crate_of(&self, path: &str) -> Option<&Crate> {
        let holds = |krate: &&Crate| path.strip_prefix(&krate.dir).is_some_and(|rest| rest.starts_with('/'));
        self.crates.iter().filter(holds).max_by_key(|krate| krate.dir.len())
    }

    /// Returns whether `path` is compiled for tests, examples or benchmarks only.
    pub(crate) fn is_test_file(&self, path: &str) -> bool {
        let Some(krate) = self.crate_of(path) else { return false };
        krate.modules.get(path).is_some_and(|module| module.test)
    }

    fn outline(&self, dir: String) -> Crate {
        let lib = join(&dir, "src/lib.rs");
        let main = join(&dir, "src/main.rs");
        let root = [lib, main].into_iter().find(|path| self.sources.contains_key(path));
        let roots: Vec<_> = self.sources.keys().filter(|path| self.is_crate_root(&dir, path)).collect();
        let mut krate = Crate { dir, root, modules: BTreeMap::new() };
        for path in roots {
            let inside = &path[krate.dir.len() + 1..];
            let test = !inside.starts_with("src/") && inside != "build.rs";
            let module = Module { path: Vec::new(), main: Some(path) == krate.root.as_ref(), test };
            self.follow(path, &parent(path), module, &mut krate);
        }
        krate
    }

    /// Returns whether Cargo compiles `path` as its own crate.
    fn is_crate_root(&self, dir: &str, path: &str) -> bool {
        let Some(inside) = path.strip_prefix(dir).and_then(|rest| rest.strip_prefix('/')) else {
            return false;
        };
        let named = format!("path = \"{inside}\"");
        if self.texts.get(&join(dir, "Cargo.toml")).is_some_and(|manifest| manifest.contains(&named)) {
            return true;
        }
        let parts: Vec<_> = inside.split('/').collect();
        matches!(
            parts.as_slice(),
            ["build.rs"]
                | ["src", "lib.rs" | "main.rs"]
                | ["src", "bin", _]
                | ["src", "bin", _, "main.rs"]
                | ["tests" | "examples" | "benches", _]
                | ["tests" | "examples" | "benches", _, "main.rs"]
        )
    }

    /// Records `path` and all files reached from its `mod` lines. `dir` is the folder of its child modules.
    fn follow(&self, path: &str, dir: &str, module: Module, krate: &mut Crate) {
        let Some(source) = self.sources.get(path) else { return };
        if let Some(known) = krate.modules.get_mut(path) {
            known.test &= module.test;
            return;
        }
        krate.modules.insert(path.to_owned(), module.clone());
        let mods = source.mods();
        for declared in mods.iter().filter(|declared| declared.body.is_none()) {
            let around =
                mods.iter().filter(|m| m.body.as_ref().is_some_and(|body| body.contains(&declared.at)));
            let inline: Vec<_> = around.map(|m| m.name.to_owned()).collect();
            let mut folder = dir.to_owned();
            let mut child = module.clone();
            child.test |= source.in_test(declared.at);
            for name in inline {
                folder = join(&folder, &name);
                child.path.push(name);
            }
            child.path.push(declared.name.to_owned());
            let below = join(&folder, declared.name);
            for file in declared.paths.iter().map(|file| normal(&join(&parent(path), file))) {
                self.follow(&file, &parent(&file), child.clone(), krate);
            }
            self.follow(&format!("{below}.rs"), &below, child.clone(), krate);
            self.follow(&join(&below, "mod.rs"), &below, child, krate);
        }
    }
}

/// Returns the folder of a path; empty at the root.
pub(crate) fn parent(path: &str) -> String {
    path.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_owned())
}

/// Returns `dir/name`, or `name` if `dir` is the root.
pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// Returns the path without `.` and `..`.
pub(crate) fn normal(path: &str) -> String {
    let mut out = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out.to_string_lossy().replace('\\', "/")
}

/// Returns the sorted paths of the files that git tracks or would add. `None` without git.
pub(crate) fn git_files(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let output = git.output().ok().filter(|output| output.status.success())?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut paths: Vec<_> = listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    paths.retain(|path| root.join(path).is_file());
    Some(paths)
}

fn walk(root: &Path) -> std::io::Result<Vec<String>> {
    let mut out = Vec::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = join(&dir, &name);
            let kind = entry.file_type()?;
            if kind.is_file() {
                out.push(path);
            } else if kind.is_dir()
                && (!name.starts_with('.') || matches!(&*name, ".ci" | ".github"))
                && !name.starts_with("target")
            {
                todo.push(path);
            }
        }
    }
    out.sort();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn modules_are_followed_from_every_root() {
        let tree = tree(&[
            ("crates/a/Cargo.toml", "[package]\n[[bin]]\npath = \"odd/p.rs\""),
            ("crates/a/src/lib.rs", "mod b; #[cfg(test)] mod tests; #[cfg_attr(x, path = \"y.rs\")] mod z;"),
            ("crates/a/src/b/mod.rs", "mod c { mod d; }"),
            ("crates/a/src/b/c/d.rs", ""),
            ("crates/a/src/tests.rs", "mod deep;"),
            ("crates/a/src/tests/deep.rs", ""),
            ("crates/a/src/y.rs", ""),
            ("crates/a/src/z.rs", ""),
            ("crates/a/src/lost.rs", ""),
            ("crates/a/tests/t.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/odd/p.rs", ""),
        ]);
        let modules = &tree.crates[0].modules;
        let path = |file: &str| modules[file].path.join("::");
        assert_eq!(path("crates/a/src/b/c/d.rs"), "b::c::d");
        assert_eq!(path("crates/a/src/tests/deep.rs"), "tests::deep");
        assert_eq!((path("crates/a/src/y.rs"), path("crates/a/src/z.rs")), ("z".into(), "z".into()));
        assert!(modules.contains_key("crates/a/odd/p.rs"));
        assert!(!modules.contains_key("crates/a/src/lost.rs"));
        assert!(tree.is_test_file("crates/a/src/tests/deep.rs"));
        assert!(tree.is_test_file("crates/a/tests/common/mod.rs"));
        assert!(!tree.is_test_file("crates/a/src/b/mod.rs"));
    }

    #[test]
    fn paths_are_normalized() {
        assert_eq!(normal("a/./b/../c.md"), "a/c.md");
        assert_eq!(parent("x.md"), "");
        assert_eq!(join("", "x"), "x");
    }
}
