use std::path::Path;

use serde_json::{Value, json};
use tidesdb::inspect::{Layout, LayoutTable};
use tidesdb::{Comparator, FamilyOptions, History, Sample, Stats};

use super::super::stage::Stage;
use super::*;
use crate::look::tests::look;
use crate::look::track::Track;
use crate::text::size;

const HOSTILE: [&str; 6] = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\"'&amp; <b>",
    "right\u{202e}tfel",
    "line\u{2028}line\u{2029}\u{1b}[31m",
    "zero\u{200b}width\u{feff}",
];

/// Runs the command on the database at `db`, and returns what it writes to the standard output.
fn report(db: &Path, keys: bool, common: &Common) -> Outcome<String> {
    let command = Report { target: Target::default(), output: "-".into(), keys };
    let place = Place { db: Some(db.to_owned()), ..Place::default() };
    let mut bytes = Vec::new();
    command.run(&place, common, &mut Out::new(&mut bytes, false))?;
    Ok(String::from_utf8(bytes).unwrap())
}

/// Returns the page of a stage's database.
fn page_of(stage: &Stage, keys: bool) -> String {
    report(&stage.dir.path().join("db"), keys, &Common::default()).unwrap()
}

/// Returns the data in a page.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("the page has data");
    let (data, _) = rest.split_once("</script>").expect("the data has an end");
    serde_json::from_str(data).expect("the data is JSON")
}

fn table(level: usize, run: usize, bytes: u64, keys: [&str; 2]) -> LayoutTable {
    let mut table = LayoutTable::default();
    (table.level, table.run, table.bytes, table.entries) = (level, run, bytes, 10);
    [table.first_key, table.last_key] = keys.map(|key| key.as_bytes().to_vec());
    table
}

/// A tree with these tables.
fn layout(family: &str, tables: Vec<LayoutTable>) -> Layout {
    let mut layout = Layout::default();
    layout.tree.family = family.to_owned();
    layout.tree.order = "bytewise".to_owned();
    layout.tree.bytes = tables.iter().map(|table| table.bytes).sum();
    layout.tree.tables = tables.len();
    for level in 1..=tables.iter().map(|table| table.level).max().unwrap_or(0) {
        let mut stats = tidesdb::LevelStats::default();
        stats.level = level;
        stats.tables = tables.iter().filter(|table| table.level == level).count();
        layout.tree.levels.push(stats);
    }
    layout.tables = tables;
    layout
}

fn history(names: &[&str], samples: &[(u64, &[i64])]) -> History {
    let mut history = History::default();
    history.names = names.iter().map(|&name| name.to_owned()).collect();
    for (millis, values) in samples {
        let mut sample = Sample::default();
        sample.millis = *millis;
        sample.values = (0..).zip(values.iter().copied()).collect();
        history.samples.push(sample);
    }
    history
}

/// The numbers of a line, from the moment `first` on.
fn line(lines: &Value, name: &str, first: u64) -> Vec<Option<f64>> {
    let at = (first - lines["begin"].as_u64().unwrap()) / lines["step"].as_u64().unwrap();
    let line = lines["lines"][name].as_array().unwrap_or_else(|| panic!("{name} is missing"));
    line[at as usize..].iter().map(Value::as_f64).collect()
}

fn len(value: &Value) -> usize {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list")).len()
}

#[test]
fn hostile_names_are_data_and_are_seen() {
    let stage = Stage::new();
    for name in HOSTILE {
        stage.db.create_family(name, FamilyOptions::default()).unwrap();
    }
    let page = page_of(&stage, false);
    assert_eq!(page.matches("<script").count(), 3, "the data, the library and the script of the page");
    assert_eq!(page.matches("</script").count(), 3);
    assert!(!page.contains("<!--"), "a name is outside of the data");
    assert!(!page.contains(['\u{202e}', '\u{2028}', '\u{2029}', '\u{1b}', '\u{200b}', '\u{feff}']));
    let data = data_of(&page);
    let names: Vec<&Value> = data["families"]["rows"].as_array().unwrap().iter().map(|row| &row[0]).collect();
    for seen in [
        "</script><script>alert(1)</script>",
        "<!--<script>",
        "\"'&amp; <b>",
        "right\\u{202e}tfel",
        "line\\u{2028}line\\u{2029}\\u{1b}[31m",
        "zero\\u{200b}width\\u{feff}",
    ] {
        assert!(names.contains(&&json!(seen)), "{seen:?} in {names:?}");
    }
}

