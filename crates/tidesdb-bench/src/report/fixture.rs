//! Made-up results for tests, so that every plot and every kind of row has something to show. The figures are derived
//! from the settings of rows, and those of rivals by factors. They say nothing about any real engine.

use crate::cgroup::Charged;
use crate::device::Device;
use crate::engine::Cause;
use crate::measure::Latency;
use crate::process::Machine;
use crate::rng::Rng;
use crate::run::{FORMAT, Results};
use crate::spec::{Durability, Spec, Workload};
use crate::stage::{Outcome, Restart};
use crate::suite;
use crate::timeline::{Beat, Part, Second};
use crate::workload::{Phase, Transacted};

/// Name of a rival, and its speed relative to this engine in writes, reads and cursors.
type Rival = (&'static str, f64, f64, f64);

const RIVALS: [Rival; 5] = [
    ("alpha", 0.55, 0.7, 0.62),
    ("beta:blob", 0.48, 0.66, 0.6),
    ("gamma", 0.2, 2.1, 1.7),
    ("delta", 0.75, 0.35, 0.5),
    ("epsilon", 0.97, 0.99, 1.02),
];

/// An engine name that attempts HTML injection.
pub(super) const HOSTILE: &str = "<img src=x onerror=alert(1)>&\"'";

/// Results of a suite with all engines and three repetitions. One row of one rival fails.
pub(super) fn results(name: &str) -> Results {
    let rows = rows(name);
    let mut rng = Rng::new(11, 0);
    let mut outcomes = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        for repetition in 0..3 {
            let ours = ours(row, repetition, &mut rng);
            for rival in RIVALS {
                if (rival.0, place) != ("alpha", 5) {
                    outcomes.push(derived(&ours, rival, &mut rng));
                }
            }
            outcomes.push(derived(&ours, ("null", 6.0, 5.0, 4.0), &mut rng));
            outcomes.push(ours);
        }
        if place == 5 {
            outcomes.push(Outcome::absent("alpha", row, "the engine does not offer this class"));
        }
        if place > 2 {
            continue;
        }
        let mut hostile = Outcome::failed(HOSTILE, row, "a key is <b>missing</b> & more");
        hostile.settings = "</code><script>alert(2)</script>".to_owned();
        outcomes.push(hostile);
    }
    let broken = rows.get(3).map_or_else(String::new, |row| row.name.clone());
    outcomes
        .iter_mut()
        .filter(|o| o.engine == "delta" && o.spec.name == broken)
        .for_each(|o| o.failure = Some("a cursor showed a key that was deleted".to_owned()));
    Results {
        format: FORMAT,
        version: "0.0.0".to_owned(),
        suite: format!("{name} (made up)"),
        begun: 1_760_000_000,
        seed: 11,
        machine: machine(),
        rows: rows.iter().map(|row| row.name.clone()).collect(),
        outcomes,
    }
}

fn machine() -> Machine {
    Machine {
        processor: "A processor that does not exist".to_owned(),
        processors: 8,
        memory: 32 << 30,
        kernel: "6.1".to_owned(),
        file_system: "ext4".to_owned(),
        build: "release".to_owned(),
        compiler: "rustc 1.0".to_owned(),
        commit: "0123456789ab".to_owned(),
        load: 0.1,
    }
}

/// Returns the rows of the suite, and further rows for the scaling plots.
fn rows(name: &str) -> Vec<Spec> {
    let mut rows = suite::named(name).map_or(Vec::new(), |suite| suite.rows(0.01));
    let write = |name: String, batch, value_bytes| Spec { name, batch, value_bytes, ..Spec::default() };
    if name == "quick" {
        rows.extend([1, 10, 100, 1000, 10_000].map(|n| write(format!("batch_{n}"), n, 110)));
        rows.extend([16, 64, 256, 1024, 4096].map(|n| write(format!("value_{n}"), 50, n)));
        rows.extend([1, 4, 8, 16].map(|threads| Spec {
            threads,
            durability: Durability::Device,
            ..write(format!("durable_t{threads}"), 2, 100)
        }));
    }
    rows
}

