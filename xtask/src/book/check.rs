//! The links of the built book, as a browser resolves them.

use crate::cargo::Done;
use crate::install::read;
use crate::pages;
use crate::tree::{join, normal, parent};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Checks each link and picture of each page: its file is there, and has the anchor.
///
/// # Errors
/// All that lead nowhere; an I/O error.
pub(super) fn links(html: &Path) -> Done {
    let files = files(html)?;
    let mut pages = BTreeMap::new();
    for path in files.iter().filter(|path| path.ends_with(".html") && !is_api(path)) {
        pages.insert(path.clone(), read(&html.join(path))?);
    }
    let dead = dead(&files, &pages);
    if dead.is_empty() { Ok(()) } else { Err(format!("links that lead nowhere:\n{}", dead.join("\n"))) }
}

/// Returns the paths of all files below a folder.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn files(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut files = BTreeSet::new();
    collect(root, "", &mut files)?;
    Ok(files)
}

fn is_api(path: &str) -> bool {
    path.strip_prefix(super::API).is_some_and(|rest| rest.starts_with('/'))
}

/// Adds the files below `folder`.
fn collect(root: &Path, folder: &str, files: &mut BTreeSet<String>) -> Done {
    let failed = |error| format!("{}: {error}", root.join(folder).display());
    for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = join(folder, &entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(root, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

/// Returns `page: target` for each link that leads nowhere.
fn dead(files: &BTreeSet<String>, pages: &BTreeMap<String, String>) -> Vec<String> {
    let ids: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path.as_str(), values(text, "id").into_iter().collect())).collect();
    let mut out = BTreeSet::new();
    // The page for a missing address is served at any depth, so its links begin at the root of the site.
    for (path, text) in pages.iter().filter(|(path, _)| *path != "404.html") {
        let targets = ["href", "src"].into_iter().flat_map(|name| values(text, name));
        for target in targets.filter(|target| !is_outside(target)) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { normal(&join(&parent(path), file)) };
            let to = if files.contains(&to) { to } else { join(&to, "index.html") };
            let anchored = anchor.is_empty()
                || is_api(&to)
                || ids.get(to.as_str()).is_some_and(|ids| ids.contains(anchor));
            if !files.contains(&to) || !anchored {
                out.insert(format!("{path}: {target}"));
            }
        }
    }
    out.into_iter().collect()
}

fn is_outside(target: &str) -> bool {
    pages::is_outside(target) || ["data:", "javascript:"].iter().any(|scheme| target.starts_with(scheme))
}

/// Returns the values of an attribute.
fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!(" {name}=\"");
    text.split(&begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let pages = [
            (
                "index.html",
                "<a href=\"api/x/index.html#y\"> <a href=\"api/gone.html\"> <a href=\"a/b.html#x\"> <a href=\"a/\"> <img src=\"x.svg\"> <a href=\"https://e.org\">",
            ),
            (
                "a/b.html",
                "<h1 id=\"x\"> <a href=\"#x\"> <a href=\"../index.html\"> <a href=\"gone.html\"> <a href=\"#y\">",
            ),
            ("a/index.html", "<a href=\"b.html#z\">"),
            ("404.html", "<a href=\"/gone.html\">"),
        ];
        let pages = pages.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        let files: BTreeSet<String> =
            ["index.html", "a/b.html", "a/index.html", "404.html", "x.svg", "api/x/index.html"]
                .map(str::to_owned)
                .into();
        let want =
            ["a/b.html: #y", "a/b.html: gone.html", "a/index.html: b.html#z", "index.html: api/gone.html"];
        assert_eq!(dead(&files, &pages), want);
    }
}
