//! The comparison of two results as a self-contained page.

use std::fmt::Write;

use crate::report::{
    Cast, Contest, Dots, Mark, NARROW, Spread, TOGGLE, Unit, WIDE, counted, date, escape, in_order, page,
    ratio_spread,
};
use crate::run::Results;

use super::{Change, Verdict, mean};

/// Returns the page.
pub fn html(old: &Results, new: &Results, changes: &[Change]) -> String {
    let mut body = format!(
        "<header><div><p class=\"over\">TidesDB benchmark</p><h1>Before and after</h1>\n<p class=\"soft\">{}</p></div>{TOGGLE}</header>\n",
        escape(&format!("{}, then {}", about(old), about(new)))
    );
    if old.machine.processor != new.machine.processor || old.machine.file_system != new.machine.file_system {
        body += "<p class=\"big loss\">These results are from different machines.</p>\n";
    }
    body += &summary(changes);
    body += &plot(changes);
    body += &table(changes);
    page("TidesDB benchmark, before and after", &body)
}

fn about(results: &Results) -> String {
    let commit = match results.machine.commit.as_str() {
        "" => String::new(),
        commit => format!(" at {commit}"),
    };
    format!("suite {}{commit} of {}", results.suite, date(results.begun))
}

fn mark(verdict: Verdict) -> Mark {
    match verdict {
        Verdict::Better | Verdict::Repaired => Mark::Win,
        Verdict::Worse | Verdict::Broken => Mark::Loss,
        Verdict::Same | Verdict::Incomparable => Mark::Tie,
    }
}

fn summary(changes: &[Change]) -> String {
    let mut out = "<section class=\"box\" aria-label=\"Summary\">\n<div class=\"cards\">\n".to_owned();
    let count = |verdicts: &[Verdict]| changes.iter().filter(|c| verdicts.contains(&c.verdict)).count();
    for (verdicts, word, class) in [
        (&[Verdict::Worse, Verdict::Broken][..], "regression", Mark::Loss),
        (&[Verdict::Better, Verdict::Repaired], "improvement", Mark::Win),
        (&[Verdict::Same], "row within the noise", Mark::Tie),
        (&[Verdict::Incomparable], "row not comparable", Mark::Tie),
    ] {
        let n = count(verdicts);
        let class = if n == 0 { Mark::Tie } else { class };
        let words = match (n, word.split_once(' ')) {
            (1, _) => word.to_owned(),
            (_, Some((first, rest))) => format!("{first}s {rest}"),
            (_, None) => format!("{word}s"),
        };
        let (class, sign) = (class.word(), if class == Mark::Tie { "" } else { class.sign() });
        let _ = writeln!(
            out,
            "<article class=\"{class}\"><p class=\"times {class}\">{n} <span>{sign}</span></p><p>{words}</p></article>"
        );
    }
    out += "</div>\n";
    if let Some((mean, n)) = mean(changes) {
        let times = Unit::Times.show(mean);
        let _ = writeln!(
            out,
            "<p class=\"soft\">The new one is {times} as fast in the geometric mean of {}.</p>",
            counted(n, "ratio")
        );
    }
    out + "</section>\n"
}

fn plot(changes: &[Change]) -> String {
    let names = in_order(changes.iter().map(|c| c.engine.clone()).collect());
    let cast = Cast { names: &names };
    let mut contests: Vec<Contest> = Vec::new();
    for change in changes {
        let Some(ratio) = change.ratio() else { continue };
        let point = (cast.place(&change.engine), ratio_spread(ratio, mark(change.verdict)));
        match contests.iter_mut().find(|c| c.label == change.row && c.note == change.operation) {
            Some(contest) => contest.points.push(point),
            None => contests.push(Contest {
                label: change.row.clone(),
                note: change.operation.clone(),
                points: vec![point],
            }),
        }
    }
    if contests.is_empty() {
        return String::new();
    }
    let dots =
        Dots { unit: Unit::Times, around_one: Some("the new one"), better: crate::report::Better::Higher };
    let caption =
        "New rate divided by the old one; right of 1\u{d7} is faster. Hollow signs are within the noise.";
    let mut out = format!("<section class=\"plot\"><h2>Ratios</h2><p class=\"soft\">{caption}</p>\n");
    out += &dots.draw(&contests, &cast, WIDE).inline("Ratios", caption, "wide");
    out += &dots.draw(&contests, &cast, NARROW).inline("Ratios", caption, "narrow");
    out + "</section>\n"
}

fn table(changes: &[Change]) -> String {
    let mut out = "<section id=\"figures\"><h2>All figures</h2>\n\
                   <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All figures\"><table id=\"all\">\n<thead><tr>"
        .to_owned();
    for head in ["row", "operation", "engine", "", "old", "range", "new", "range", "ratio", "verdict"] {
        let _ = write!(out, "<th scope=\"col\">{head}</th>");
    }
    out += "</tr></thead>\n<tbody>\n";
    for change in changes {
        let rate = |r: Option<Spread>| r.map_or_else(String::new, |r| Unit::Rate.show(r.median));
        let range = |r: Option<Spread>| match r {
            Some(r) if r.low < r.high => {
                format!("{}\u{2013}{}", Unit::Rate.show(r.low), Unit::Rate.show(r.high))
            }
            _ => String::new(),
        };
        let ((old, new), mark) = (change.rates, mark(change.verdict));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{}</td><td class=\"{class}\">{} {}</td></tr>",
            escape(&change.row),
            escape(&change.operation),
            escape(&change.engine),
            rate(old),
            range(old),
            rate(new),
            range(new),
            change.ratio().map_or_else(String::new, |ratio| Unit::Times.show(ratio)),
            if mark == Mark::Tie { "" } else { mark.sign() },
            change.verdict.word().to_lowercase(),
            class = mark.word(),
        );
    }
    out + "</tbody></table></div></section>\n"
}
