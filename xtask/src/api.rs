//! The listing of the public API: `docs/api`, one file for each package, one line for each public item, field, method and implemented
//! trait. It is checked in, so that a review shows each change of the API.
//!
//! The listing is taken from the pages that `cargo doc` writes, because rustdoc has already expanded macros, followed re-exports and
//! left out what is hidden. Another version of rustdoc may write some lines in another way; `cargo xtask api` renews them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cargo::{Cargo, Done, target};

/// Packages with a public API: library, folder of its documentation.
const PACKAGES: [(&str, &str); 4] = [
    ("tidesdb", "tidesdb"),
    ("tidesdb-typed", "tidesdb_typed"),
    ("tidesdb-tokio", "tidesdb_tokio"),
    ("tidesdb-objects", "tidesdb_objects"),
];

/// Implementations that rustdoc derives, of which only these are listed: they decide whether threads can share a value.
const AUTO_TRAITS: [&str; 2] = ["Send", "Sync"];

/// Names that the packages and the standard library give to different types: the listing says which one is meant.
const SHARED: [&str; 2] = ["Error", "Result"];

const HEADER: &str = "\
# The public API, one line for each item, field, method and implemented trait.
# Written by `cargo xtask api`; the stage `docs` of `cargo xtask ci` checks that it is up to date.
";

/// Returns the path of the rendered documentation of the crate whose root is the file `path`, below the folder of [`render`].
pub(crate) fn page_of(path: &str) -> Option<String> {
    let package = path.strip_prefix("crates/")?.strip_suffix("/src/lib.rs")?;
    let (_, folder) = PACKAGES.iter().find(|(known, _)| *known == package)?;
    Some(format!("{folder}/index.html"))
}

/// Renders the documentation of the packages with a public API, and of no other: its search finds what is there. Returns the folder.
///
/// # Errors
/// If the documentation cannot be built.
pub(crate) fn render(root: &Path) -> Result<PathBuf, String> {
    let folder = target(root).join("rendered");
    let packages = PACKAGES.map(|(package, _)| match package {
        "tidesdb" => "-p tidesdb-engine".to_owned(),
        other => format!("-p {other}"),
    });
    let line = format!("doc --no-deps --features tidesdb-typed/json {} --target-dir", packages.join(" "));
    Cargo::new(&line).args(&[folder.display().to_string()]).run(root)?;
    Ok(folder.join("doc"))
}

/// Writes the listings from the documentation.
///
/// # Errors
/// If a page cannot be read or a file cannot be written.
pub(crate) fn write(root: &Path) -> Done {
    for (package, folder) in PACKAGES {
        let path = file(root, package);
        let text = listing(&target(root).join("doc").join(folder))?;
        std::fs::create_dir_all(root.join("docs/api")).map_err(|e| e.to_string())?;
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Compares the listings with the documentation.
///
/// # Errors
/// The lines that differ.
pub(crate) fn check(root: &Path) -> Done {
    let mut changes = Vec::new();
    for (package, folder) in PACKAGES {
        let now = listing(&target(root).join("doc").join(folder))?;
        let path = file(root, package);
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        changes.extend(difference(&before, &now).into_iter().map(|line| format!("{package}: {line}")));
    }
    if changes.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the public API differs from docs/api; run `cargo xtask api` and review:\n{}",
        changes.join("\n")
    ))
}

fn file(root: &Path, package: &str) -> PathBuf {
    root.join("docs/api").join(format!("{package}.txt"))
}

