//! Tests of all report formats, on hand-made results.

use super::*;
use crate::measure::Latency;
use crate::process::Machine;
use crate::spec::Spec;
use crate::stage::Outcome;
use crate::workload::Phase;

fn outcome(engine: &str, ops: u64, repetition: usize) -> Outcome {
    let spec = Spec { name: "put".to_owned(), ..Spec::default() };
    let latency = Latency { samples: ops, mean: 2.0, p50: 1.5, p999: 9.25, max: 10.0, ..Latency::default() };
    let phase =
        |operation: &str, latency| Phase { operation: operation.to_owned(), ops, seconds: 2.0, latency };
    let mut outcome = Outcome::new(engine, &spec);
    outcome.repetition = repetition;
    outcome.phases = vec![phase("PUT", Some(latency)), phase("ITER", None)];
    outcome.usage.written = ops * 116 * 2;
    outcome.db_bytes = ops * 58;
    outcome.keys = ops;
    outcome
}

fn results() -> Results {
    let mut outcomes: Vec<Outcome> = (1..=3).map(|n| outcome("tidesdb", n * 1000, n as usize)).collect();
    outcomes.push(Outcome::failed("rival", &outcomes[0].spec.clone(), "a key that was written is missing"));
    Results {
        format: FORMAT,
        version: "1".to_owned(),
        suite: "quick".to_owned(),
        begun: 0,
        seed: 7,
        machine: Machine::default(),
        rows: vec!["put".to_owned()],
        outcomes,
    }
}

const REFERENCE: &str = "engine,test_name,operation,ops_per_sec,duration_sec,avg_latency_us,stddev_us,cv_percent,p50_us,\
p95_us,p99_us,min_us,max_us,peak_rss_mb,peak_vms_mb,disk_read_mb,disk_write_mb,cpu_user_sec,cpu_sys_sec,cpu_percent,\
db_size_mb,write_amp,read_amp,space_amp,workload,pattern,threads,num_operations,batch_size,key_size,value_size,\
range_size,sync_enabled,";

#[test]
fn the_references_columns_come_first() {
    let text = csv(&results()).unwrap();
    assert!(text.starts_with(REFERENCE), "{text}");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    let records: Vec<csv::StringRecord> = reader.records().map(|r| r.unwrap()).collect();
    assert_eq!(records.len(), 7, "two operations of three repetitions, one failure");
    let of = |n: usize, name: &str| {
        let at = head.iter().position(|h| h == name).unwrap();
        records[n].get(at).unwrap().to_owned()
    };
    assert_eq!(of(0, "ops_per_sec"), "500.00");
    assert_eq!(
        (of(0, "p50_us"), of(0, "p999_us"), of(1, "p50_us")),
        ("1.500".into(), "9.250".into(), String::new())
    );
    assert_eq!(
        (of(0, "write_amp"), of(0, "space_amp"), of(0, "read_amp")),
        ("2.0000".into(), "0.5000".into(), String::new())
    );
    assert_eq!((of(0, "workload"), of(0, "sync_enabled")), ("write".into(), "0".into()));
    assert_eq!((of(6, "ops_per_sec"), of(6, "workload")), (String::new(), "write".to_owned()));
    assert_eq!(of(6, "failure"), "a key that was written is missing");
}

#[test]
fn the_table_has_medians_ranges_and_failures() {
    let lines = lines(&results());
    let put = lines.iter().find(|l| l.operation == "PUT").unwrap();
    assert_eq!(put.rate, Spread { low: 500.0, median: 1000.0, high: 1500.0 });
    let text = table(&results());
    assert!(text.contains("1.00 K") && text.contains("500..1.50 K"), "{text}");
    assert!(text.contains("FAILED put on rival: a key that was written is missing"), "{text}");
    assert!(text.contains("seed 7"), "{text}");
}

#[test]
fn one_failed_repetition_fails_the_line() {
    let mut results = results();
    results.outcomes[1].failure = Some("lost".to_owned());
    let lines = lines(&results);
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|l| l.failure.is_some()));
}

#[test]
fn results_survive_json() {
    let mut results = results();
    assert_eq!(from_json(&json(&results).unwrap()).unwrap(), results);
    results.format += 1;
    assert!(from_json(&json(&results).unwrap()).unwrap_err().contains("format"));
    assert!(from_json("{}").is_err());
}

#[test]
fn spreads_hold_minimum_median_and_maximum() {
    assert_eq!(Spread::of(vec![3.0, 1.0, 2.0, 10.0]), Spread { low: 1.0, median: 2.5, high: 10.0 });
    assert_eq!(Spread::of(Vec::new()), Spread::default());
}

fn spread(low: f64, median: f64, high: f64) -> Spread {
    Spread { low, median, high }
}

