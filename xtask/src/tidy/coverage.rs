//! Every function of the Rust API has a line in the table of its C functions and one in that of its Python calls, which name one or say why there is
//! none. Every function of the extended C interface is in its table and on the page of the C library; every call of the Python package is in its table.

use super::Finding;
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The listing of the Rust API.
const API: &str = "docs/api/tidesdb.txt";
/// The table of C functions.
const TABLE: &str = "docs/reference/c-coverage.txt";
/// The symbols of the C library.
const SYMBOLS: &str = "crates/tidesdb-capi/c-tests/symbols.txt";
/// The page of the C library.
const PAGE: &str = "docs/reference/c-api.md";
/// The table of Python calls.
const PYTHON: &str = "docs/reference/python-coverage.txt";
/// The classes and functions of Python.
const STUB: &str = "bindings/python/python/tidesdb/__init__.pyi";
/// Functions of the extended interface begin with this.
const EXTENDED: &str = "tidesdb_x_";

/// Findings in the tables and on the page.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let text = |path: &str| tree.texts.get(path).map(String::as_str);
    let Some(api) = text(API) else { return Vec::new() };
    let items = items(api);
    let mut out = Vec::new();
    if let (Some(table), Some(symbols), Some(page)) = (text(TABLE), text(SYMBOLS), text(PAGE)) {
        let functions: BTreeSet<&str> = symbols.lines().filter(|line| !line.contains(' ')).collect();
        let mut rows = Rows::of(TABLE, table);
        rows.compare(
            &items,
            |function| functions.contains(function),
            "the C library has no function",
            &mut out,
        );
        for function in functions.iter().filter(|function| function.starts_with(EXTENDED)) {
            if !rows.functions.contains_key(function) {
                out.push(Finding::new(TABLE, 1, format!("{function} is in no line")));
            }
            if !page.contains(&format!("`{function}`")) {
                out.push(Finding::new(PAGE, 1, format!("`{function}` is not on the page")));
            }
        }
    }
    if let (Some(table), Some(stub)) = (text(PYTHON), text(STUB)) {
        let calls = calls(stub);
        let mut rows = Rows::of(PYTHON, table);
        rows.compare(&items, |call| calls.contains(call), "the Python package has no", &mut out);
        let named = |call: &String| {
            let class = call.split_once('.').map(|(class, _)| format!("{class}.*"));
            rows.functions.contains_key(&**call)
                || class.is_some_and(|all| rows.functions.contains_key(&*all))
        };
        out.extend(
            calls
                .iter()
                .filter(|call| !call.ends_with('*') && !named(call))
                .map(|call| Finding::new(PYTHON, 1, format!("{call} is in no line"))),
        );
    }
    out
}

/// Returns the functions of a stub and the public methods of its public classes as `Class.method`, those of private bases included; and
/// `Class.*` for each class with some.
fn calls(stub: &str) -> BTreeSet<String> {
    let mut classes: BTreeMap<&str, (Vec<&str>, BTreeSet<&str>)> = BTreeMap::new();
    let (mut out, mut of) = (BTreeSet::new(), None);
    let name_of = |line: &str| -> Option<usize> { line.find(['(', '[', ':']) };
    for line in stub.lines() {
        if let Some(class) = line.strip_prefix("class ") {
            let name = &class[..name_of(class).unwrap_or(class.len())];
            let bases = class.split(['(', ')']).nth(1).unwrap_or_default();
            classes.entry(name).or_default().0 = bases.split(", ").collect();
            of = Some(name);
        } else if let Some(function) = line.strip_prefix("def ") {
            out.insert(function[..name_of(function).unwrap_or(function.len())].to_owned());
        } else if let (Some(method), Some(class)) = (line.strip_prefix("    def "), of) {
            let name = &method[..name_of(method).unwrap_or(method.len())];
            classes.entry(class).or_default().1.extend((!name.starts_with('_')).then_some(name));
        }
    }
    for name in classes.keys().filter(|name| !name.starts_with('_')) {
        let mut ancestors = vec![*name];
        while let Some((bases, methods)) = ancestors.pop().and_then(|name| classes.get(name)) {
            ancestors.extend(bases.iter().filter(|base| base.starts_with('_')));
            out.extend(methods.iter().flat_map(|method| [format!("{name}.{method}"), format!("{name}.*")]));
        }
    }
    out
}

