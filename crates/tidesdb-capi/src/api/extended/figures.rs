//! Live figures, of this process and of one that writes; explanations of reads; what the doctor finds.

use std::ffi::{CString, c_char, c_int};
use std::time::{Duration, UNIX_EPOCH};

use tidesdb::{
    Db, HealthState, Severity, StatInfo, StatKind, StatUnit, StatValue, Stats, WriterFigures, WriterState,
};

use crate::abi::extended::{Figure, Finding, Health, ReadOptions, Verified, Writer};
use crate::abi::{Code, ERR_NOT_FOUND};
use crate::callback;
use crate::failure::{Answer, Failure, answer, told};
use crate::handle::Handle;
use crate::memory;
use crate::pointer::{In, Out};
use crate::state::{self, Bounds, SETTINGS_FAMILY};

use super::reads::reading;

const NO_FIGURES: Failure =
    told!(ERR_NOT_FOUND, "no process has published figures of this database, or its files are gone");

/// Texts of a result, each with a terminating zero.
#[derive(Default)]
pub(super) struct Texts(pub(super) Vec<u8>);

impl Texts {
    /// Adds a text, in which a zero becomes a blank. Returns its offset.
    pub(super) fn add(&mut self, text: impl AsRef<[u8]>) -> usize {
        let at = self.0.len();
        self.0.extend(text.as_ref().iter().map(|byte| if *byte == 0 { b' ' } else { *byte }));
        self.0.push(0);
        at
    }
}

/// A figure whose texts are offsets.
struct Packed {
    texts: [usize; 4],
    level: c_int,
    is_counter: bool,
    value: f64,
    number: u64,
}

/// Figures as they are collected.
#[derive(Default)]
struct Figures {
    texts: Texts,
    all: Vec<Packed>,
}

impl Figures {
    /// Adds the figures of one object.
    fn add(
        &mut self,
        group: &str,
        of: &str,
        figures: &mut dyn Iterator<Item = (&'static StatInfo, StatValue)>,
    ) {
        let (group, of) = (self.texts.add(group), self.texts.add(of));
        for (info, value) in figures {
            let texts = [group, of, self.texts.add(info.name), self.texts.add(unit(info.unit))];
            let is_counter = info.kind == StatKind::Counter;
            let mut push = |level: usize, value: f64, number: u64| {
                let level = c_int::try_from(level).unwrap_or(c_int::MAX);
                self.all.push(Packed { texts, level, is_counter, value, number });
            };
            match value {
                StatValue::Number(n) => push(0, n as f64, n),
                StatValue::Levels(levels) => {
                    levels.iter().enumerate().for_each(|(at, n)| push(at + 1, *n as f64, *n));
                }
                StatValue::Real(x) => push(0, x, x as u64),
                _ => {} // there is no other
            }
        }
    }

    /// Adds all figures of a database.
    fn add_stats(&mut self, stats: &Stats) {
        self.add("database", "", &mut stats.figures());
        for (name, times) in stats.times() {
            self.add("operation", name, &mut times.figures());
        }
        for (cause, stall) in stats.stalls_by_cause() {
            self.add("stall", cause.name(), &mut stall.figures());
        }
        if let Some(remote) = &stats.remote {
            self.add("remote", "", &mut remote.figures());
        }
        // The library's own family is not shown.
        for family in stats.families.iter().filter(|family| family.name != SETTINGS_FAMILY) {
            self.add("family", &family.name, &mut family.figures());
        }
        for tree in stats.trees.iter().filter(|tree| tree.family != SETTINGS_FAMILY) {
            self.add("tree", &tree.family, &mut tree.figures());
            for level in &tree.levels {
                let from = self.all.len();
                self.add("level", &tree.family, &mut level.figures());
                let number = c_int::try_from(level.level).unwrap_or(c_int::MAX);
                self.all[from..].iter_mut().for_each(|figure| figure.level = number);
            }
        }
    }

    /// Copies them into memory of the caller.
    fn give(self, figures: Out<*mut Figure>, count: Out<usize>) -> Answer {
        let array = memory::copy_packed(self.all.len(), &self.texts.0, |n, base| {
            let it = &self.all[n];
            let [group, of, name, unit] = it.texts.map(|at| base.wrapping_add(at));
            let is_counter = c_int::from(it.is_counter);
            Figure { group, of, name, unit, level: it.level, is_counter, number: it.number, real: it.value }
        })?;
        figures.set(array);
        count.set(self.all.len());
        Ok(())
    }
}

fn unit(unit: StatUnit) -> &'static str {
    match unit {
        StatUnit::Bytes => "bytes",
        StatUnit::Seconds => "seconds",
        StatUnit::Share => "share",
        StatUnit::Ratio => "ratio",
        _ => "count",
    }
}