#[test]
fn wins_and_losses_are_beyond_noise() {
    let at = |n: f64| spread(n * 0.99, n, n * 1.01);
    let mark = |a: Spread, b: Spread, better| ratio(&a, &b, better).map(|r| r.mark);
    let (high, low) = (Better::Higher, Better::Lower);
    assert_eq!(mark(at(2.0), at(1.0), high), Some(Mark::Win));
    assert_eq!(mark(at(2.0), at(1.0), low), Some(Mark::Loss));
    assert_eq!(mark(at(1.0), at(2.0), low), Some(Mark::Win));
    assert_eq!(mark(spread(1.0, 2.0, 3.0), spread(0.5, 1.0, 1.1), high), Some(Mark::Tie), "ranges overlap");
    let exact = |n: f64| spread(n, n, n);
    assert_eq!(mark(exact(1.029), exact(1.0), high), Some(Mark::Tie), "less than 3 %");
    assert_eq!(mark(exact(1.031), exact(1.0), high), Some(Mark::Win));
    assert_eq!(mark(exact(1.0), exact(1.031), high), Some(Mark::Loss));
    assert_eq!(mark(Spread::default(), exact(1.0), high), None);
    assert_eq!(ratio(&exact(1.0), &exact(4.0), low).map(|r| r.value), Some(4.0));
}

