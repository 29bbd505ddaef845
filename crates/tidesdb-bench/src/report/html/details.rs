//! The table of all figures, with filters for wins, ties, losses and failures.

use std::fmt::Write;

use super::super::lines::{Line, OURS, Spread};
use super::super::score::Score;
use super::super::words::{DASH, Unit, escape, figure};

const HEAD: [&str; 11] = [
    "row",
    "operation",
    "class",
    "engine",
    "ops/s",
    "range",
    "tidesdb / rival",
    "p50",
    "p99",
    "p99.9",
    "CPU s/M",
];

/// Returns the table.
pub(super) fn table(lines: &[Line], names: &[String], score: &Score) -> String {
    let mut out = "<section id=\"figures\"><h2>All figures</h2>\n\
                   <p class=\"soft\">Medians over the repetitions, with their ranges. The ratio says how many times as fast as the rival tidesdb is; \
                   a tie if the ranges overlap or the medians differ by less than 3 %.</p>\n\
                   <div id=\"filter\" role=\"group\" aria-label=\"Show\" hidden>"
        .to_owned();
    for (value, word) in
        [("", "all"), ("win", "wins"), ("tie", "ties"), ("loss", "losses"), ("failed", "failures")]
    {
        let pressed = value.is_empty();
        let _ = write!(
            out,
            "<button type=\"button\" data-show=\"{value}\" aria-pressed=\"{pressed}\">{word}</button>"
        );
    }
    out += "</div>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"All figures\"><table id=\"all\">\n<thead><tr>";
    HEAD.iter().for_each(|head| out += &format!("<th scope=\"col\">{head}</th>"));
    out += "<th scope=\"col\">memory</th></tr></thead>\n";
    let mut rows: Vec<&str> = Vec::new();
    for line in lines {
        if !rows.contains(&line.row.as_str()) {
            rows.push(&line.row);
        }
    }
    rows.into_iter().for_each(|row| out += &row_groups(lines, row, names, score));
    out + "</table></div></section>\n"
}

/// Returns all operations of a row, and then the engines that failed it.
fn row_groups(lines: &[Line], row: &str, names: &[String], score: &Score) -> String {
    let of_row: Vec<&Line> = lines.iter().filter(|l| l.row == row).collect();
    let mut operations: Vec<&str> = Vec::new();
    for line in of_row.iter().filter(|l| l.is_measured()) {
        if !operations.contains(&line.operation.as_str()) {
            operations.push(&line.operation);
        }
    }
    let mut out = String::new();
    for operation in operations {
        let mut group: Vec<&Line> =
            of_row.iter().copied().filter(|l| l.is_measured() && l.operation == operation).collect();
        group.sort_by_key(|l| names.iter().position(|name| *name == l.engine));
        out += &body(&group, score);
    }
    for line in of_row.iter().filter(|l| !l.is_measured()) {
        let (class, word) = match line.failure {
            Some(_) => ("failed", "FAILED"),
            None => ("soft", "not offered"),
        };
        let why = line.failure.as_ref().or(line.absent.as_ref());
        let _ = writeln!(
            out,
            "<tbody data-marks=\"{class}\"><tr><th scope=\"row\">{}</th><td>{DASH}</td><td>{}</td><td>{}</td>\
             <td colspan=\"8\" class=\"why {class}\"><b>{word}</b> {}</td></tr></tbody>",
            escape(&line.row),
            line.spec.durability.name(),
            escape(&line.engine),
            escape(why.map_or("", String::as_str))
        );
    }
    out
}

/// Returns one operation of a row on all engines.
fn body(group: &[&Line], score: &Score) -> String {
    let duels: Vec<_> = group.iter().map(|l| score.duel(&l.row, &l.operation, &l.engine)).collect();
    let mut marks: Vec<&str> = duels.iter().flatten().map(|d| d.ratio.mark.word()).collect();
    marks.sort_unstable();
    marks.dedup();
    let mut out = format!("<tbody data-marks=\"{}\">\n", marks.join(" "));
    for (i, (line, duel)) in group.iter().zip(duels).enumerate() {
        let ratio = match duel {
            Some(duel) => {
                let (word, sign) = (duel.ratio.mark.word(), duel.ratio.mark.sign());
                let times = Unit::Times.show(duel.ratio.value);
                format!("<td class=\"{word}\">{times} <span>{sign}</span> {word}</td>")
            }
            None => "<td></td>".to_owned(),
        };
        let (row, operation, class) = match i {
            0 => (escape(&line.row), escape(&line.operation), line.spec.durability.name()),
            _ => (String::new(), String::new(), ""),
        };
        let ours = if line.engine == OURS { " class=\"ours\"" } else { "" };
        let micros = |s: &Spread| if s.is_there() { Unit::Micros.show(s.median) } else { String::new() };
        let conflicts = line.conflicts.map_or_else(String::new, |s| {
            format!(" <span class=\"soft\">{} conflicts</span>", Unit::Percent.show(s.median))
        });
        let range = match line.rate.low == line.rate.high {
            true => String::new(),
            false => format!("{}{DASH}{}", Unit::Rate.show(line.rate.low), Unit::Rate.show(line.rate.high)),
        };
        let _ = writeln!(
            out,
            "<tr{ours}><th scope=\"row\">{row}</th><td>{operation}</td><td>{class}</td><td>{}{conflicts}</td><td>{}</td><td>{range}</td>{ratio}\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&line.engine),
            Unit::Rate.show(line.rate.median),
            micros(&line.p50),
            micros(&line.p99),
            micros(&line.p999),
            figure(line.processor.median),
            Unit::Bytes.show(line.memory.median)
        );
    }
    out + "</tbody>\n"
}
