//! Table of the targets of a suite.

use std::fmt::Write;

use super::super::lines::{Line, OURS};
use super::super::watched::targets;
use super::super::words::escape;

/// Formats a section for each rival; empty for suites without targets.
pub(super) fn goals(lines: &[Line]) -> String {
    let mut out = String::new();
    for (rival, targets) in targets(lines) {
        let _ = writeln!(
            out,
            "<section class=\"plot\"><h2>Targets against {0}</h2><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"Targets\"><table><thead><tr><th scope=\"col\">target</th><th scope=\"col\">{OURS}</th><th scope=\"col\">{0}</th>\
             <th scope=\"col\">ratio</th><th scope=\"col\">wanted</th><th scope=\"col\">verdict</th></tr></thead><tbody>",
            escape(&rival)
        );
        for target in targets {
            let class = match target.met {
                None if target.wanted.is_empty() => "",
                Some(true) => "win",
                Some(false) => "loss",
                None => "tie",
            };
            let cells =
                [&target.ours, &target.rival, &target.stands, &target.wanted].map(|cell| escape(cell));
            let _ = writeln!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"{class}\">{}</td></tr>",
                escape(&target.what),
                cells.join("</td><td>"),
                target.verdict()
            );
        }
        out += "</tbody></table></div></section>\n";
    }
    out
}
