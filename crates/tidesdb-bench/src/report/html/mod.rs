//! The report as a self-contained page: styles, script and drawings are inside, and its policy forbids the
//! browser to fetch anything.

mod headline;
mod goals;
mod details;
mod about;

use std::fmt::Write;

use crate::run::Results;

use super::lines::{engines, lines};
use super::plots::{Plot, plots};
use super::score::Score;
use super::svg::theme;
use super::words::{date, escape};

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// Returns the report as HTML.
pub fn html(results: &Results) -> String {
    let all = lines(results);
    let names = engines(results);
    let score = Score::of(&all);
    let (plots, missing) = plots(&all, &names, &score);
    let mut body = head(results);
    body += &headline::headline(results, &all, &names, &score);
    body += &goals::goals(&all);
    body += &contents(&plots);
    plots.iter().for_each(|plot| body += &figure(plot));
    body += &left_out(&missing);
    body += &details::table(&all, &names, &score);
    body += &about::about(results, &all, &names);
    page(&format!("TidesDB benchmark, suite {}", results.suite), &body)
}

/// Returns the drawings as files: name and content.
pub fn plot_files(results: &Results) -> Vec<(String, String)> {
    let all = lines(results);
    let names = engines(results);
    let (plots, _) = plots(&all, &names, &Score::of(&all));
    let mut files = Vec::new();
    for plot in &plots {
        for chart in &plot.charts {
            let dash = if chart.slug.is_empty() { "" } else { "-" };
            let name = format!("{:02}-{}{dash}{}.svg", plot.number, plot.slug, chart.slug);
            let title = if chart.title.is_empty() { plot.title } else { chart.title };
            files.push((name, theme::file(&chart.wide, title, plot.caption)));
        }
    }
    files
}

/// Returns a page with this title and body.
pub(crate) fn page(title: &str, body: &str) -> String {
    let (light, dark, chart) = (theme::LIGHT, theme::DARK, theme::CHART);
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n:root{{{light}color-scheme:light}}\n\
         @media (prefers-color-scheme:dark){{:root{{{dark}color-scheme:dark}}}}\n\
         :root[data-theme=light]{{{light}color-scheme:light}}\n:root[data-theme=dark]{{{dark}color-scheme:dark}}\n\
         {STYLE}{chart}</style>\n</head>\n<body>\n<main>\n{body}</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// The button that changes the colour scheme.
pub(crate) const TOGGLE: &str = "<button id=\"theme\" type=\"button\" hidden>Dark</button>";

fn head(results: &Results) -> String {
    let m = &results.machine;
    let mut words = vec![date(results.begun)];
    words.push(format!("{} \u{d7} {}", m.processors, m.processor));
    words.push(format!("{:.1} GiB", m.memory as f64 / f64::from(1 << 30)));
    words.push(format!("Linux {}, {}", m.kernel, m.file_system));
    format!(
        "<header><div><p class=\"over\">TidesDB benchmark</p><h1>Suite {}</h1>\n<p class=\"soft\">{}</p></div>{TOGGLE}</header>\n",
        escape(&results.suite),
        escape(&words.join(" \u{b7} "))
    )
}

fn contents(plots: &[Plot]) -> String {
    let mut out = "<nav aria-label=\"Contents\"><ol>\n".to_owned();
    for plot in plots {
        let _ =
            writeln!(out, "<li value=\"{}\"><a href=\"#{}\">{}</a></li>", plot.number, plot.slug, plot.title);
    }
    out + "</ol><p><a href=\"#figures\">All figures</a> \u{b7} <a href=\"#environment\">Environment</a> \u{b7} \
           <a href=\"#settings\">Settings</a> \u{b7} <a href=\"#verification\">Verification</a> \u{b7} \
           <a href=\"#method\">Method</a></p></nav>\n"
}

fn figure(plot: &Plot) -> String {
    let mut out = format!(
        "<section class=\"plot\" id=\"{}\"><h2><span class=\"number\">{}</span> {}</h2>\n<p class=\"finding\">{}</p>\n\
         <p class=\"soft\">{}</p>\n",
        plot.slug,
        plot.number,
        plot.title,
        escape(&plot.finding),
        escape(plot.caption)
    );
    for chart in &plot.charts {
        if !chart.title.is_empty() {
            let _ = writeln!(out, "<h3>{}</h3>", chart.title);
        }
        let name = if chart.title.is_empty() { plot.title } else { chart.title };
        let about = format!("{} {}", plot.caption, plot.finding);
        out += &chart.wide.inline(name, &about, "wide");
        out += &chart.narrow.inline(name, &about, "narrow");
    }
    out + "</section>\n"
}

fn left_out(missing: &[(usize, &str)]) -> String {
    if missing.is_empty() {
        return String::new();
    }
    let names: Vec<String> = missing.iter().map(|(number, title)| format!("{number} {title}")).collect();
    format!(
        "<section class=\"plot\"><h2>Not drawn</h2><p class=\"soft\">These results have no figures for: {}.</p></section>\n",
        names.join(", ")
    )
}