/// Separators of lines and the marks of HTML are not in the data, even if nothing made them visible before.
#[test]
fn no_text_ends_the_data() {
    let text = "</script><!-- & \u{2028}\u{2029}";
    let page = page::html(&json!({ "a": text }), "0");
    assert_eq!(data_of(&page)["a"], text);
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = rest.split_once('<').unwrap();
    assert!(data.ends_with('}') && !data.contains(['>', '&', '\u{2028}', '\u{2029}']), "{data}");
}

#[test]
fn a_page_loads_nothing_and_runs_its_own_scripts_only() {
    let stage = Stage::with(&["a"]);
    let pages = [(); 2].map(|()| page_of(&stage, false));
    let policy = |page: &str| {
        let (_, rest) = page.split_once("Content-Security-Policy\" content=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    };
    let nonce = |page: &str| policy(page).split_once("'nonce-").unwrap().1[..32].to_owned();
    let loads =
        [" src=", "@import", "url(", "href=\"http", "innerHTML", "insertAdjacentHTML", "document.write"];
    for page in &pages {
        let policy = policy(page);
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.matches(&format!("<script nonce=\"{}\">", nonce(page))).count(), 2);
        assert_eq!(loads.iter().find(|loads| page.contains(**loads)), None);
        assert!(page.contains("Permission is hereby granted"), "the licence of the library");
    }
    assert_ne!(nonce(&pages[0]), nonce(&pages[1]));
}

#[test]
fn keys_are_masked_unless_they_are_wanted() {
    let stage = Stage::with(&["secret-apple", "secret-pear"]);
    stage.db.compact().unwrap();
    stage.db.put(b"secret-<fig>", b"v").unwrap();
    stage.db.flush().unwrap();
    let db = stage.dir.path().join("db");
    for json in [false, true] {
        let common = Common { json, ..Common::default() };
        let masked = report(&db, false, &common).unwrap();
        assert!(!masked.contains("secret"), "a key is in it");
        assert!(report(&db, true, &common).unwrap().contains("secret-apple"));
    }
    let tree = &data_of(&page_of(&stage, true))["trees"]["trees"][0];
    assert_eq!(tree["picture"]["ends"], json!(["secret-<fig>", "secret-pear"]));
    assert_eq!(tree["levels"][1]["keys"], "secret-apple .. secret-pear");
    let about = |keys| {
        let data = data_of(&page_of(&stage, keys));
        data["trees"]["trees"][0]["picture"]["levels"][0]["runs"][0][0][3].as_str().unwrap().to_owned()
    };
    assert!(about(true).ends_with(", secret-<fig> .. secret-<fig>"), "{}", about(true));
    assert!(about(false).ends_with(" % of the bytes"), "{}", about(false));
}

/// Every part of the page has its data, of a database that nobody writes.
#[test]
fn each_section_of_a_database_that_is_closed() {
    let stage = Stage::with(&["a", "b"]);
    stage.db.flush().unwrap();
    stage.db.clone().close().unwrap();
    let data = data_of(&page_of(&stage, false));
    assert_eq!(data["source"]["state"], "own");
    let first = data["source"]["lines"][0].as_str().unwrap();
    assert!(first.starts_with("figures of this command"), "{first}");
    assert_eq!((&data["findings"], &data["jobs"]["running"]), (&json!([]), &json!([])));
    for part in ["tiles", "history", "memory", "operations", "waits", "trees", "families", "figures"] {
        assert!(!data[part].is_null(), "{part}");
    }
    assert!(data["tiles"][0][2].as_str().unwrap().ends_with(" in 1 table"), "{}", data["tiles"]);
    assert_eq!(data["families"]["rows"][0][0], "default");
    assert!(data["memory"]["limit"].as_u64().unwrap() > 0);
    let common = Common { json: true, ..Common::default() };
    let json: Value =
        serde_json::from_str(&report(&stage.dir.path().join("db"), false, &common).unwrap()).unwrap();
    assert_eq!(json["trees"], data["trees"]);
}

/// A process that writes and publishes nothing: the tree is known, and nothing else is made up.
#[test]
fn a_writer_without_figures() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).with(|options| options.event_log = false).open().unwrap();
    db.put(b"a", b"v").unwrap();
    db.flush().unwrap();
    let data = data_of(&report(dir.path(), false, &Common::default()).unwrap());
    assert_eq!(data["source"]["state"], "none");
    assert!(data["source"]["lines"][0].as_str().unwrap().starts_with("no figures: "));
    for unknown in ["tiles", "findings", "memory", "jobs", "operations", "waits", "figures"] {
        assert!(data[unknown].is_null(), "{unknown}");
    }
    assert_eq!(data["families"]["rows"][0][9], "?", "what users wrote is not known");
    assert_eq!(len(&data["trees"]["trees"][0]["picture"]["levels"][0]["runs"]), 1);
}

