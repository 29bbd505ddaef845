//! Simulates compaction on trees of any size: tables are sizes and densities, nothing is read or written.
//!
//! ```text
//! cargo run --release -p tidesdb-engine --example compaction -- [GiB of data] [file for the plot]
//! cargo run --release -p tidesdb-engine --example compaction -- point DATA MEMTABLE FLUSH TABLE TABLES WRITES
//! ```
//!
//! The planner is that of the engine (`tidesdb::internals::compact::policy`). Prints the tables of `docs/design/compaction.md`. `point` simulates one
//! tree of a measurement: sizes of all data, of a memtable, of the rows in it and of a table in KiB, the number of
//! tables in level 1 when merges start, and how many times all data is overwritten.
#![allow(clippy::disallowed_methods, reason = "it writes its plot")]

mod content;
mod plot;
mod tree;
mod workload;

use tidesdb::internals::compact::policy::PolicySettings;
use tree::{Load, Measures, Simulation};
use workload::Workload;

const GIB: u64 = 1 << 30;
/// Data of the default run.
const DATA_GIB: u64 = 10 << 10;
/// Name, size ratio and runs of the tiered level.
const POLICIES: [(&str, u64, u64); 4] = [
    ("Spooky", 6, 24),
    ("Spooky, ratio 10", 10, 24),
    ("Spooky, eight runs", 6, 8),
    ("Spooky, one run", 6, 1),
];

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("point").is_some() {
        point(arguments.map(|text| text.parse().expect("a number")).collect());
        return Ok(());
    }
    let bytes = arguments.next().map_or(DATA_GIB, |text| text.parse().expect("a number of GiB")) * GIB;
    let plot = arguments.next();
    let mut rows = Vec::new();
    for workload in Workload::ALL {
        for (name, ratio, tiered_runs_max) in POLICIES {
            let settings = PolicySettings { ratio, tiered_runs_max, ..settings(bytes) };
            let (flush_bytes, l1_tables) = (settings.buffer_bytes, settings.l1_tables_trigger);
            let load = Load { workload, bytes, flush_bytes, l1_tables, writes: workload.writes() };
            let measures = Simulation::run(settings, load);
            eprintln!("{} | {name} | {measures:?}", workload.name());
            rows.push(Row { workload, policy: name, measures });
        }
    }
    print_rows(&rows);
    print_formulas(&settings(bytes), bytes);
    match plot {
        Some(file) => std::fs::write(file, plot::svg(&rows)),
        None => Ok(()),
    }
}

/// Simulates the overwrites of one measured tree.
fn point(numbers: Vec<f64>) {
    let [data, memtable, flush, table, l1_tables, times] = numbers[..] else {
        panic!("six numbers are required")
    };
    let kib = |n: f64| (n * 1024.0) as u64;
    let settings =
        PolicySettings { buffer_bytes: kib(memtable), table_bytes: kib(table), ..PolicySettings::default() };
    let measure = |workload| {
        let l1_tables = l1_tables as usize;
        let load =
            Load { workload, bytes: kib(data), flush_bytes: kib(flush), l1_tables, writes: (0.0, times) };
        Row { workload, policy: "Spooky", measures: Simulation::run(settings, load) }
    };
    print_rows(&[Workload::Uniform, Workload::Zipf].map(measure));
}

/// One workload under one policy.
struct Row {
    workload: Workload,
    policy: &'static str,
    measures: Measures,
}

/// Defaults of the engine, but with larger tables in large trees, so that a tree has at most about 10,000: the result
/// depends on how many memtables the data fills.
fn settings(bytes: u64) -> PolicySettings {
    let defaults = PolicySettings::default();
    PolicySettings { table_bytes: defaults.table_bytes.max(bytes / 10_000), ..defaults }
}

fn print_rows(rows: &[Row]) {
    println!(
        "| workload | policy | levels | write amplification | peak space | settled space | tables | largest job |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for Row { workload, policy, measures: m } in rows {
        println!(
            "| {} | {policy} | {} | {:.2} | {:.3} | {:.3} | {} | {:.2} % |",
            workload.name(),
            m.levels,
            m.write_amplification,
            m.peak_space,
            m.settled_space,
            m.tables,
            m.largest_job * 100.0,
        );
    }
}

/// What the paper says about the write amplification of merges under uniform updates, with levels counted from data and buffer.
fn print_formulas(settings: &PolicySettings, bytes: u64) {
    let ratio = settings.ratio as f64;
    let levels = (bytes as f64 / settings.base_bytes() as f64).log(ratio);
    println!("\n| formula | write amplification | peak space |\n| --- | --- | --- |");
    let durable = 1.0 / (ratio - 1.0);
    let rows = [
        ("full merges: L (T-1) / 2", levels * (ratio - 1.0) / 2.0, 2.0 + durable),
        ("partial merges: L (T+1) / 2", levels * (ratio + 1.0) / 2.0, 1.0 + durable),
        ("Spooky, X = L-1: L (T-1) / 2 + 1", levels * (ratio - 1.0) / 2.0 + 1.0, 1.0 + 1.0 / ratio + durable),
        ("Spooky, X = L-2", levels * (ratio - 1.0) / 2.0 + 2.0, 1.0 + ratio.powi(-2) + durable),
    ];
    for (name, writes, space) in rows {
        println!("| {name} | {writes:.1} | {space:.3} |");
    }
    println!("\nL = {levels:.2} levels of ratio T = {ratio} below level 1.");
}
