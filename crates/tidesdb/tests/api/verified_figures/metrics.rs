//! The statistics as OpenMetrics text.

use std::time::Duration;

use tidesdb::{FamilyOptions, FamilyStats, StallStats, Stats, WriterState};

use crate::common::{Sim, fill, small};
use crate::verified_figures::openmetrics::parse;

/// All samples of a valid text, by name and labels.
fn check(text: &str) -> Vec<(String, f64)> {
    let samples = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    samples.into_iter().map(|sample| (sample.id, sample.value)).collect()
}

#[test]
fn every_figure_is_a_valid_metric() {
    let sim = Sim::new();
    let db = sim.open();
    let odd = db.create_family("a \"b\"\n\\", small()).unwrap();
    fill(db.default_family(), 100, b"v");
    fill(&odd, 10, b"v");
    db.flush().unwrap();
    db.compact().unwrap();
    let text = db.metrics_text();
    assert!(
        text.contains("# HELP tidesdb_get_duration_seconds Durations of a random sample: one in 256.\n"),
        "{text}"
    );
    let samples = check(&text);
    let value = |name: &str| samples.iter().find(|(sample, _)| sample == name).map(|(_, value)| *value);
    let stats = db.stats();
    let wanted = [
        ("tidesdb_health{tidesdb_health=\"healthy\"}", 1.0),
        ("tidesdb_health{tidesdb_health=\"poisoned\"}", 0.0),
        ("tidesdb_wal_bytes_total", stats.wal_bytes as f64),
        ("tidesdb_family_table_entries{family=\"default\"}", 100.0),
        ("tidesdb_family_table_entries{family=\"a \\\"b\\\"\\n\\\\\"}", 10.0),
        ("tidesdb_family_level_entries{family=\"default\",level=\"2\"}", 100.0),
        ("tidesdb_level_entries{family=\"default\",level=\"2\"}", 100.0),
        ("tidesdb_tree_largest_level{family=\"default\"}", 2.0),
        ("tidesdb_put_duration_seconds_count", stats.puts.count as f64),
        ("tidesdb_put_duration_seconds_sum", stats.puts.time.as_secs_f64()),
        ("tidesdb_flush_duration_seconds_count", stats.flushes.count as f64),
        ("tidesdb_flush_duration_seconds_bucket{le=\"+Inf\"}", stats.flushes.count as f64),
        ("tidesdb_stall_delay_seconds_count{cause=\"tables\"}", 0.0),
    ];
    for (name, wanted) in wanted {
        assert_eq!(value(name), Some(wanted), "{name}");
    }
}

/// A bucket used to appear with its first duration. A rate of its counts then lacked them.
#[test]
fn every_scrape_has_the_same_buckets() {
    let buckets = |text: &str| -> Vec<String> {
        let all = check(text).into_iter().map(|(sample, _)| sample);
        all.filter(|sample| sample.contains("_bucket{")).collect()
    };
    let sim = Sim::new();
    let db = sim.open();
    let before = buckets(&db.metrics_text());
    fill(db.default_family(), 2000, b"v");
    let clock = std::sync::Arc::clone(&sim.clock);
    sim.disk.observe(tidesdb_io::sim::OpSet::SYNCS, move |_, _| clock.advance(Duration::from_secs(200)));
    db.put("slow", "v").unwrap();
    sim.disk.stop_observing();
    db.flush().unwrap();
    let text = db.metrics_text();
    assert_eq!(buckets(&text), before);
    let samples = check(&text);
    let of = |le: &str| {
        let id = format!("tidesdb_sync_duration_seconds_bucket{{le=\"{le}\"}}");
        samples.iter().find(|(sample, _)| *sample == id).unwrap_or_else(|| panic!("{id}")).1
    };
    let syncs = db.stats().syncs.count as f64;
    assert!(
        of("0.000000256") <= of("68.719476736") && of("68.719476736") < of("+Inf") && of("+Inf") == syncs
    );
}

/// A page of `docs/operate`.
fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../docs/operate/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The page for those who watch a database and the rules for Prometheus name metrics in alarms and dashboards: an alarm on a name that does not
/// exist never fires.
#[test]
fn alarms_name_metrics_that_exist() {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 10, b"v");
    db.flush().unwrap(); // figures by level need a table
    let age = "\ntidesdb_figures_age_seconds \ntidesdb_writer{"; // only those of another process have them
    let text = db.metrics_text() + age;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (file, at_least) in [("monitoring.md", 20), ("prometheus-rules.yml", 11)] {
        let page = page(file);
        let names =
            page.match_indices("tidesdb_").map(|(at, _)| page[at..].split(|c| !is_part(c)).next().unwrap());
        let mut checked = 0;
        for name in names {
            // `tidesdb_memory_..._bytes` stands for several.
            let ends = if name.ends_with('_') { "" } else { " " };
            let exists = ["{", ends, "_bucket"].iter().any(|end| text.contains(&format!("\n{name}{end}")));
            assert!(exists, "docs/operate/{file}: {name}");
            checked += 1;
        }
        assert!(checked > at_least, "only {checked} names in {file}");
        // The states that alarms ask for.
        let known = WriterState::ALL.map(WriterState::name);
        let known = || known.into_iter().chain(["healthy", "degraded", "poisoned"]);
        for asked in page.split("{tidesdb_").skip(1).filter_map(|rest| rest.split('"').nth(1)) {
            assert!(asked.split('|').all(|state| known().any(|other| other == state)), "{file}: {asked}");
        }
    }
}

/// What the page says of the doctor names figures and settings that exist.
#[test]
fn the_doctor_is_said_to_look_at_figures_that_exist() {
    let page = page("monitoring.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Doctor\n")).unwrap();
    let figures = [Stats::TABLE, FamilyStats::TABLE, StallStats::TABLE].concat();
    let settings = FamilyOptions::TABLE.iter().map(|info| info.name);
    let known: Vec<&str> = figures.iter().map(|info| info.name).chain(settings).collect();
    let of_the_database = ["memory_limit", "compaction_bytes_per_second", "syncs"];
    let words = section.split('`').skip(1).step_by(2);
    let named: Vec<&str> = words
        .filter(|word| word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    assert!(named.len() > 15, "{named:?}");
    for name in named {
        assert!(known.contains(&name) || of_the_database.contains(&name), "{name}");
    }
}