#[test]
fn one_family_or_none() {
    let stage = Stage::with(&["a"]);
    stage.db.create_family("other", FamilyOptions::default()).unwrap();
    let db = stage.dir.path().join("db");
    let of = |name: &str| report(&db, false, &Common { family: Some(name.into()), ..Common::default() });
    let data = data_of(&of("other").unwrap());
    assert_eq!(len(&data["families"]["rows"]), 1);
    assert_eq!(data["trees"]["trees"][0]["family"], "other");
    let failure = of("othre").unwrap_err();
    assert!(failure.exit == Exit::Usage && failure.message().contains("other"), "{failure:?}");
    let none = report(stage.dir.path(), false, &Common::default()).unwrap_err();
    assert_eq!(none.exit, Exit::Usage, "{none:?}");
}

#[test]
fn an_unknown_order_is_said() {
    let stage = Stage::new();
    let by_length = Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    let family = stage.db.create_family("odd", FamilyOptions::default().comparator(by_length)).unwrap();
    family.put(b"zz", b"v").unwrap();
    family.put(b"aaaa", b"v").unwrap();
    stage.db.flush().unwrap();
    let tree = &data_of(&page_of(&stage, false))["trees"]["trees"][0];
    assert_eq!(tree["family"], "odd");
    assert!(tree["note"].as_str().unwrap().contains("not known"), "{tree}");
}

#[test]
fn a_stretch_is_as_wide_as_what_it_holds() {
    let mut layout = layout(
        "f",
        vec![
            table(1, 1, 100, ["b", "y"]),
            table(2, 1, 300, ["a", "c"]),
            table(2, 1, 300, ["m", "n"]),
            table(2, 1, 600, ["x", "z"]),
        ],
    );
    layout.partition_starts = vec![b"m".to_vec()];
    let picture = keys::picture(&layout, false);
    let runs = &picture["levels"][1]["runs"];
    assert_eq!((len(&picture["levels"][0]["runs"]), len(&runs[0])), (1, 3));
    let edges = |at: usize| [&runs[0][at][0], &runs[0][at][1]].map(|edge| edge.as_f64().unwrap());
    let ([a, c], [m, n], [x, z]) = (edges(0), edges(1), edges(2));
    assert_eq!((a, z), (0.0, 10_000.0));
    assert!(a < c && c <= m && m < n && n <= x && x < z, "{runs}");
    // A quarter, a quarter and a half of the level; the other level is spread over all of it.
    for (width, wanted) in [(c - a, 2500.0), (n - m, 2500.0), (z - x, 5000.0)] {
        assert!((width - wanted).abs() < 300.0, "{runs}");
    }
    assert_eq!(picture["partitions"], json!([m]));
    let profile = &picture["levels"][1]["profile"];
    let stretch = |at: usize| profile[at].as_f64().unwrap();
    assert_eq!((len(profile), stretch(110)), (120, 100.0));
    let gap = ((c + m) / 2.0 / 10_000.0 * 120.0) as usize;
    assert!(stretch(gap) < 60.0, "nothing of the level is at {gap}: {profile}");
}

