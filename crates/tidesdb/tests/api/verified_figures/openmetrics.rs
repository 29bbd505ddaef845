//! A strict parser of OpenMetrics 1.0: the grammar of its text format, and its rules on names, units, types and histograms.

use std::collections::{BTreeMap, HashSet};

/// A sample.
pub(crate) struct Sample {
    /// Name and labels, as written.
    pub(crate) id: String,
    pub(crate) value: f64,
}

/// What the lines read so far declare of the metric that they are about.
#[derive(Default)]
struct Metric {
    name: String,
    kind: Option<String>,
    has_unit: bool,
    has_help: bool,
    /// Of each set of labels without `le`: buckets with their bounds, `_count`, `_sum`.
    histograms: BTreeMap<String, Histogram>,
    samples: usize,
}

#[derive(Default)]
struct Histogram {
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: Option<f64>,
}

const SUFFIXES: [&str; 8] = ["_total", "_created", "_bucket", "_count", "_sum", "_gcount", "_gsum", "_info"];

/// Returns all samples, or the first rule that is broken and its line.
pub(crate) fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the text does not end with `# EOF`")?;
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("`# EOF` is not a line of its own".into());
    }
    let (mut metric, mut all, mut names, mut ids) = (Metric::default(), vec![], vec![], HashSet::new());
    for line in body.split_terminator('\n') {
        let at = |e: &str| format!("{e}: {line}");
        match line.strip_prefix("# ") {
            Some(rest) => descriptor(&mut metric, &mut names, rest).map_err(|e| at(&e))?,
            None => {
                let (name, labels, value) = sample(line).map_err(|e| at(&e))?;
                let id = line[..line.len() - value.len() - 1].to_owned();
                let value = number(value).ok_or_else(|| at("not a number"))?;
                if !ids.insert((name.to_owned(), labels.iter().cloned().collect::<BTreeMap<_, _>>())) {
                    return Err(at("a sample twice"));
                }
                accept(&mut metric, name, &labels, value).map_err(|e| at(&e))?;
                all.push(Sample { id, value });
            }
        }
    }
    finish(&metric)?;
    let families: HashSet<&String> = names.iter().collect();
    for name in &names {
        for suffix in SUFFIXES {
            if name.strip_suffix(suffix).is_some_and(|base| families.contains(&base.to_owned())) {
                return Err(format!("{name} clashes with the samples of another metric"));
            }
        }
    }
    Ok(all)
}

/// A line `# TYPE`, `# UNIT` or `# HELP`: the first of a name ends the metric before it.
fn descriptor(metric: &mut Metric, names: &mut Vec<String>, rest: &str) -> Result<(), String> {
    let (keyword, rest) = rest.split_once(' ').ok_or("a descriptor without a name")?;
    let (name, text) = rest.split_once(' ').ok_or("a descriptor without a text")?;
    if !is_name(name, true) {
        return Err(format!("{name:?} is not a name"));
    }
    if name != metric.name {
        finish(metric)?;
        if names.iter().any(|known| known == name) {
            return Err("a metric twice".into());
        }
        names.push(name.to_owned());
        *metric = Metric { name: name.to_owned(), ..Metric::default() };
    }
    if metric.samples > 0 {
        return Err("a descriptor after samples of its metric".into());
    }
    let twice = match keyword {
        "TYPE" => {
            let known = ["counter", "gauge", "histogram", "stateset", "info", "unknown"];
            if !known.contains(&text) {
                return Err(format!("{text:?} is not a type"));
            }
            if text == "counter" && name.ends_with("_total") {
                return Err("the name of a counter ends with _total".into());
            }
            metric.kind.replace(text.to_owned()).is_some()
        }
        "UNIT" if !name.ends_with(&format!("_{text}")) => {
            return Err("the name does not end with the unit".into());
        }
        "UNIT" => std::mem::replace(&mut metric.has_unit, true),
        "HELP" if unescaped(text).is_none() => return Err("a text with a false escape".into()),
        "HELP" => std::mem::replace(&mut metric.has_help, true),
        _ => return Err("an unknown descriptor".into()),
    };
    if twice { Err("a descriptor twice".into()) } else { Ok(()) }
}

type Labels = Vec<(String, String)>;

/// Divides a line into name, labels and value. Timestamps and exemplars are not expected.
fn sample(line: &str) -> Result<(&str, Labels, &str), String> {
    let end = line.find(['{', ' ']).ok_or("neither labels nor a value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err(format!("{name:?} is not a name"));
    }
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
            if !is_name(label, false) {
                return Err(format!("{label:?} is not a name"));
            }
            let end = end_of_string(after).ok_or("a string without an end")?;
            let value = unescaped(&after[..end]).ok_or("a text with a false escape")?;
            if labels.iter().any(|(known, _)| known == label) {
                return Err("a label twice".into());
            }
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').ok_or("labels without an end")?;
    }
    let value = rest.strip_prefix(' ').ok_or("no value")?;
    Ok((name, labels, value))
}