fn ours(row: &Spec, repetition: usize, rng: &mut Rng) -> Outcome {
    let batch = row.batch as f64;
    let durable = row.durability == Durability::Device;
    let small = 3e5 * (row.value_bytes as f64 / 100.0).powf(-0.7);
    let write = match durable {
        true => 900.0 * batch * (row.threads as f64).powf(0.8),
        false => small * (1.0 + batch.ln() * 0.7),
    };
    let kinds: Vec<(&str, f64)> = match row.workload {
        Workload::Write | Workload::Overwrite | Workload::Kill => vec![("PUT", write)],
        Workload::Read => vec![("GET", 9e5)],
        Workload::MultiGet => vec![("MULTIGET", 2e6)],
        Workload::ReadWhileWriting => vec![("GET", 5e5), ("PUT", 3e4)],
        Workload::WriteWhileReading => vec![("PUT", write), ("GET", 2e5)],
        Workload::Mixed => vec![("PUT", write), ("GET", 7e5)],
        Workload::Delete => vec![("DELETE", write * 1.2)],
        Workload::Seek => vec![("SEEK", 5e5)],
        Workload::Range => vec![("RANGE", 3e6 / row.range as f64)],
        Workload::Churn => vec![("CHURN", write), ("GET", 4e5)],
        Workload::Queue => vec![("APPEND", write), ("HEAD", 3e3), ("TAKE", 3e5)],
        Workload::Families => vec![("PUT 1", write), ("PUT 2", write)],
        Workload::Turnover => vec![("PUT", write), ("UPDATE", write), ("SCAN", 100.0)],
        Workload::Overload => vec![("SEARCH", write), ("PUT", write)],
        Workload::ProbeAfter => vec![("PUT", write), ("SEEK", 9e4), ("RANGE 10", 7e4), ("ABSENT", 1e6)],
        Workload::ProbeBeside => {
            vec![("SEARCH", write), ("PUT", write / 2.0), ("SEEK", 2e4), ("RANGE 10", 1e4), ("ABSENT", 5e5)]
        }
        Workload::Motion => vec![("PUT", write), ("PUT AGAIN", write), ("SEEK AT ONCE", 2e4), ("SEEK", 4e4)],
        Workload::Blend => vec![("GET", 3e5), ("UPDATE", 2.9e5)],
        Workload::Transaction => vec![("TX", 2e5 / row.tx_ops as f64)],
        Workload::Iterate => Vec::new(),
    };
    let mut outcome = Outcome::new("tidesdb", row);
    outcome.repetition = repetition;
    for (operation, rate) in kinds {
        outcome.phases.push(phase(operation, row.ops, rate * chance(rng), (row, batch)));
    }
    if row.workload == Workload::Kill {
        let (killed, clean) = (0.08 * chance(rng), 0.01 * chance(rng));
        outcome.restart = Some(Restart { killed, clean, acknowledged: row.ops, survived: row.ops });
        outcome.phases.extend([opening("REOPEN", killed), opening("OPEN", clean)]);
    }
    if row.workload == Workload::Transaction {
        outcome.transacted = Some(Transacted { committed: row.ops, conflicts: row.ops });
    }
    outcome.causes = vec![Cause { cause: "memtables <full>".to_owned(), count: 3, seconds: 0.25 }];
    let rows = row.population();
    let iter = Phase { operation: "ITER".to_owned(), ops: rows, seconds: rows as f64 / 9e6, latency: None };
    outcome.phases.push(iter);
    outcome.keys = rows;
    let bytes = rows * row.entry_bytes();
    outcome.settled_written = (bytes as f64 * 1.6 * chance(rng)) as u64;
    outcome.db_bytes = (bytes as f64 * 0.55) as u64;
    outcome.processor = 2.2e-6 * row.ops as f64 * chance(rng);
    outcome.peak_memory = (180.0 * 1_048_576.0 * chance(rng)) as u64;
    outcome.wall = outcome.phases.iter().map(|p| p.seconds).sum();
    outcome.checked = row.ops / 64;
    outcome.settings = format!("version 1, sync {}, cache 64 MiB", row.durability.name());
    if row.watched {
        outcome.timeline = (1..=9).map(|second| line(row, &outcome, second)).collect();
        outcome.device = Some(Device { depth: row.threads, rate: 1.1e5, ..Device::default() });
    }
    outcome
}