#[test]
fn means_are_geometric() {
    assert_eq!(geometric_mean([]), None);
    assert!((geometric_mean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
    assert!((geometric_mean([2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
}

fn line(row: &str, engine: &str, operation: &str, rate: f64) -> Line {
    let (row, engine, operation) = (row.to_owned(), engine.to_owned(), operation.to_owned());
    Line { row, engine, operation, rate: spread(rate, rate, rate), ..Line::default() }
}

#[test]
fn kinds_have_equal_weight_and_classes_are_separate() {
    use crate::spec::Durability;
    let mut lines = Vec::new();
    for (row, ours) in [("a", 2.0), ("b", 2.0), ("c", 2.0)] {
        lines.extend([line(row, "tidesdb", "ITER", ours), line(row, "rival", "ITER", 1.0)]);
    }
    lines.extend([line("d", "tidesdb", "PUT", 8.0), line("d", "rival", "PUT", 1.0)]);
    let mut durable = [line("e", "tidesdb", "PUT", 1.0), line("e", "rival", "PUT", 9.0)];
    durable.iter_mut().for_each(|l| l.spec.durability = Durability::Device);
    lines.extend(durable);
    lines.extend([line("d", "null", "PUT", 99.0), line("f", "tidesdb", "PUT", 1.0)]);
    let score = Score::of(&lines);
    assert_eq!(score.rivals, ["rival"], "the yardstick is not a rival");
    assert!((score.mean(Durability::Os, "rival").unwrap() - 4.0).abs() < 1e-12);
    assert!((score.mean(Durability::Device, "rival").unwrap() - 1.0 / 9.0).abs() < 1e-12);
    assert_eq!(score.tally(Durability::Os, "rival"), Tally { wins: 4, ties: 0, losses: 0 });
    assert_eq!(score.kinds(Durability::Os), ["PUT", "ITER"]);
}

#[test]
fn failed_rows_and_other_classes_are_in_no_mean() {
    use crate::spec::Durability;
    let mut lines = Vec::new();
    for row in ["good", "fails", "differs", "absent"] {
        lines.extend([line(row, "tidesdb", "PUT", 2.0), line(row, "rival", "PUT", 1.0)]);
    }
    lines[3].failure = Some("lost".to_owned());
    lines[5].spec.durability = Durability::None;
    lines[7].absent = Some("no such class".to_owned());
    let score = Score::of(&lines);
    assert_eq!(score.duels.iter().map(|d| d.row.as_str()).collect::<Vec<_>>(), ["good"]);
    let out: Vec<_> = score.left_out.iter().map(|l| (l.row.as_str(), l.reason.as_str())).collect();
    assert_eq!(
        out,
        [
            ("fails", "rival: lost"),
            ("differs", "another durability class"),
            ("absent", "rival does not offer it: no such class")
        ]
    );
}

#[test]
fn the_table_has_ratios_and_means() {
    let text = table(&fixture::results("quick"));
    let put = text.lines().find(|l| l.starts_with("put_random_b1 ") && l.contains(" gamma ")).unwrap();
    assert!(put.contains("x  win"), "{put}");
    let get = text.lines().find(|l| l.starts_with("get_random ") && l.contains(" gamma ")).unwrap();
    assert!(get.contains("x  loss"), "{get}");
    let null = text.lines().find(|l| l.starts_with("get_random ") && l.contains(" null ")).unwrap();
    assert!(!null.contains("x  "), "{null}");
    for words in ["class os:", "class device:", "tidesdb / gamma", "in no mean:", "not offered"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_page_is_complete_and_fetches_nothing() {
    for suite in ["quick", "standard", "ycsb", "transactions", "beyond-memory"] {
        let results = fixture::results(suite);
        let page = html(&results);
        for word in ["http:", "https:", "//", "src=", "@import", "url(", "@font-face"] {
            // The hostile name contains a `src=`; it is escaped.
            let found = page.replace("&lt;img src=x", "").matches(word).count();
            assert_eq!(found, 0, "{word}");
        }
        assert!(!page.contains("<img") && page.matches("<script>").count() == 1, "names must be escaped");
        for id in ["figures", "environment", "settings", "verification", "method"] {
            assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
        }
        for (at, _) in page.match_indices("href=\"#") {
            let name = page[at + 7..].split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
        let body = &page[page.find("<main>").unwrap()..page.find("<script>").unwrap()];
        let body = body.replace(" hidden>", " hidden=\"\">").replace("<details open ", "<details open=\"\" ");
        roxmltree::Document::parse(body.replace("<br>", "<br/>").trim()).unwrap();
        assert!(page.contains("a cursor showed a key that was deleted"), "failures must be listed");
    }
}

#[test]
fn watched_rows_have_targets_and_a_timeline() {
    let results = fixture::results("beyond-memory");
    let (text, page) = (table(&results), html(&results));
    assert_eq!(text.matches("\ntarget ").count(), 6, "one list for each rival and the hostile name: {text}");
    assert!(page.contains("Targets against gamma"));
    let scan = text.lines().find(|l| l.starts_with("full scan, rows") && !l.ends_with("measured")).unwrap();
    assert!(scan.contains(">= 3x") && scan.ends_with("not met"), "{scan}");
    let lines = seconds_csv(&results).unwrap();
    let mut reader = csv::Reader::from_reader(lines.as_bytes());
    assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), SECONDS);
    let records: Vec<csv::StringRecord> = reader.records().map(|r| r.unwrap()).collect();
    let of = |record: &csv::StringRecord, name: &str| {
        record[SECONDS.iter().position(|column| *column == name).unwrap()].to_owned()
    };
    let ours: Vec<_> = records
        .iter()
        .filter(|r| {
            of(r, "engine") == "tidesdb" && of(r, "row") == "beyond_load" && of(r, "repetition") == "0"
        })
        .collect();
    assert_eq!(ours.len(), 9, "a line for each second");
    let parts: Vec<String> = ours.iter().map(|r| of(r, "part")).collect();
    assert_eq!((parts[0].as_str(), parts[7].as_str()), ("run", "settle"));
    assert_eq!((of(ours[3], "puts"), of(ours[3], "device_read_per_op")), ("0".into(), String::new()));
    assert_eq!(
        (of(ours[1], "slowest_put_us"), of(ours[1], "device_read_bytes")),
        ("140.0".into(), "18000000".into())
    );
    assert_eq!(of(ours[1], "group_anon_bytes"), (80u64 << 20).to_string());
    assert!(!table(&fixture::results("quick")).contains("read/op"));
}

#[test]
fn steady_rows_show_their_slow_seconds_and_what_merges_cost() {
    let text = table(&fixture::results("steady"));
    let cells = text.lines().find(|l| l.starts_with("steady_load@0.01 ") && l.contains(" of "));
    assert!(cells.is_some_and(|cells| cells.contains("  1 of 8  ")), "the fourth second is empty: {text}");
    assert!(text.contains("memtables <full>: 3 in 0.25 s"), "{text}");
    let busy = text.lines().find(|l| l.starts_with("steady_overwrite@0.01: Busy")).unwrap();
    assert!(busy.contains("<= 0") && busy.ends_with("met"), "{busy}");
    let text = table(&fixture::results("amplification"));
    for words in ["amp_zipf@0.01: written / raw", "amp_uniform@0.01: get ", "<= 0.8x", "<= 1.35"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn conflicts_are_only_in_reports_of_transactions() {
    let results = fixture::results("transactions");
    let text = table(&results);
    let of = |row: &str| text.lines().find(|l| l.starts_with(row) && l.contains(" TX ")).unwrap();
    assert!(of("tx_10_si_high ").ends_with("50.0 %"), "{text}");
    assert!(html(&results).contains("50.0 % conflicts</span>"));
    let lines = csv(&results).unwrap();
    assert!(lines.contains(",serializable,1000,high,20,50.000"), "{lines}");
    assert!(lines.contains(",read-committed,,,,"), "puts in transactions");
    assert!(!table(&fixture::results("quick")).contains("conflicts"));
}

#[test]
fn plot_files_are_complete() {
    let files = plot_files(&fixture::results("quick"));
    assert_eq!(files.len(), 20, "17 plots, three of them with two drawings");
    for (name, text) in files {
        assert!(name.ends_with(".svg") && name.is_ascii(), "{name}");
        roxmltree::Document::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(text.matches("http").count(), 1, "{name}: only the XML namespace may be an address");
    }
}

#[test]
fn reports_of_one_engine_or_of_no_outcome_work() {
    let page = html(&results());
    assert!(page.contains("No row can be compared with rival."));
    let mut alone = results();
    alone.outcomes.truncate(3);
    assert!(html(&alone).contains("No rival was measured."));
    alone.outcomes.clear();
    assert!(html(&alone).contains("Not drawn") && plot_files(&alone).is_empty());
}
