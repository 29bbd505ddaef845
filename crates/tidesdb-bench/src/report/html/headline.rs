//! The first box: the comparison with each rival, overall and by kind of operation.

use std::fmt::Write;

use crate::run::Results;
use crate::spec::Durability;

use super::super::lines::{Line, OURS, YARDSTICK};
use super::super::score::{Mark, Score, TIE, Tally};
use super::super::svg::Canvas;
use super::super::table::class_words;
use super::super::words::{DASH, Unit, counted, escape};

/// Returns the box.
pub(super) fn headline(results: &Results, lines: &[Line], names: &[String], score: &Score) -> String {
    let mut out = "<section class=\"box\" aria-label=\"Summary\">\n".to_owned();
    if score.duels.is_empty() {
        out += &without_rivals(names);
    }
    for class in score.classes() {
        out += &cards(score, class);
        out += &matrix(score, class);
    }
    out += &failures(results, lines, score);
    out + "</section>\n"
}

fn without_rivals(names: &[String]) -> String {
    let others: Vec<String> =
        names.iter().filter(|name| *name != OURS && *name != YARDSTICK).map(|name| escape(name)).collect();
    let why = match others.is_empty() {
        true => "No rival was measured.".to_owned(),
        false => format!("No row can be compared with {}.", others.join(", ")),
    };
    format!("<p class=\"big\">{why}</p><p class=\"soft\">The figures below are without comparison.</p>\n")
}

/// Returns the mark of a mean, without regard to noise.
fn mark(mean: f64) -> Mark {
    match mean {
        n if n >= 1.0 + TIE => Mark::Win,
        n if n <= 1.0 / (1.0 + TIE) => Mark::Loss,
        _ => Mark::Tie,
    }
}

fn cards(score: &Score, class: Durability) -> String {
    let mut out = format!(
        "<h2 class=\"class\">Durability class {}<span class=\"soft\"> {DASH} {}</span></h2>\n<div class=\"cards\">\n",
        class.name(),
        class_words(class)
    );
    for rival in &score.rivals {
        let Some(mean) = score.mean(class, rival) else { continue };
        let mark = mark(mean);
        let words = match mark {
            Mark::Win => "as fast (geomean)",
            Mark::Tie => "as fast (geomean), a tie",
            Mark::Loss => "as fast (geomean), slower",
        };
        let tally = score.tally(class, rival);
        let counts = format!(
            "<span class=\"win\">{} {}</span> <span class=\"tie\">{} {}</span> <span class=\"loss\">{} {}</span>",
            tally.wins,
            if tally.wins == 1 { "win" } else { "wins" },
            tally.ties,
            if tally.ties == 1 { "tie" } else { "ties" },
            tally.losses,
            if tally.losses == 1 { "loss" } else { "losses" }
        );
        let _ = writeln!(
            out,
            "<article class=\"{word}\"><h3>vs {rival}</h3><p class=\"times {word}\">{times} <span>{sign}</span></p>\
             <p class=\"soft\">{words}</p>{bar}<p class=\"counts\">{counts}</p></article>",
            word = mark.word(),
            rival = escape(rival),
            times = Unit::Times.show(mean),
            sign = mark.sign(),
            bar = bar(&tally),
        );
    }
    out + "</div>\n"
}

/// Returns wins, ties and losses as parts of a bar.
fn bar(tally: &Tally) -> String {
    const WIDTH: f64 = 200.0;
    let mut canvas = Canvas::new(WIDTH, 8.0);
    let mut x = 0.0;
    for (n, class) in [(tally.wins, "win"), (tally.ties, "tie"), (tally.losses, "loss")] {
        let part = WIDTH * n as f64 / tally.total().max(1) as f64;
        canvas.rect((x, 0.0), ((part - 1.0).max(0.0), 8.0), class);
        x += part;
    }
    let words = format!("{} wins, {} ties, {} losses", tally.wins, tally.ties, tally.losses);
    canvas.inline(&words, "", "bar")
}

/// Returns the means by kind of operation and rival.
fn matrix(score: &Score, class: Durability) -> String {
    let rivals: Vec<&String> =
        score.rivals.iter().filter(|rival| score.against(class, rival).next().is_some()).collect();
    let mut out = "<p class=\"soft above\">Geometric means of tidesdb / rival by kind of operation; above 1\u{d7} tidesdb is faster.</p>\n\
                   <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Means by kind\"><table class=\"matrix\">\n<thead><tr><th scope=\"col\">kind</th>"
        .to_owned();
    rivals.iter().for_each(|rival| out += &format!("<th scope=\"col\">{}</th>", escape(rival)));
    out += "</tr></thead>\n<tbody>\n";
    for kind in score.kinds(class) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(kind));
        for rival in &rivals {
            out += &match score.mean_of(class, rival, kind) {
                Some(mean) => {
                    let mark = mark(mean);
                    let (word, sign) = (mark.word(), mark.sign());
                    format!("<td class=\"{word}\">{} <span>{sign}</span></td>", Unit::Times.show(mean))
                }
                None => format!("<td>{DASH}</td>"),
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

/// Returns rows that failed, rows that are not offered, and comparisons excluded from all means.
fn failures(results: &Results, lines: &[Line], score: &Score) -> String {
    let mut out = String::new();
    let failed: Vec<&Line> = lines.iter().filter(|l| l.failure.is_some()).collect();
    if !failed.is_empty() {
        let of = results.outcomes.len();
        let runs = results.outcomes.iter().filter(|o| o.failure.is_some()).count();
        let title = format!("{} failed ({runs} of {of} runs)", counted(failed.len(), "row"));
        let of = |l: &&Line| (l.engine.clone(), l.failure.clone().unwrap_or_default(), l.row.clone());
        out += &grouped(&title, "failed", "on", failed.iter().map(of));
    }
    let absent: Vec<&Line> = lines.iter().filter(|l| l.absent.is_some()).collect();
    if !absent.is_empty() {
        let title = format!("{} not offered", counted(absent.len(), "row"));
        let of = |l: &&Line| (l.engine.clone(), l.absent.clone().unwrap_or_default(), l.row.clone());
        out += &grouped(&title, "", "by", absent.iter().map(of));
    }
    if !score.left_out.is_empty() {
        let title = format!("{} in no mean", counted(score.left_out.len(), "comparison"));
        let all = score.left_out.iter().map(|l| (l.rival.clone(), l.reason.clone(), l.row.clone()));
        out += &grouped(&title, "", "against", all);
    }
    out
}

/// Returns rows by engine and reason.
fn grouped(
    title: &str,
    class: &str,
    word: &str,
    all: impl Iterator<Item = (String, String, String)>,
) -> String {
    let mut groups: Vec<(String, String, Vec<String>)> = Vec::new();
    for (engine, why, row) in all {
        match groups.iter_mut().find(|g| g.0 == engine && g.1 == why) {
            Some(group) => group.2.push(row),
            None => groups.push((engine, why, vec![row])),
        }
    }
    let mut out = format!("<details class=\"{class}\"><summary>{title}</summary><ul>\n");
    for (engine, why, rows) in groups {
        let rows = rows.join(", ");
        let (engine, why, rows) = (escape(&engine), escape(&why), escape(&rows));
        let _ = writeln!(out, "<li><b>{word} {engine}</b>: {why}<br><span class=\"soft\">{rows}</span></li>");
    }
    out + "</ul></details>\n"
}
