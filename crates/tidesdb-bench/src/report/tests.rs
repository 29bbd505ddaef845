//! The makers of reports, on results made by hand.

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
fn results_come_back_from_json() {
    let mut results = results();
    assert_eq!(from_json(&json(&results).unwrap()).unwrap(), results);
    results.format += 1;
    assert!(from_json(&json(&results).unwrap()).unwrap_err().contains("format"));
    assert!(from_json("{}").is_err());
}

#[test]
fn medians_are_medians() {
    assert_eq!(Spread::of(vec![3.0, 1.0, 2.0, 10.0]), Spread { low: 1.0, median: 2.5, high: 10.0 });
    assert_eq!(Spread::of(Vec::new()), Spread::default());
}