/// Returns the functions of the API, as `Type::function`.
fn items(api: &str) -> BTreeSet<String> {
    let (mut out, mut of) = (BTreeSet::new(), "");
    for line in api.lines() {
        let mut words = line.split_whitespace();
        match (line.starts_with(' '), words.next()) {
            (false, Some("fn")) => drop(out.insert(words.next().unwrap_or_default().to_owned())),
            (false, Some("struct" | "enum" | "trait")) => of = words.next().unwrap_or_default(),
            (false, _) => of = "",
            (true, _) => {
                let declared = line.trim_start().trim_start_matches("pub ").trim_start_matches("const ");
                let name = declared.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
                out.extend(name.filter(|_| !of.is_empty()).map(|name| format!("{of}::{name}")));
            }
        }
    }
    out
}

/// Stands for Rust items in a line of functions that have none.
const NONE: &str = "-";

/// The lines of a table.
struct Rows<'a> {
    /// The path of the table.
    path: &'static str,
    /// Rust items, each with its line.
    named: BTreeMap<&'a str, usize>,
    /// Functions of the other language, each with the first line that names it.
    functions: BTreeMap<&'a str, usize>,
    faults: Vec<Finding>,
}

impl<'a> Rows<'a> {
    fn of(path: &'static str, table: &'a str) -> Self {
        let (named, functions, faults) = Default::default();
        let mut rows = Self { path, named, functions, faults };
        let lines = table.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        for (at, line) in lines {
            let number = at + 1;
            let Some((items, functions)) = line.split_once(" : ") else {
                rows.faults.push(Finding::new(path, number, "a line is `Rust items : functions`"));
                continue;
            };
            for item in items.split_whitespace().filter(|item| *item != NONE) {
                if rows.named.insert(item, number).is_some() {
                    rows.faults.push(Finding::new(path, number, format!("{item} has two lines")));
                }
            }
            if let Some(reason) = functions.strip_prefix('-') {
                if reason.trim().is_empty() {
                    rows.faults.push(Finding::new(path, number, "the reason is missing"));
                }
                continue;
            }
            for function in functions.split_whitespace() {
                rows.functions.entry(function).or_insert(number);
            }
        }
        rows
    }

    /// Adds the findings of this table: items of `all` without a line, and names that are neither one of them nor `known` functions.
    fn compare(
        &mut self,
        all: &BTreeSet<String>,
        known: impl Fn(&str) -> bool,
        lacks: &str,
        out: &mut Vec<Finding>,
    ) {
        out.append(&mut self.faults);
        for (&name, &line) in &self.named {
            let is_known = match name.strip_suffix('*') {
                Some(start) => all.iter().any(|item| item.starts_with(start)),
                None => all.contains(name),
            };
            if !is_known {
                out.push(Finding::new(self.path, line, format!("{name} is not in {API}")));
            }
        }
        for (&function, &line) in self.functions.iter().filter(|(function, _)| !known(function)) {
            out.push(Finding::new(self.path, line, format!("{lacks} {function}")));
        }
        let missing = all.iter().filter(|item| !self.has(item));
        out.extend(missing.map(|item| {
            Finding::new(
                self.path,
                1,
                format!("{item} has no line: name what does the same, or say why there is nothing"),
            )
        }));
    }