/// One second of a watched row. The eighth second is settling; in the fourth, no operation ends.
fn line(row: &Spec, outcome: &Outcome, second: u64) -> Second {
    let part = if second == 8 { Part::Settle } else { Part::Run };
    let busy = part == Part::Run && second != 4;
    let beats = outcome.phases.iter().filter(|_| busy).map(|phase| Beat {
        operation: phase.operation.clone(),
        ops: phase.rate() as u64,
        slowest: second as f64 * 70.0,
        seconds: second as f64 * 0.1,
    });
    Second {
        at: second as f64,
        length: 1.0,
        part,
        beats: beats.collect(),
        read: 9_000_000 * second,
        written: 4_000_000,
        resident: 90 << 20,
        charged: Charged { total: 100 << 20, anonymous: 80 << 20, cache: 20 << 20 },
        files: row.ops * 100 * second,
        allocated: row.ops * 90 * second,
        live: if row.workload == Workload::Turnover { row.ops * 80 } else { 0 },
        ..Second::default()
    }
}

fn opening(operation: &str, seconds: f64) -> Phase {
    let latency = Latency { samples: 1, p50: seconds * 1e6, p99: seconds * 1e6, ..Latency::default() };
    Phase { operation: operation.to_owned(), ops: 1, seconds, latency: Some(latency) }
}

fn chance(rng: &mut Rng) -> f64 {
    0.98 + 0.04 * (rng.below(1000)) as f64 / 1000.0
}

fn phase(operation: &str, ops: u64, rate: f64, (row, batch): (&Spec, f64)) -> Phase {
    let p50 = 0.8e6 * row.threads as f64 * if operation == "GET" { 1.0 } else { batch } / rate;
    let latency = Latency {
        samples: ops,
        mean: p50 * 1.2,
        deviation: p50,
        variation: 85.0,
        min: p50 * 0.4,
        p50,
        p95: p50 * 2.1,
        p99: p50 * 4.3,
        p999: p50 * 11.0,
        p9999: p50 * 40.0,
        slow: 0.0,
        max: p50 * 80.0,
    };
    Phase { operation: operation.to_owned(), ops, seconds: ops as f64 / rate, latency: Some(latency) }
}

/// Returns a rival's outcome: the same work at another speed.
fn derived(ours: &Outcome, (name, write, read, cursor): Rival, rng: &mut Rng) -> Outcome {
    let mut outcome = ours.clone();
    outcome.engine = name.to_owned();
    for phase in &mut outcome.phases {
        let factor = match phase.operation.as_str() {
            "GET" => read,
            "SEEK" | "RANGE" | "ITER" => cursor,
            _ => write,
        };
        let factor = factor * chance(rng) * (0.8 + (phase.ops % 7) as f64 * 0.06);
        phase.seconds /= factor;
        if let Some(l) = &mut phase.latency {
            for n in [&mut l.mean, &mut l.min, &mut l.p50, &mut l.p95, &mut l.max] {
                *n /= factor;
            }
            (l.p99, l.p999) = (l.p99 / factor / factor, l.p999 / factor.powi(3));
            l.variation /= factor;
        }
    }
    outcome.settled_written = (outcome.settled_written as f64 / write.sqrt()) as u64;
    outcome.db_bytes = (outcome.db_bytes as f64 * (1.6 - write * 0.5)) as u64;
    outcome.processor /= write.sqrt();
    outcome.peak_memory = (outcome.peak_memory as f64 * (0.5 + read)) as u64;
    outcome.wall = outcome.phases.iter().map(|p| p.seconds).sum();
    outcome.settings = format!("{name} 2.0, cache 64 MiB, compression lz4");
    outcome
}
