//! Plots of made-up results: which of them are drawn, their findings, and that the drawings are well-formed.

use roxmltree::{Document, Node};

use super::super::fixture;
use super::super::lines::{engines, lines};
use super::*;

fn made(suite: &str) -> (Vec<Plot>, Vec<(usize, &'static str)>) {
    let results = fixture::results(suite);
    let all = lines(&results);
    plots(&all, &engines(&results), &Score::of(&all))
}

fn classes<'a>(node: Node<'a, '_>) -> Vec<&'a str> {
    node.attribute("class").unwrap_or_default().split_whitespace().collect()
}

#[test]
fn plots_are_drawn_if_and_only_if_they_have_figures() {
    let (plots, missing) = made("quick");
    assert_eq!(plots.iter().map(|p| p.number).collect::<Vec<_>>(), (1..=17).collect::<Vec<_>>());
    assert_eq!(missing.iter().map(|m| m.0).collect::<Vec<_>>(), [18], "no row has a timeline");
    for plot in &plots {
        assert!(plot.caption.contains("is better"), "{}", plot.caption);
        assert!(plot.finding.contains("tidesdb wins"), "{}: {}", plot.slug, plot.finding);
    }
    let (plots, missing) = made("ycsb");
    let missing: Vec<usize> = missing.iter().map(|(number, _)| *number).collect();
    assert_eq!(missing, [4, 5, 7, 8, 17, 18], "blends have no deletes, no seeks and no scaling rows");
    assert_eq!(plots.len() + missing.len(), 18);
}

#[test]
fn drawings_are_well_formed_and_inside_their_frames() {
    let plots = [made("quick").0, made("beyond-memory").0].concat();
    for chart in plots.iter().flat_map(|p| &p.charts) {
        for (canvas, class) in [(&chart.wide, "wide"), (&chart.narrow, "narrow")] {
            let text = canvas.inline("name", "about", class);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            let document = Document::parse(&text).unwrap();
            for node in document.descendants().filter(|n| n.has_attribute("x") || n.has_attribute("x1")) {
                let number = |name: &str| node.attribute(name).map(|n| n.parse::<f64>().unwrap());
                let x = number("x").or(number("x1")).unwrap();
                assert!((-1.0..=canvas.width + 1.0).contains(&x), "{node:?} in {}", canvas.width);
                let y = number("y").or(number("y1")).unwrap();
                assert!((-1.0..=canvas.height + 1.0).contains(&y), "{node:?} in {}", canvas.height);
            }
        }
    }
}

#[test]
fn a_plot_has_a_sign_for_each_engine_and_row_and_a_verdict() {
    let (plots, _) = made("quick");
    let seeks = plots.iter().find(|p| p.slug == "seeks").unwrap();
    let text = seeks.charts[0].wide.inline("", "", "");
    let document = Document::parse(&text).unwrap();
    let signs = document.descendants().filter(|n| n.has_tag_name("path") && classes(*n).contains(&"mark"));
    // Six signs in the legend and six in the only row: this engine, four rivals and one losing rival. The yardstick is
    // excluded.
    assert_eq!(signs.clone().count(), 12);
    assert_eq!(signs.filter(|n| n.children().any(|c| c.has_tag_name("title"))).count(), 6);
    let verdicts: Vec<&str> = document
        .descendants()
        .filter(|n| n.has_tag_name("text") && classes(*n).contains(&"loss"))
        .filter_map(|n| n.text())
        .collect();
    assert_eq!(verdicts.len(), 1);
    assert!(verdicts[0].ends_with('\u{25bc}'), "the sign must show a loss without colour: {verdicts:?}");
    assert!(seeks.finding.contains("loses 1 (to gamma)"), "{}", seeks.finding);
}

#[test]
fn seconds_have_a_line_for_each_engine_and_one_for_the_device() {
    let (plots, _) = made("beyond-memory");
    let seconds = plots.iter().find(|p| p.slug == "seconds").unwrap();
    assert_eq!(seconds.charts.len(), 7);
    let paths = |chart: &Chart, class: &str| {
        let text = chart.wide.inline("", "", "");
        let document = Document::parse(&text).unwrap();
        let mut runs =
            document.descendants().filter(|n| classes(*n).starts_with(&["run"])).collect::<Vec<_>>();
        runs.retain(|n| classes(*n).contains(&"limit") == (class == "limit"));
        runs.len()
    };
    let slugs: Vec<&str> = seconds.charts.iter().map(|c| c.slug).collect();
    assert_eq!(slugs, ["throughput", "slowest", "read", "written", "resident", "files", "debt"]);
    let (churn, _) = made("churn");
    let churn = churn.iter().find(|p| p.slug == "seconds").unwrap();
    assert!(churn.charts.iter().any(|c| c.slug == "space"), "the row counts the bytes that exist");
    // Six engines in six rows, which have twelve kinds of operations, including ITER. One engine failed in the row with
    // two kinds; one does not offer the row with three.
    let (runs, limits) = (paths(&seconds.charts[0], "run"), paths(&seconds.charts[0], "limit"));
    assert_eq!((runs, limits), (6 * 12 - 2 - 3, 6 * 9 - 2 - 2), "puts have no limit");
    assert_eq!(paths(&seconds.charts[1], "run"), runs);
    let files = &seconds.charts[5];
    assert_eq!(
        (paths(files, "run"), paths(files, "limit")),
        (6 * 6 - 1 - 1, 0),
        "the kinds of a row share its files"
    );
}

#[test]
fn ratios_are_drawn_on_the_correct_side_of_one() {
    let (plots, _) = made("quick");
    let text = plots[0].charts[0].wide.inline("", "", "");
    let document = Document::parse(&text).unwrap();
    let one = document.descendants().find(|n| classes(*n) == ["one"]).unwrap();
    let one: f64 = one.attribute("x1").unwrap().parse().unwrap();
    let (mut faster, mut slower) = (0, 0);
    for sign in document.descendants().filter(|n| n.has_tag_name("path")) {
        let Some(title) = sign.children().find(|c| c.has_tag_name("title")).and_then(|t| t.text()) else {
            continue;
        };
        let place = sign.attribute("transform").unwrap();
        let x: f64 = place["translate(".len()..].split(' ').next().unwrap().parse().unwrap();
        if title.ends_with("win") {
            faster += 1;
            assert!(x > one, "{title}");
        }
        if title.ends_with("loss") {
            slower += 1;
            assert!(x < one, "{title}");
        }
        assert_eq!(classes(sign).contains(&"hollow"), title.ends_with("tie"), "{title}");
    }
    assert!(faster > 100 && slower > 20, "{faster} {slower}");
}

#[test]
fn scaling_plots_are_ordered_by_the_setting() {
    let (plots, _) = made("quick");
    for (slug, labels) in [
        ("batches", &["1", "10", "100", "1k", "10k"][..]),
        ("values", &["16 B", "64 B", "256 B", "1024 B", "4096 B"]),
        ("threads", &["1", "4", "8", "16"]),
    ] {
        let text = plots.iter().find(|p| p.slug == slug).unwrap().charts[0].wide.inline("", "", "");
        let document = Document::parse(&text).unwrap();
        let ticks: Vec<(f64, &str)> = document
            .descendants()
            .filter(|n| n.has_tag_name("text") && classes(*n) == ["soft", "small", "mid"])
            .filter_map(|n| Some((n.attribute("x")?.parse().ok()?, n.text()?)))
            .collect();
        let found = ticks
            .windows(labels.len())
            .any(|w| w.iter().map(|t| t.1).eq(labels.iter().copied()) && w.is_sorted_by(|a, b| a.0 < b.0));
        assert!(found, "{slug}: {ticks:?}");
    }
}
