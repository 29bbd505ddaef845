use super::*;
use tidesdb::Db;

fn script(lines: &str) -> (Outcome, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let session = Session {
        db: Db::open(&path).unwrap(),
        path,
        common: Common::default(),
        access: Access::Write,
        beside: None,
        is_script: false,
    };
    let mut bytes = Vec::new();
    let mut out = Out::new(&mut bytes, false);
    out.end_values();
    let outcome = run_script(session, &mut lines.as_bytes(), &mut out);
    (outcome, String::from_utf8(bytes).unwrap(), dir)
}

#[test]
fn a_session() {
    let (outcome, text, _dir) = script(
        "# comments and empty lines are skipped\n\n\
         put a 'two words'\nput \"b\\x01\" \"\\\"q\\\"\"\nscan\nget a\n\
         families create users\nuse users\nput ann 1\nscan\nscan --family default --count\n\
         use default\nget ann\nsync\nget --json a\nquit\nput never here\n",
    );
    assert_eq!(outcome.unwrap(), Exit::Done);
    assert_eq!(
        text,
        "a\ttwo words\nb\x01\t\"q\"\ntwo words\nann\t1\n2\n{\"key\":\"a\",\"value\":\"two words\"}\n"
    );
}

#[test]
fn the_first_failure_ends_a_script_and_names_its_line() {
    let (outcome, text, _dir) = script("put a 1\nput\nscan\n");
    let failure = outcome.unwrap_err();
    assert_eq!((failure.exit, text.as_str()), (Exit::Usage, ""));
    assert!(failure.message().contains("line 2: "), "{}", failure.message());
    assert!(script("use none\n").0.is_err());
    assert!(script("get 'a\n").0.is_err());
    assert!(script("frobnicate\n").0.is_err());
}

#[test]
fn the_last_command_gives_the_exit_code() {
    assert_eq!(script("get none\n").0.unwrap(), Exit::No);
    assert_eq!(script("get none\nput a b\n").0.unwrap(), Exit::Done);
}

/// Bytes that are not text are escapes for the command, as on the command line: the only way on Windows, and one on every system.
#[test]
fn any_bytes_can_be_typed() {
    let (outcome, text, _dir) = script("put -e k '\\xff'\nget --json k\n");
    assert!(outcome.unwrap() == Exit::Done && text.contains("\"value_base64\":\"/w==\""), "{text}");
    let (outcome, _, _dir) = script("put k \"\\xff\"\n");
    match outcome {
        Ok(exit) => assert!(exit == Exit::Done && cfg!(unix)),
        Err(failure) => {
            assert!(failure.exit == Exit::Usage && !cfg!(unix));
            assert!(failure.message().contains("with --escapes"), "{}", failure.message());
        }
    }
}

#[test]
fn the_history_is_where_the_system_keeps_such_files() {
    let below = |set: &[(&str, &str)]| {
        history_below(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    };
    let in_dir = |dir: &str| Some(PathBuf::from(dir).join("tidesdb").join("history"));
    assert_eq!(below(&[("HOME", "h")]), in_dir("h/.local/state"));
    assert_eq!(below(&[("HOME", "h"), ("LOCALAPPDATA", "a")]), in_dir("a"));
    assert_eq!(below(&[("LOCALAPPDATA", "a"), ("XDG_STATE_HOME", "x")]), in_dir("x"));
    assert_eq!(below(&[("HOME", "")]), None);
}

#[test]
fn help_lists_every_verb() {
    let (outcome, text, _dir) = script("help\nhelp scan\nscan --help\n");
    assert_eq!(outcome.unwrap(), Exit::Done);
    for name in [
        "load", "dump", "export", "ingest", "get", "put", "delete", "scan", "families", "stats", "verify",
        "compact", "use", "quit",
    ] {
        assert!(text.contains(&format!("\n  {name} ")), "{name} in {text}");
    }
    assert_eq!(text.matches("--keys-only").count(), 2, "{text}");
}