/// Ten thousand tables, of one run and of as many runs.
#[test]
fn a_picture_has_a_bound_and_says_what_it_leaves_out() {
    let name = |n: usize| format!("key{n:06}");
    let long = "k".repeat(60_000);
    for level in [1, 3] {
        let tables = (0..10_000).map(|n| {
            let run = if level == 1 { n + 1 } else { 1 };
            let first = name(2 * n) + if n == 7 { &long } else { "" };
            table(level, run, 1000, [&first, &name(2 * n + 1)])
        });
        let picture = keys::picture(&layout("f", tables.collect()), true);
        let drawn = picture["levels"].as_array().unwrap().last().unwrap();
        let runs = drawn["runs"].as_array().unwrap();
        assert!(runs.len() <= keys::RUNS_MAX && runs.iter().all(|run| len(run) <= keys::BOXES_MAX + 1));
        assert_eq!(drawn["left_out"], if level == 1 { 10_000 - keys::RUNS_MAX } else { 0 });
        assert!(level == 1 || runs[0][0][3].as_str().unwrap().starts_with("17 tables, "), "{}", runs[0][0]);
        assert!(picture.to_string().len() < 150_000, "{} bytes", picture.to_string().len());
    }
}

#[test]
fn a_thousand_families_have_a_bound() {
    let tables = |n: u64| {
        (0..30).map(|at| table(2, 1, 1000 + n, [&format!("{at:03}a"), &format!("{at:03}b")])).collect()
    };
    let layouts = (0..1000).map(|n| layout(&format!("family {n:04} {}", "x".repeat(115)), tables(n)));
    let stage = Stage::new();
    let known = Known {
        path: Path::new("db"),
        made: 0,
        whose: Whose::Own { stats: Box::new(Stats::default()), health: stage.db.health() },
        findings: Some(Vec::new()),
        history: Err("there is none".to_owned()),
        layouts: layouts.collect(),
        family: None,
        with_keys: true,
    };
    let data = data::of(&known);
    assert_eq!(len(&data["families"]["rows"]), data::FAMILIES_MAX);
    assert_eq!(data["families"]["left_out"], 1000 - data::FAMILIES_MAX);
    assert_eq!(len(&data["trees"]["trees"]), data::TREES_MAX);
    assert_eq!(data["trees"]["left_out"], 1000 - data::TREES_MAX);
    let first = data["families"]["rows"][0][0].as_str().unwrap();
    assert!(first.starts_with("family 0999"), "the largest is first, not {first}");
    assert!(data.to_string().len() < 400_000, "{} bytes", data.to_string().len());
}

#[test]
fn counters_become_rates_over_the_time_that_they_grew_in() {
    const T: u64 = 1_700_000_000_000;
    let history = history(
        &["wal_bytes", "disk_bytes", "syncs.p99", "cache_hits"],
        &[
            (T, &[1000, 5, 0, 0]),
            (T + 1000, &[3000, 7, 4_000_000, 0]),
            (T + 5000, &[7000, 6, 9_000_000, 0]),
            (T + 8000, &[500, 1, 3_000_000, 8]), // another open
            (T + 9000, &[700, 2, 0, 9]),
        ],
    );
    let lines = past::lines(&history, past::HOUR, None);
    assert_eq!(lines["step"], 1000);
    let some = |all: &[f64]| all.iter().map(|value| Some(*value)).collect::<Vec<_>>();
    let rates = line(&lines, "wal_bytes", T);
    assert_eq!(rates[..5], some(&[2000.0, 1000.0, 1000.0, 1000.0, 1000.0]));
    let unknown = [None, None, None];
    assert_eq!((&rates[5..8], &rates[8..]), (&unknown[..], &[Some(200.0), None][..]), "not across an open");
    assert_eq!(line(&lines, "cache_hits", T)[5..8], unknown, "whatever the new process counted");
    let levels = line(&lines, "disk_bytes", T);
    assert_eq!(levels[..6], some(&[5.0, 7.0, 7.0, 7.0, 7.0, 6.0]), "it stays what it was");
    assert_eq!(
        (&levels[6..8], &levels[8..]),
        (&unknown[..2], &some(&[1.0, 2.0])[..]),
        "while the process lives"
    );
    let times = line(&lines, "syncs.p99", T);
    assert_eq!(times[2..6], some(&[0.009; 4]), "of all the time since the sample before");
    assert_eq!(times[6..], [None, None, Some(0.003), None], "nothing was measured");
}

