//! A plot of the rows as SVG.

use std::fmt::Write;

use crate::Row;

const COLOURS: [&str; 4] = ["#0b3c66", "#1f6fb2", "#8fb8de", "#d08c3c"];
const PANEL: (f64, f64) = (420.0, 260.0);

/// Bars of write amplification and of peak space, in groups of workloads.
pub(crate) fn svg(rows: &[Row]) -> String {
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 940 360\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"940\" height=\"360\" fill=\"white\"/>\n",
    );
    type Panel = (&'static str, fn(&Row) -> f64);
    let panels: [Panel; 2] = [
        ("write amplification", |row| row.measures.write_amplification),
        ("peak space / live data", |row| row.measures.peak_space),
    ];
    for (at, (title, value)) in panels.into_iter().enumerate() {
        panel(&mut out, 40.0 + at as f64 * (PANEL.0 + 50.0), title, rows, value);
    }
    let policies: Vec<_> = rows.iter().take(COLOURS.len()).map(|row| row.policy).collect();
    for (at, (policy, colour)) in policies.iter().zip(COLOURS).enumerate() {
        let x = 40 + at * 140;
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"340\" width=\"10\" height=\"10\" fill=\"{colour}\"/>");
        let _ = writeln!(out, "<text x=\"{}\" y=\"349\">{policy}</text>", x + 14);
    }
    out + "</svg>\n"
}

fn panel(out: &mut String, left: f64, title: &str, rows: &[Row], value: fn(&Row) -> f64) {
    let most = rows.iter().map(value).fold(1.0, f64::max);
    let (width, height) = PANEL;
    let groups = rows.chunk_by(|a, b| a.workload == b.workload);
    let step = width / groups.clone().count() as f64;
    let _ = writeln!(out, "<text x=\"{left}\" y=\"22\" font-size=\"13\">{title}</text>");
    for (at, group) in groups.enumerate() {
        let x = left + at as f64 * step;
        for (bar, (row, colour)) in group.iter().zip(COLOURS).enumerate() {
            let tall = value(row) / most * height;
            let (x, y) = (x + bar as f64 * step / 5.0, 40.0 + height - tall);
            let bar = step / 5.0 - 1.0;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{bar:.1}\" height=\"{tall:.1}\" fill=\"{colour}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"7\">{:.2}</text>",
                y - 2.0,
                value(row)
            );
        }
        for (line, word) in group[0].workload.name().split(", ").enumerate() {
            let y = 52.0 + height + line as f64 * 11.0;
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"8\">{word}</text>");
        }
    }
}