/// Returns the lines that only one of the texts has, each after the item to which it belongs.
fn difference(before: &str, now: &str) -> Vec<String> {
    let (before, now) = (lines_by_item(before), lines_by_item(now));
    let only = |these: &BTreeMap<String, usize>, those: &BTreeMap<String, usize>, sign: char| {
        let more = these.iter().filter(|(line, count)| those.get(*line).is_none_or(|other| other < count));
        more.map(|(line, _)| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    [only(&before, &now, '-'), only(&now, &before, '+')].concat()
}

/// Counts the lines of a listing, each with its item.
fn lines_by_item(text: &str) -> BTreeMap<String, usize> {
    let (mut item, mut lines) = ("", BTreeMap::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if !line.starts_with(' ') {
            item = line;
        }
        let whole = if line == item { line.to_owned() } else { format!("{item}: {}", line.trim()) };
        *lines.entry(whole).or_default() += 1;
    }
    lines
}

/// Lists the items of the package with documentation in `folder`.
fn listing(folder: &Path) -> Result<String, String> {
    let read = |page: &str| {
        let path = folder.join(page);
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    let all = read("all.html")?;
    let mut out = HEADER.to_owned();
    let mut items = 0;
    for link in all.split("<li><a href=\"").skip(1) {
        let Some((page, rest)) = link.split_once("\">").filter(|(page, _)| page.ends_with(".html")) else {
            continue; // a link of the side bar
        };
        let path = text(rest.split_once('<').map_or("", |(path, _)| path));
        let kind = page.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
        out.push_str(&format!("\n{kind} {path}\n"));
        for line in item(&qualify(&read(page)?)) {
            out.push_str(&format!("    {line}\n"));
        }
        items += 1;
    }
    match items {
        0 => Err(format!("{}: no items; has rustdoc changed its pages?", folder.display())),
        _ => Ok(out),
    }
}

/// Lists the declaration of an item, its methods and the traits that it implements.
fn item(page: &str) -> Vec<String> {
    let mut lines = declaration(page);
    let part = |id: &str| between(page, &format!("<h2 id=\"{id}\""), "<h2 id=\"");
    lines.extend(methods(part("implementations")));
    let mut traits = headers(part("trait-implementations"));
    traits.extend(headers(part("foreign-impls")));
    let auto = headers(part("synthetic-implementations"));
    let is_listed = |line: &String| AUTO_TRAITS.iter().any(|name| line.contains(&format!("{name} for ")));
    traits.extend(auto.into_iter().filter(is_listed));
    traits.sort();
    lines.extend(traits);
    lines
}

/// The lines of the declaration: one for each field, variant or method of a trait.
fn declaration(page: &str) -> Vec<String> {
    let mut code = between(page, "item-decl\"><code>", "</code></pre>").replace("</div>", "\n");
    while let Some((before, rest)) = code.split_once("<summary") {
        let after = rest.split_once("</summary>").map_or("", |(_, after)| after);
        code = format!("{before}{after}"); // "Show 12 fields"
    }
    let text = text(&code);
    let mut lines: Vec<String> = Vec::new();
    let mut depth = 0i32;
    for line in
        text.lines().map(str::trim).filter(|line| !matches!(*line, "" | "}") && !line.starts_with("//"))
    {
        // A signature that goes over several lines is one line here.
        match lines.last_mut().filter(|_| depth > 0) {
            Some(last) => *last = one_line(&format!("{last} {line}")),
            None => lines.push(one_line(line)),
        }
        depth += line.matches('(').count() as i32 - line.matches(')').count() as i32;
    }
    lines
}

/// The inherent methods and constants, sorted, each block under its header if that says more than the type.
fn methods(part: &str) -> Vec<String> {
    let mut blocks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for block in part.split("class=\"impl\"").skip(1) {
        let header = headers(block).into_iter().next().unwrap_or_default();
        let header = if header.contains('<') { header } else { String::new() };
        let found = block.split("<h4 class=\"code-header\">").skip(1);
        let found = found.map(|rest| one_line(&text(rest.split_once("</h4>").map_or("", |(code, _)| code))));
        blocks.entry(header).or_default().extend(found);
    }
    let mut lines = Vec::new();
    for (header, mut found) in blocks {
        found.sort();
        let indent = if header.is_empty() { "" } else { "    " };
        lines.extend(Some(header).filter(|header| !header.is_empty()));
        lines.extend(found.iter().map(|line| format!("{indent}{line}")));
    }
    lines
}

/// The headers of implementations.
fn headers(part: &str) -> Vec<String> {
    let found = part.split("<h3 class=\"code-header\">").skip(1);
    found.map(|rest| one_line(&text(rest.split_once("</h3>").map_or("", |(code, _)| code)))).collect()
}

/// The text after `start`, up to `end`; empty if `start` is not there.
fn between<'p>(page: &'p str, start: &str, end: &str) -> &'p str {
    let Some((_, rest)) = page.split_once(start) else { return "" };
    rest.split_once(end).map_or(rest, |(found, _)| found)
}

/// Puts the module before each of the [`SHARED`] names that is of the standard library: `io::Error`, `fmt::Result`. Names of other crates
/// have a link, and so an origin, only if their pages were written earlier.
fn qualify(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    for piece in page.split_inclusive("title=\"") {
        match piece.split_once("\">") {
            Some((title, rest)) if SHARED.iter().any(|name| rest.starts_with(&format!("{name}<"))) => {
                let module = module(title).map_or(String::new(), |module| format!("{module}::"));
                out.push_str(&format!("{title}\">{module}{rest}"));
            }
            _ => out.push_str(piece),
        }
    }
    out
}

/// Returns the module of the standard library that a link leads to, except for the `Result` of the prelude. The title of a link is a kind and
/// a path: `struct std::io::error::Error`.
fn module(title: &str) -> Option<&str> {
    let (_, path) = title.split_once(' ')?;
    match path.split("::").collect::<Vec<_>>()[..] {
        ["core", "result", _] => None,
        ["core" | "std", module, _, ..] => Some(module),
        _ => None,
    }
}

/// The text of a piece of HTML.
fn text(html: &str) -> String {
    let mut out = String::new();
    for (n, piece) in html.split('<').enumerate() {
        let piece = if n == 0 { piece } else { piece.split_once('>').map_or("", |(_, text)| text) };
        out.push_str(piece);
    }
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")];
    entities.iter().fold(out, |out, (entity, text)| out.replace(entity, text))
}

/// A signature on one line, without the mark that rustdoc puts after notable types.
fn one_line(code: &str) -> String {
    let words = code.replace('\u{24d8}', "");
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace("( ", "(").replace(", )", ")").replace(",)", ")").replace(" )", ")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_lines() {
        let page = "<pre class=\"rust item-decl\"><code><div class=\"code-attribute\">#[non_exhaustive]</div>pub struct A&lt;T&gt; {\
            <details><summary class=\"hideme\"><span>Show 2 fields</span></summary>\n    pub b: <a href=\"x\">u8</a>,\n    // private\n\
            </details>}</code></pre><h2 id=\"implementations\"></h2><section class=\"impl\"><h3 class=\"code-header\">impl&lt;T&gt; A&lt;T&gt;</h3>\
            <h4 class=\"code-header\">pub fn c(\n    &amp;self,\n    d: u8,\n) -&gt; u8</h4><h3 id=\"errors\">Errors</h3>\
            <h2 id=\"trait-implementations\"></h2><h3 class=\"code-header\">impl Clone for A</h3>\
            <h2 id=\"synthetic-implementations\"></h2><h3 class=\"code-header\">impl Freeze for A</h3><h3 class=\"code-header\">impl !Send for A</h3>\
            <h2 id=\"blanket-implementations\"></h2><h3 class=\"code-header\">impl Any for A</h3>";
        let wanted = [
            "#[non_exhaustive]",
            "pub struct A<T> {",
            "pub b: u8,",
            "impl<T> A<T>",
            "    pub fn c(&self, d: u8) -> u8",
            "impl !Send for A",
            "impl Clone for A",
        ];
        assert_eq!(item(page), wanted);
    }

    #[test]
    fn a_shared_name_of_the_standard_library_has_its_module() {
        let link = |title: &str, name: &str| format!("<a href=\"x\" title=\"{title}\">{name}</a>");
        let own = link("enum a::Error", "Error");
        for (title, name, wanted) in [
            ("struct std::io::error::Error", "Error", "io::Error"),
            ("type std::io::error::Result", "Result", "io::Result"),
            ("trait core::error::Error", "Error", "error::Error"),
            ("enum b::error::Error", "Error", "Error"),
            ("enum core::result::Result", "Result", "Result"),
            ("struct std::io::Other", "Other", "Other"),
        ] {
            let header = format!("impl From&lt;{own}&gt; for {}", link(title, name));
            assert_eq!(text(&qualify(&header)), format!("impl From<Error> for {wanted}"), "{title}");
        }
    }

    #[test]
    fn a_difference_names_the_item() {
        let before = "# x\n\nstruct A\n    pub fn a()\n\nstruct B\n    pub fn a()\n";
        let now = "# y\n\nstruct A\n    pub fn a()\n\nstruct B\n    pub fn b()\n";
        assert_eq!(difference(before, now), ["- struct B: pub fn a()", "+ struct B: pub fn b()"]);
        assert!(difference(now, now).is_empty());
    }
}
