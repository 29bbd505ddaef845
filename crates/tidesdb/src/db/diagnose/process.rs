//! Rules about the process that writes, its disk and its clock.

use std::time::Duration;

use super::super::WriterState;
use super::{Evidence, Finding, Severity, finding, size, time};
use crate::health::HealthState;

pub(super) fn poisoned(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.health.state == HealthState::Poisoned).then_some(())?;
    finding(
        (Severity::Urgent, "poisoned"),
        "all writes are refused",
        seen.health.causes.clone(),
        [
            "a write or a sync of the log failed, so nobody knows what is on the disk until the database is opened again",
            "look at the disk (dmesg, SMART), then restart the program: docs/operate/crash.md",
            "the time of an open; acknowledged commits are recovered",
        ],
    )
}

pub(super) fn ended(seen: &Evidence<'_>) -> Option<Finding> {
    let (state, age) = seen.writer.filter(|(state, _)| state.has_ended())?;
    finding(
        (Severity::Urgent, "ended"),
        format!("the process that wrote the database {state}"),
        vec![format!(
            "its last figures are {} old; the log that the next open replays has {}",
            time(age),
            size(seen.stats.wal_live_bytes)
        )],
        [
            "it was killed, or it crashed; no process writes the database now",
            "find out why (its output, dmesg for the killer of the kernel), and start it again",
            "the next open replays the log; commits that were acknowledged as durable are there",
        ],
    )
}

pub(super) fn stopped(seen: &Evidence<'_>) -> Option<Finding> {
    let (_, age) = seen.writer.filter(|(state, _)| *state == WriterState::Stopped)?;
    finding(
        (Severity::Urgent, "stopped"),
        "the process that writes is stopped by a signal or a debugger",
        vec![format!("its last figures are {} old", time(age))],
        [
            "somebody sent SIGSTOP or SIGTSTP (Ctrl-Z in its terminal), or a debugger holds it",
            "let it go on: kill -CONT and its number, fg in its terminal, or detach the debugger",
            "nothing",
        ],
    )
}

pub(super) fn degraded(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.health.state == HealthState::Degraded).then_some(())?;
    finding(
        (Severity::Urgent, "degraded"),
        "a part of the database does not work",
        seen.health.causes.clone(),
        match seen.health.causes.iter().any(|cause| cause.contains("must be free")) {
            true => [
                "the disk has less space than disk_free_min, which commits that store data leave free",
                "make room on the disk, or delete rows: deletes and flushes still work; docs/operate/disk.md#a-full-disk",
                "nothing; commits go on as soon as there is room",
            ],
            false => [
                "reads work; what does not is above",
                "the table of docs/operate/monitoring.md#degraded says what to do for each",
                "see there",
            ],
        },
    )
}

/// A process that runs and works publishes at least this often, also with ten thousand families.
const STALE: Duration = Duration::from_secs(30);

pub(super) fn hung_sync(seen: &Evidence<'_>) -> Option<Finding> {
    let runs = seen.stats.sync_running_seconds;
    (runs >= Duration::from_secs(2)).then_some(())?;
    finding(
        (Severity::Urgent, "hung-sync"),
        "a sync of the log does not end: commits wait for the disk",
        vec![format!(
            "it has run for {}; the longest before took {}",
            time(runs),
            time(seen.stats.syncs.longest)
        )],
        [
            "the device or its controller hangs, or another program fills the queue of the disk",
            "dmesg, iostat -x 1; if it never ends, only a restart of the machine helps",
            "nothing is lost: what was acknowledged is in the log",
        ],
    )
}

/// The figures of a process that runs and works are at most some seconds old.
pub(super) fn stale(seen: &Evidence<'_>) -> Option<Finding> {
    let (_, age) = seen.writer.filter(|(state, age)| *state == WriterState::Running && *age > STALE)?;
    finding(
        (Severity::Problem, "stale"),
        "the process that writes runs, and has published nothing for some time",
        vec![format!("its figures are {} old", time(age))],
        [
            "its disk does not take writes, or is full, or the process gets no processor time; all below is of that time",
            "look at the disk and the load of the machine",
            "nothing",
        ],
    )
}

/// The wall clock went back between two minutes.
pub(super) fn clock(seen: &Evidence<'_>) -> Option<Finding> {
    let samples = &seen.history?.samples;
    let back = samples
        .windows(2)
        .filter_map(|pair| pair[0].millis.checked_sub(pair[1].millis))
        .filter(|back| *back > 1000);
    let most = back.max()?;
    finding(
        (Severity::Advice, "clock"),
        "the clock of the machine went back",
        vec![format!(
            "by {} or up to a minute more, between two minutes of the history",
            time(Duration::from_millis(most))
        )],
        [
            "it was set by hand or by a time service; rows with a TTL live longer by as much",
            "let the time service slew the clock in place of steps",
            "nothing",
        ],
    )
}

pub(super) fn events_lost(seen: &Evidence<'_>) -> Option<Finding> {
    (seen.stats.events_lost > 0).then_some(())?;
    finding(
        (Severity::Advice, "events-lost"),
        "lines of the event log are lost",
        vec![format!("{} of {} events", seen.stats.events_lost, seen.stats.events)],
        [
            "the disk was full or failed when they were written, or too many came at once",
            "look at the disk",
            "nothing",
        ],
    )
}

/// A process that has nearly as many files open as it may.
pub(super) fn descriptors(seen: &Evidence<'_>) -> Option<Finding> {
    let (open, limit) = seen.around.descriptors?;
    (open > 256 && open > limit / 10 * 9).then_some(())?;
    finding(
        (Severity::Problem, "descriptors"),
        "the process has nearly as many files open as it may",
        vec![format!("{open} of {limit} descriptors")],
        [
            "the database uses at most half of them; the rest are files and sockets of the program, or other databases",
            "raise the limit (ulimit -n, LimitNOFILE of systemd), or find what the program leaves open: ls -l /proc/PID/fd",
            "nothing; at the limit, opens of files and connections fail",
        ],
    )
}