    /// Returns whether an item has a line of its own or of its type or module.
    fn has(&self, item: &str) -> bool {
        let mut prefix = item;
        loop {
            if self.named.contains_key(prefix) || self.named.contains_key(&*format!("{prefix}::*")) {
                return true;
            }
            let Some((before, _)) = prefix.rsplit_once("::") else { return false };
            prefix = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kit::tree;
    use super::*;

    const LISTING: &str = "# The public API\n\nstruct Db\n    pub struct Db { /* private fields */ }\n    pub fn get(&self) -> u8\n    \
         pub fn put<K>(k: K)\n    impl Clone for Db\n\nenum store::Kind\n    pub const fn name(self) -> u8\n\nfn profile\n    \
         pub fn profile() -> u8\n";

    fn findings(table: &str, symbols: &str, page: &str) -> Vec<String> {
        let found = check(&tree(&[(API, LISTING), (TABLE, table), (SYMBOLS, symbols), (PAGE, page)]));
        found
            .into_iter()
            .map(|finding| format!("{}:{} {}", finding.path, finding.line, finding.text))
            .collect()
    }

    #[test]
    fn functions_are_read_from_the_listing() {
        let want = ["Db::get", "Db::put", "profile", "store::Kind::name"];
        assert_eq!(items(LISTING).into_iter().collect::<Vec<_>>(), want);
    }

    #[test]
    fn every_function_has_a_line_and_every_line_is_true() {
        let symbols = "tidesdb_data data 4\ntidesdb_get\ntidesdb_x_put\n";
        let table = "# a comment\nDb::get : tidesdb_get\nDb::put : tidesdb_x_put\nstore::* : - as text\nprofile : - none\n";
        assert_eq!(findings(table, symbols, "`tidesdb_x_put`"), [""; 0]);
        let faults = findings(
            "Db::get : tidesdb_data\nDb::get : tidesdb_none\nDb::gone : -\nprofile\n",
            symbols,
            "tidesdb_x_put",
        );
        let want = [
            "docs/reference/c-coverage.txt:2 Db::get has two lines",
            "docs/reference/c-coverage.txt:3 the reason is missing",
            "docs/reference/c-coverage.txt:4 a line is `Rust items : functions`",
            "docs/reference/c-coverage.txt:3 Db::gone is not in docs/api/tidesdb.txt",
            "docs/reference/c-coverage.txt:1 the C library has no function tidesdb_data",
            "docs/reference/c-coverage.txt:2 the C library has no function tidesdb_none",
            "docs/reference/c-coverage.txt:1 Db::put has no line: name what does the same, or say why there is nothing",
            "docs/reference/c-coverage.txt:1 profile has no line: name what does the same, or say why there is nothing",
            "docs/reference/c-coverage.txt:1 store::Kind::name has no line: name what does the same, or say why there is nothing",
            "docs/reference/c-coverage.txt:1 tidesdb_x_put is in no line",
            "docs/reference/c-api.md:1 `tidesdb_x_put` is not on the page",
        ];
        assert_eq!(faults, want);
    }

    #[test]
    fn the_calls_of_python_are_in_their_table() {
        let stub = "class _Reads:\n    def get(\n        self\n    ): ...\n\n@final\nclass Db(_Reads, Other):\n    def put(self): ...\n    \
             def __len__(self): ...\n\ndef open(path): ...\n";
        let found = |table: &str| {
            let files = [(API, LISTING), (PYTHON, table), (STUB, stub)];
            let found = check(&tree(&files));
            found.into_iter().map(|finding| format!("{} {}", finding.line, finding.text)).collect::<Vec<_>>()
        };
        assert_eq!(calls(stub), ["Db.*", "Db.get", "Db.put", "open"].map(str::to_owned).into());
        let right = "Db::get : Db.get\nDb::put : Db.put\nstore::* profile : - none\n- : open\n";
        assert_eq!(found(right), [""; 0]);
        assert_eq!(found(&right.replace("Db.get", "Db.*")), [""; 0]);
        let wrong = "Db::get : Db.gets\nstore::* profile : - none\n- : open\n";
        let want = [
            "1 the Python package has no Db.gets",
            "1 Db::put has no line: name what does the same, or say why there is nothing",
            "1 Db.get is in no line",
            "1 Db.put is in no line",
        ];
        assert_eq!(found(wrong), want);
    }
}
