//! `docs/reference/options.md` has each option with its domain and its default.

use std::fmt::Debug;
use std::sync::Arc;

use super::{
    DbOptions, FamilyOptions, ReadOptions, RemoteOptions, SettingInfo, TransactOptions, WriteOptions,
};
use crate::store::MemoryStore;

const PAGE: &str = include_str!("../../../../docs/reference/options.md");

/// Returns the cells of the rows of a section, without its head.
fn rows(section: &str) -> Vec<Vec<&'static str>> {
    let begin = format!("\n## {section}\n");
    let text = PAGE.split(&begin).nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect()
}

/// Returns a value as the page writes it.
fn shown(value: impl Debug) -> String {
    let text = format!("{value:?}");
    match (text.as_str(), text.parse::<u64>()) {
        ("None", _) => "unset".to_owned(),
        (_, Ok(n)) if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
        (text, _) => {
            let units = [("ms", "ms"), (".0s", "s"), ("s", "s")];
            let found =
                units.iter().find_map(|(end, unit)| Some(format!("{} {unit}", text.strip_suffix(end)?)));
            found.unwrap_or_else(|| text.to_owned())
        }
    }
}

/// Names and defaults of all fields of an option type but a hidden one: a field that is missing here does not compile.
macro_rules! fields {
    ($value:expr, $type:ident: $($name:ident)* $(; $hidden:ident)?) => {{
        let $type { $($name,)* $($hidden: _)? } = $value;
        vec![$((stringify!($name), shown($name))),*]
    }};
}

/// Compares names and defaults, in any order; `default` is the number of the column.
fn compare(section: &str, mut rows: Vec<Vec<&str>>, name: usize, default: usize, code: Vec<(&str, String)>) {
    let mut code = code;
    rows.sort_by_key(|row| row[name]);
    code.sort();
    let page: Vec<_> = rows.iter().map(|row| (row[name], row[default].to_owned())).collect();
    assert_eq!(page, code, "the section {section:?} of docs/reference/options.md, then the code");
}

#[test]
fn the_page_has_each_option_of_a_database_with_its_default() {
    let code = fields!(DbOptions::default(), DbOptions: sync recovery memory_limit cache_bytes memtables_bytes_max
        active_memtables_bytes_max wal_bytes_max wal_segment_bytes background_threads
        compaction_bytes_per_second disk_free_min disk_reserve_bytes history_bytes
        create_if_missing error_if_exists read_only mmap_wal event_log slow_sync slow_operation remote; forced);
    compare("A database", rows("A database"), 0, 2, code);
}

#[test]
fn the_page_has_each_option_of_a_family_with_its_domain_and_default() {
    let all = rows("A family");
    let others: Vec<_> = all.iter().take(2).map(|row| row[0]).collect();
    assert_eq!(others, ["comparator", "merge_operator"]);
    assert_eq!(FamilyOptions::default().comparator.name(), all[0][2]);
    let code = FamilyOptions::TABLE.iter().map(|info| (info.name, shown(info.default))).collect();
    compare("A family", all[2..].to_vec(), 0, 2, code);
    for SettingInfo { name, domain, .. } in FamilyOptions::TABLE {
        let row = all.iter().find(|row| row[0] == *name);
        let written = row.map_or("", |row| row[1]);
        let right = match domain {
            (0, u64::MAX) => !written.contains("at least") && !written.contains(" to "),
            (low, u64::MAX) => written.ends_with(&format!("at least {low}")),
            (0, high) if *name == "compression" => {
                (0..=9).all(|n| written.contains(&n.to_string()) == (n <= *high))
            }
            (low, high) => written.contains(&format!("{low} to {high}")),
        };
        assert!(right, "docs/reference/options.md: the domain of {name} is {domain:?}, not {written:?}");
    }
}

#[test]
fn the_page_has_each_option_of_a_call_and_of_an_object_store() {
    let TransactOptions { isolation, attempts, write } = TransactOptions::default();
    let code = [
        fields!(WriteOptions::default(), WriteOptions: sync),
        fields!(ReadOptions::default(), ReadOptions: keys_only),
        vec![("isolation", shown(isolation)), ("attempts", shown(attempts)), ("write", shown(write.sync))],
    ];
    compare("One call", rows("One call"), 1, 2, code.concat());
    let RemoteOptions { store: _, local_bytes_max, replicate_log, log_bytes, interval } =
        RemoteOptions::new(Arc::new(MemoryStore::default()));
    let code = vec![
        ("local_bytes_max", shown(local_bytes_max)),
        ("replicate_log", shown(replicate_log)),
        ("log_bytes", shown(log_bytes)),
        ("interval", shown(interval)),
    ];
    compare("An object store", rows("An object store"), 0, 2, code);
}