/// Checks a sample against the descriptors of its metric.
fn accept(metric: &mut Metric, name: &str, labels: &Labels, value: f64) -> Result<(), String> {
    metric.samples += 1;
    let suffix = name.strip_prefix(metric.name.as_str()).ok_or("a sample of another metric")?;
    let counts = || if value >= 0.0 { Ok(()) } else { Err("a negative or undefined count".to_owned()) };
    match (metric.kind.as_deref().unwrap_or("unknown"), suffix) {
        ("counter", "_total") => counts(),
        ("gauge" | "unknown", "") => Ok(()),
        ("stateset", "") if value != 0.0 && value != 1.0 => Err("a state is neither 0 nor 1".into()),
        ("stateset", "") => match labels.iter().any(|(label, _)| *label == metric.name) {
            true => Ok(()),
            false => Err("a state without its label".into()),
        },
        ("histogram", "_bucket" | "_count" | "_sum") => {
            counts()?;
            let others: Labels = labels.iter().filter(|(label, _)| label != "le").cloned().collect();
            let row = metric.histograms.entry(format!("{others:?}")).or_default();
            let bound = labels.iter().find(|(label, _)| label == "le").map(|(_, bound)| number(bound));
            let twice = match (suffix, bound) {
                ("_bucket", Some(Some(bound))) => {
                    row.buckets.push((bound, value));
                    row.count.is_some() || row.sum.is_some()
                }
                ("_count", None) => row.count.replace(value).is_some(),
                ("_sum", None) => row.sum.replace(value).is_some(),
                _ => return Err("`le` is missing, is not a number, or is not in a bucket".into()),
            };
            if twice { Err("the parts of a histogram are mixed".into()) } else { Ok(()) }
        }
        (kind, suffix) => Err(format!("a {kind} has no sample {suffix:?}")),
    }
}

/// Checks the histograms of a metric.
fn finish(metric: &Metric) -> Result<(), String> {
    for (labels, row) in &metric.histograms {
        let what = |e: &str| Err(format!("{e}: {} {labels}", metric.name));
        if !row.buckets.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1) {
            return what("bounds or counts fall");
        }
        let Some((bound, n)) = row.buckets.last() else { return what("no bucket") };
        if *bound != f64::INFINITY || Some(*n) != row.count || row.sum.is_none() {
            return what("the last bucket is not +Inf with all, or the sum is missing");
        }
    }
    Ok(())
}

fn is_name(text: &str, colon: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || colon && c == ':';
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// Position of the quotation mark that ends a string.
fn end_of_string(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|c| {
        let ends = c == b'"' && !escaped;
        escaped = c == b'\\' && !escaped;
        ends
    })
}

/// The text that an escaped text stands for; `None` if an escape is unknown or a quotation mark is not escaped.
fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                c @ ('"' | '\\') => c,
                _ => return None,
            },
            '"' => return None,
            c => c,
        });
    }
    Some(out)
}

/// A number as the format writes it.
fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E')) => {
            text.parse().ok()
        }
        _ => None,
    }
}

#[test]
fn the_parser_refuses_what_the_format_forbids() {
    let histogram = "# TYPE h_seconds histogram\n# UNIT h_seconds seconds\nh_seconds_bucket{le=\"0.5\"} 1\n\
                     h_seconds_bucket{le=\"+Inf\"} 2\nh_seconds_count 2\nh_seconds_sum 1.5\n";
    let valid = [
        "",
        "# TYPE a gauge\n# HELP a A \\\"text\\\".\na 1\n",
        "# TYPE a counter\na_total{b=\"x\\\\\\n\\\"\",c=\"\"} 1e3\na_total{b=\"y\"} 0\n",
        "# TYPE s stateset\ns{s=\"on\"} 1\ns{s=\"off\"} 0\n",
        histogram,
    ];
    for text in valid {
        assert!(
            parse(&format!("{text}# EOF\n")).is_ok(),
            "{text}: {:?}",
            parse(&format!("{text}# EOF\n")).err()
        );
    }
    let invalid = [
        "\n",
        "a 1",
        "# TYPE a gauge\na 1\n\n",
        "# TYPE a gauge\nb 1\n",
        "# TYPE a gauge\na_total 1\n",
        "# TYPE a counter\na 1\n",
        "# TYPE a counter\na_total -1\n",
        "# TYPE a_total counter\na_total_total 1\n",
        "# TYPE a gauge\na 1\na 2\n",
        "# TYPE a gauge\na{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 1\n",
        "# TYPE a gauge\na one\n",
        "# TYPE a gauge\na inf\n",
        "# TYPE a gauge\na  1\n",
        "# TYPE a gauge\na{x=\"1} 1\n",
        "# TYPE a gauge\na{x=\"\\q\"} 1\n",
        "# TYPE a gauge\na{x=\"1\",} 1\n",
        "# TYPE a gauge\na{x=\"1\",x=\"1\"} 1\n",
        "# TYPE a gauge\na{1x=\"1\"} 1\n",
        "# TYPE a gauge\n# TYPE a gauge\na 1\n",
        "# TYPE a gauge\na 1\n# HELP a late\n",
        "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\na{x=\"1\"} 1\n",
        "# TYPE a gauge\n# UNIT a seconds\na 1\n",
        "# HELP a \"\na 1\n",
        "# TYPE a number\na 1\n",
        "# TYPE s stateset\ns{s=\"on\"} 2\n",
        "# TYPE s stateset\ns{t=\"on\"} 1\n",
        "# TYPE a counter\na_total 1\n# TYPE a_total gauge\n",
    ];
    for text in invalid {
        assert!(parse(&format!("{text}# EOF\n")).is_err(), "{text}");
    }
    let broken = [
        ("le=\"0.5\"} 1", "le=\"0.5\"} 3"),
        ("le=\"0.5\"", "le=\"half\""),
        ("{le=\"0.5\"}", ""),
        ("h_seconds_bucket{le=\"+Inf\"} 2\n", ""),
        ("h_seconds_count 2", "h_seconds_count 3"),
        ("h_seconds_count 2\n", ""),
        ("h_seconds_sum 1.5\n", ""),
        ("h_seconds_sum 1.5", "h_seconds_max 1.5"),
    ];
    for (from, to) in broken {
        assert!(parse(&format!("{}# EOF\n", histogram.replace(from, to))).is_err(), "{from} -> {to}");
    }
    assert!(parse("# TYPE a gauge\na 1\n").is_err() && parse("a 1 # EOF\n").is_err());
}