/// Copies a text into memory of the caller.
pub(super) fn give(text: &str, to: Out<*mut c_char>) -> Answer {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    to.set(memory::copy_text(&text)?);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_figures(db: Handle, figures: Out<*mut Figure>, count: Out<usize>) -> Code {
    answer(|| {
        figures.check()?;
        count.check()?;
        callback::not_in_order()?; // the figures are behind locks of merges
        let mut all = Figures::default();
        all.add_stats(&state::database(db)?.engine()?.stats());
        all.give(figures, count)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_health(db: Handle, health: Out<Health>, causes: Out<*mut c_char>) -> Code {
    answer(|| {
        health.check_growing()?;
        let database = state::database(db)?;
        let (now, opened) = (database.engine()?.health(), database.engine()?.recovery_report());
        let mut text = now.causes.clone();
        text.extend(opened.damage.as_ref().map(|damage| format!("the open found damage: {damage}")));
        let shown = Health {
            size: 0,
            state: match now.state {
                HealthState::Healthy => 0,
                HealthState::Degraded => 1,
                _ => 2,
            },
            was_closed: c_int::from(opened.clean),
            recovered_commits: opened.commits,
            recovered_log_bytes: opened.log_bytes,
            discarded_commits: opened.discarded,
        };
        if !causes.is_null() {
            give(&text.join("\n"), causes)?;
        }
        health.set_growing(&shown)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_verify(db: Handle, verified: Out<Verified>, faults: Out<*mut c_char>) -> Code {
    answer(|| {
        verified.check_growing()?;
        callback::not_in_order()?;
        let report = state::database(db)?.engine()?.verify()?;
        let shown = Verified {
            size: 0,
            tables: report.tables as u64,
            value_logs: report.vlogs as u64,
            entries: report.entries,
            unflushed: report.unflushed,
            faults: report.damage.len() as u64,
        };
        if !faults.is_null() {
            let lines: Vec<String> = report.damage.iter().map(ToString::to_string).collect();
            give(&lines.join("\n"), faults)?;
        }
        verified.set_growing(&shown)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_metrics(db: Handle, text: Out<*mut c_char>) -> Code {
    answer(|| {
        text.check()?;
        callback::not_in_order()?;
        give(&state::database(db)?.engine()?.metrics_text(), text)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_diagnose(db: Handle, findings: Out<*mut Finding>, count: Out<usize>) -> Code {
    answer(|| {
        findings.check()?;
        count.check()?;
        callback::not_in_order()?;
        give_findings(&state::database(db)?.engine()?.diagnose(), findings, count)
    })
}

fn give_findings(found: &[tidesdb::Finding], findings: Out<*mut Finding>, count: Out<usize>) -> Answer {
    let mut texts = Texts::default();
    let packed: Vec<_> = found
        .iter()
        .map(|it| {
            let evidence = it.evidence.join("\n");
            [it.rule, &it.what, &evidence, &it.cause, &it.advice, &it.price].map(|text| texts.add(text))
        })
        .collect();
    let array = memory::copy_packed(found.len(), &texts.0, |n, base| {
        let [rule, what, evidence, cause, advice, price] = packed[n].map(|at| base.wrapping_add(at));
        let severity = match found[n].severity {
            Severity::Urgent => 0,
            Severity::Problem => 1,
            _ => 2,
        };
        Finding { severity, rule, what, evidence, cause, advice, price }
    })?;
    findings.set(array);
    count.set(found.len());
    Ok(())
}

fn figures_at(path: In<c_char>) -> Answer<WriterFigures> {
    Db::options(path.path()?).writer_figures()?.ok_or(NO_FIGURES)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_writer_figures(
    path: In<c_char>,
    writer: Out<Writer>,
    figures: Out<*mut Figure>,
    count: Out<usize>,
) -> Code {
    answer(|| {
        writer.check_growing()?;
        figures.check()?;
        count.check()?;
        let found = figures_at(path)?;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let state = WriterState::ALL.iter().position(|state| *state == found.state).unwrap_or(0);
        let shown = Writer {
            size: 0,
            state: c_int::try_from(state).unwrap_or(0),
            process: found.process,
            age_ms: millis(found.age),
            open_for_ms: millis(found.open_for),
            written_ms: millis(found.written.duration_since(UNIX_EPOCH).unwrap_or_default()),
        };
        let mut all = Figures::default();
        all.add_stats(&found.stats);
        all.give(figures, count)?;
        writer.set_growing(&shown)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_writer_diagnose(
    path: In<c_char>,
    findings: Out<*mut Finding>,
    count: Out<usize>,
) -> Code {
    answer(|| {
        findings.check()?;
        count.check()?;
        give_findings(&figures_at(path)?.diagnose(), findings, count)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_explain(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<ReadOptions>,
    text: Out<*mut c_char>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        text.check()?;
        let explained = reading(options, 0)?.on(cf, |view, _| view.explain(key))?;
        give(&explained.to_string(), text)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_explain_range(
    cf: Handle,
    start: In<u8>,
    start_size: usize,
    end: In<u8>,
    end_size: usize,
    rows_max: usize,
    options: In<ReadOptions>,
    text: Out<*mut c_char>,
) -> Code {
    answer(|| {
        let bounds = Bounds::Range(start.end(start_size)?, end.end(end_size)?);
        text.check()?;
        let explained = reading(options, 0)?
            .on(cf, |view, _| view.explain_range(&bounds.of(view.family())?, rows_max))?;
        give(&explained.to_string(), text)
    })
}
