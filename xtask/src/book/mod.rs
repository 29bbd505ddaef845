//! `cargo xtask book`: the pages of `docs` as a book.
//!
//! The pages are written for readers of the repository, whose links lead out of `docs`. So the book is built from a copy in which such links
//! lead to copies in the book ([`copy`]), and its links are checked once more as a browser resolves them ([`check`]). Each page is in the
//! output as Markdown too, and `llms.txt` lists these. The folder [`API`] has the Rust API, as rustdoc renders it.

mod copy;
mod check;
mod plain;

use crate::api;
use crate::cargo::{Done, said, target};
use crate::install::{copy as copy_file, remove, write};
use crate::pages::samples::{Fate, samples};
use crate::pages::summary;
use crate::tools::Tool;
use crate::tree::Tree;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the rendered API. Rustdoc checks the links in it.
const API: &str = "api";

/// The version that the book is written for.
const MDBOOK: Tool =
    Tool { name: "mdbook", version: "0.5.4", flags: "--no-default-features --features search" };

/// Runs the command.
///
/// # Errors
/// A wrong argument; what fails, or dead links of the book.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let tree = || Tree::read(root).map_err(|error| format!("cannot list {}: {error}", root.display()));
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => build(root, &tree()?).map(|page| println!("{}", page.display())),
        ["--open"] => open(&build(root, &tree()?)?),
        ["--samples"] => {
            print!("{}", list(&tree()?));
            Ok(())
        }
        _ => Err("usage: cargo xtask book [--open | --samples]".to_owned()),
    }
}

/// Builds the book and returns its first page.
fn build(root: &Path, tree: &Tree) -> Result<PathBuf, String> {
    let folder = target(root).join("book");
    let (source, html) = (folder.join("src"), folder.join("html"));
    remove(&folder)?;
    let book = copy::Book::of(tree);
    book.write(root, &source)?;
    let mdbook = MDBOOK.install(root)?;
    let mut command = Command::new(&mdbook);
    command.arg("build").arg(root).arg("--dest-dir").arg(&html).env("MDBOOK_BOOK__SRC", &source);
    print!("{}", said(&mut command)?);
    for (path, text) in &book.pages {
        write(&html.join(path), &plain::page(text))?;
    }
    let entries = summary::entries(summary::list(tree));
    write(&html.join("llms.txt"), &plain::index(&entries, &book))?;
    let api = api::render(root)?;
    for file in check::files(&api)? {
        copy_file(&api.join(&file), &html.join(API).join(&file), 0o644)?;
    }
    check::links(&html)?;
    Ok(html.join("index.html"))
}

/// Returns why the book cannot be built without an installation, if it cannot.
pub(crate) fn hindrance(root: &Path) -> Option<String> {
    let missing = MDBOOK.installed(root).is_none();
    missing.then(|| format!("no mdbook {} in target/tools: cargo xtask book installs it", MDBOOK.version))
}

/// Shows a page in the browser of the user.
fn open(page: &Path) -> Done {
    let program = match std::env::consts::OS {
        "windows" => "explorer",
        "macos" => "open",
        _ => "xdg-open",
    };
    println!("{}", page.display());
    // The explorer of Windows ends with 1 if all went well.
    Command::new(program)
        .arg(page)
        .status()
        .map(drop)
        .map_err(|error| format!("cannot start {program}: {error}"))
}

/// Returns each sample with its test, and the counts.
fn list(tree: &Tree) -> String {
    let (mut out, mut tested, mut untested) = (String::new(), 0, 0);
    for sample in samples(tree) {
        let fate = match &sample.fate {
            Fate::Tested(test) => {
                tested += 1;
                test.clone()
            }
            Fate::Untested(reason) => {
                untested += 1;
                format!("not run: {reason}")
            }
            Fate::Unknown => "nothing runs it, and nothing says why".to_owned(),
        };
        out += &format!("{}:{}: {} -> {fate}\n", sample.page, sample.line, sample.language);
    }
    out + &format!("{tested} samples have a test, {untested} say why they have none\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_the_test_or_the_reason() {
        let files = [
            ("docs/a.md", "```rust\n```\n```sh (needs root)\n```"),
            ("crates/k/src/lib.rs", "#[doc = include_str!(\"../../../docs/a.md\")] struct A;"),
        ];
        let tree = Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
        let want = "docs/a.md:1: rust -> doc test of crates/k/src/lib.rs\ndocs/a.md:3: sh -> not run: needs root\n\
                    1 samples have a test, 1 say why they have none\n";
        assert_eq!(list(&tree), want);
    }
}