/// Any counter that falls is that of another open, as for `tidesdb top`.
#[test]
fn an_open_is_seen_by_each_counter() {
    const T: u64 = 1_700_000_000_000;
    let samples: [(u64, &[i64]); 3] = [(T, &[10, 9]), (T + 1000, &[20, 9]), (T + 2000, &[70, 2])];
    let lines = past::lines(&history(&["wal_bytes", "gets.count"], &samples), past::HOUR, None);
    assert_eq!(line(&lines, "wal_bytes", T)[..3], [Some(10.0), None, None]);
}

/// A writer with many families does not publish all of them, and anybody can write what it publishes.
#[test]
fn what_is_on_the_disk_is_that_of_all_families() {
    let mut figures = look(Track::default()).figures;
    let stats = &mut figures.stats;
    stats.families[0].value_log_file_bytes = u64::MAX;
    [stats.wal_live_bytes, stats.cache_hits, stats.cache_misses] = [u64::MAX; 3];
    [stats.memory_tables_bytes, stats.memory_jobs_bytes] = [u64::MAX; 2];
    let mut known = Known {
        path: Path::new("db"),
        made: 0,
        whose: Whose::Writer(Box::new(figures)),
        findings: Some(Vec::new()),
        history: Err("there is none".to_owned()),
        layouts: vec![layout("f", vec![table(2, 1, u64::MAX, ["a", "b"])])],
        family: None,
        with_keys: false,
    };
    assert_eq!(data::of(&known)["tiles"][0][1], size(u64::MAX));
    known.history = Ok([history(&["disk_bytes"], &[(1000, &[7]), (2000, &[5 << 20])]), History::default()]);
    assert_eq!(data::of(&known)["tiles"][0][1], "5.0 MiB");
}

#[test]
fn the_past_has_a_bound_and_takes_any_clock() {
    const T: u64 = 1_700_000_000_000;
    let of = |millis: &dyn Fn(u64) -> u64, count: u64| {
        let value = |n: u64| [n as i64 * 12_345_678_901, i64::MAX - n as i64];
        let samples: Vec<(u64, [i64; 2])> = (0..count).map(|n| (millis(n), value(n))).collect();
        let samples: Vec<(u64, &[i64])> = samples.iter().map(|(at, values)| (*at, &values[..])).collect();
        past::lines(&history(&["wal_bytes", "disk_bytes"], &samples), past::HOUR, None)
    };
    let lines = of(&|n| T + n * 1000, 7200);
    assert_eq!(lines["step"], 4000);
    assert!(lines["points"].as_u64().unwrap() <= past::POINTS_MAX as u64);
    assert!(lines.to_string().len() < 40_000, "{}", lines.to_string().len());
    assert!(line(&lines, "wal_bytes", lines["begin"].as_u64().unwrap()).iter().all(Option::is_some));
    // A clock that was set back, one that stands, moments that no browser can name.
    assert_eq!(of(&|n| T - n * 1000, 100)["lines"]["wal_bytes"], Value::Null);
    assert!(of(&|_| T, 1)["lines"]["disk_bytes"][29].as_f64() > Some(9e18), "one sample is a point");
    of(&|_| 0, 10);
    of(&|n| n, 10);
    assert!(of(&|n| u64::MAX - n, 10).is_null());
    assert_eq!(of(&|n| if n == 5 { u64::MAX } else { T + n * 1000 }, 20)["points"], 30);
    assert!(past::lines(&History::default(), past::DAY, None).is_null());
}

#[test]
fn a_file_is_replaced_when_the_page_is_complete() {
    let stage = Stage::with(&["a"]);
    let file = stage.file("page.html", b"old");
    let command = Report { target: Target::default(), output: file.clone(), keys: false };
    let run = |db: &str| {
        let place = Place { db: Some(stage.dir.path().join(db)), ..Place::default() };
        command.run(&place, &Common::default(), &mut Out::new(&mut Vec::new(), false))
    };
    assert!(run("none").is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    run("db").unwrap();
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(!stage.dir.path().join("page.html.part").exists());
}
