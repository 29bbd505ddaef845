//! The statistics as OpenMetrics text.

use std::collections::HashSet;

use crate::common::{Sim, fill, small};

/// A parser of the rules of OpenMetrics 1.0 that this text must follow: every sample belongs to the metric declared before it, no
/// metric is declared twice, no sample is repeated, histograms rise, and the text ends with `# EOF`.
fn check(text: &str) -> Vec<(String, f64)> {
    let (mut kind, mut name, mut last) = (String::new(), String::new(), (String::new(), 0.0));
    let (mut names, mut samples, mut seen) = (HashSet::new(), Vec::new(), HashSet::new());
    let body = text.strip_suffix("# EOF\n").unwrap();
    for line in body.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (new, what) = declared.split_once(' ').unwrap();
            assert!(names.insert(new.to_owned()), "{new} twice");
            (name, kind) = (new.to_owned(), what.to_owned());
            last = (String::new(), 0.0);
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (of, unit) = rest.split_once(' ').unwrap();
            assert!(of == name && of.ends_with(&format!("_{unit}")), "{line}");
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(rest.starts_with(&format!("{name} ")), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (base, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let suffix = base.strip_prefix(&name).unwrap_or_else(|| panic!("{line} under {name}"));
            let allowed: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_count", "_sum"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line} is of type {kind}");
            assert!(labels.is_empty() || labels.ends_with("\"}") && !labels.starts_with(','), "{line}");
            assert!(seen.insert(sample.to_owned()), "{line} twice");
            let value: f64 = value.parse().unwrap();
            if suffix == "_bucket" {
                let row = labels.split("le=").next().unwrap().to_owned();
                assert!(last.0 != row || last.1 <= value, "{line} falls");
                last = (row, value);
            }
            samples.push((sample.to_owned(), value));
        }
    }
    samples
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
