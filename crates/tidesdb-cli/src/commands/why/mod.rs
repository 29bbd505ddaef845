//! `tidesdb why`: what was slow at a moment, or did not work, and why.
//!
//! ```text
//! stretch    a stretch of the history
//! tree       the tree of a moment
//! case       what is looked at, and what can be found
//! evidence   what shows an answer
//! answer     which answer it is
//! ```

mod stretch;
mod tree;
mod case;
mod evidence;
mod answer;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::stats::writer_json;
use crate::failure::{Exit, Failure, Outcome};
use crate::look::events::Events;
use crate::look::{Watcher, clock};
use crate::output::{Out, Style};
use crate::session::{Common, Place, Target, duration};
use answer::Answer;
use case::{Case, Verdict};

const DAY: u64 = 86_400_000;
/// A moment that is given to the second is looked at with so many milliseconds before and after it.
const AROUND: u64 = 5000;

/// Say what was slow or did not work at a moment, and why
///
/// Answers in one sentence, then shows what it rests on: waits by cause, what ran, what filled, the tree of that moment, what ended it. It reads the
/// figures of each second of the last hour and of each minute of the last day, and the event log, also of a process that is dead; it opens
/// nothing. Without --at it answers for the worst moment of the last hour.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Why {
    #[command(flatten)]
    target: Target,
    /// The moment, in UTC: 14:03, 14:03:20, 2026-11-29T14:03:20Z, or -10m for ten minutes ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<String>,
}

impl Why {
    pub(crate) fn run(&self, place: &Place, common: &Common, out: &mut Out<'_>) -> Outcome {
        let place = place.or_at(self.target.dir.as_ref());
        let path = place.path()?;
        let look = Watcher::new(path).look_back()?;
        let events = Events::read(path, &look.figures);
        let case = Case { look: &look, events: &events };
        let answer = match &self.at {
            Some(text) => {
                let (from, to) = moment(text, look.now).map_err(Failure::usage)?;
                case.between(from, to)
            }
            None => case.worst(),
        };
        if common.json {
            let mut all = object(&answer);
            all.insert("figures_of".into(), writer_json(&look.figures));
            out.json(&all.into())?;
        } else {
            print(&answer, self.at.is_none(), out)?;
        }
        Ok(Exit::Done)
    }
}

/// Returns the time that `text` names, in milliseconds since the UNIX epoch. A time of the day is that of today, or of yesterday if it is still to
/// come.
fn moment(text: &str, now: u64) -> Result<(u64, u64), String> {
    let around = |at: u64| (at.saturating_sub(AROUND), at.saturating_add(AROUND));
    if let Some(back) = text.strip_prefix('-') {
        let back = u64::try_from(duration(back)?.as_millis()).unwrap_or(u64::MAX);
        return Ok(around(now.saturating_sub(back)));
    }
    if let Some(at) = clock::parse_rfc3339(text) {
        return match at <= now {
            true => Ok(around(at)),
            false => Err(format!("{text} is still to come: it is {} now", clock::moment(now, now))),
        };
    }
    let bad =
        || format!("{text:?} is no time; write 14:03, 14:03:20, 2026-11-29T14:03:20Z (all UTC) or -10m");
    let (secs, span) = clock::parse_clock(text).ok_or_else(bad)?;
    let today = now - now % DAY;
    let mut at = today + secs.unsigned_abs() * 1000;
    if at > now {
        at = at.checked_sub(DAY).ok_or_else(bad)?;
    }
    Ok(if span == 60 { (at, at + 60_000) } else { around(at) })
}

fn print(answer: &Answer, is_worst: bool, out: &mut Out<'_>) -> Outcome<()> {
    let style = match answer.verdict {
        Verdict::Fine | Verdict::Idle => Style::Good,
        Verdict::Closed | Verdict::NotRecorded => Style::Strong,
        _ => Style::Bad,
    };
    out.line(out.paint(style, &answer.sentence))?;
    if is_worst && answer.verdict == Verdict::Fine {
        return Ok(());
    }
    answer
        .evidence
        .iter()
        .try_for_each(|(label, text)| out.line(format!("  {label:<8} {}", out.name(text))))?;
    if let Some(next) = next(answer.verdict) {
        out.line(format!("  {:<8} {next}", "next"))?;
    }
    Ok(())
}

/// What to do next.
fn next(verdict: Verdict) -> Option<&'static str> {
    Some(match verdict {
        Verdict::Poisoned => {
            "look at the disk (dmesg, SMART), then restart the program: docs/operate/crash.md"
        }
        Verdict::Ended => {
            "find out why it ended (its output, dmesg), and start it again: the next open recovers"
        }
        Verdict::Stopped | Verdict::Hidden => {
            "who sent SIGSTOP? is the machine overloaded, or its disk hung? `dmesg`, `iostat -x 1`"
        }
        Verdict::Space => "make room: docs/operate/disk.md",
        Verdict::Degraded => "docs/operate/monitoring.md#degraded says what to do for each",
        Verdict::Waits => {
            "docs/concepts/pacing.md#the-causes says what to do about each; `tidesdb doctor` looks at now"
        }
        Verdict::SlowSyncs => {
            "what else uses that disk? `iostat -x 1`; a sync that waits holds up the commits that need it"
        }
        Verdict::Slow => "`tidesdb top` shows whether it goes on; a read may have come from a cold disk",
        _ => return None,
    })
}

fn object(answer: &Answer) -> Map<String, Value> {
    let evidence = answer.evidence.iter().map(|(label, text)| json!({ "what": label, "text": text }));
    let all = json!({
        "verdict": answer.verdict.name(),
        "answer": answer.sentence,
        "from_millis": answer.from,
        "to_millis": answer.to,
        "evidence": evidence.collect::<Vec<_>>(),
        "next": next(answer.verdict),
    });
    match all {
        Value::Object(all) => all,
        _ => Map::new(),
    }
}
