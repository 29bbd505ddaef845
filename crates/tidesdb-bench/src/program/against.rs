//! The rivals of a run, and whether their programs exist. A missing program is reported before anything runs.

use std::collections::HashSet;
use std::path::PathBuf;

use tidesdb_console::failure::{Failure, Outcome as Ended};
use tidesdb_console::names::nearest;
use tidesdb_console::output::{Out, Style};

use crate::engines;
use crate::rivals::{self, Rival};

/// Returns all engines of a run: the named ones, and their rivals, looked up in `places`.
pub(super) fn engines_of(own: &[String], vs: &[String], places: &[PathBuf]) -> Ended<Vec<String>> {
    let mut names = own.to_vec();
    for name in vs {
        match name.as_str() {
            "all" => {
                // A rival that loads a library has no name without its path.
                let built = rivals::ALL.iter().filter(|r| r.check(None).is_ok() && r.find(places).is_some());
                names.extend(built.map(|rival| rival.name.to_owned()));
            }
            name => names.push(name.to_owned()),
        }
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let mut missing: Vec<&Rival> = Vec::new();
    for name in &names {
        match rivals::named(name) {
            Some(rival) => {
                rival.check(rivals::split(name).1).map_err(Failure::usage)?;
                let again = rival.find(places).is_some() || missing.contains(&rival);
                missing.extend((!again).then_some(rival));
            }
            None if engines::named(name).is_none() => {
                let next = "`tidesdb bench list` shows engines and rivals";
                let known = engines::ALL.iter().map(|engine| engine.name);
                let known = known.chain(rivals::ALL.iter().map(|rival| rival.name));
                return Err(Failure::usage(format!("no engine {name:?}"))
                    .next(next)
                    .meant(nearest(name, known)));
            }
            None => {}
        }
    }
    if missing.is_empty() { Ok(names) } else { Err(not_built(&missing, places)) }
}

fn not_built(missing: &[&Rival], places: &[PathBuf]) -> Failure {
    let lines: Vec<String> = missing
        .iter()
        .map(|rival| {
            format!(
                "{} is not built: there is no {}; build it with\n{}",
                rival.name,
                rival.program(),
                rival.recipe()
            )
        })
        .collect();
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let sought =
        format!("searched in {}; set {} to search other directories", places.join(", "), rivals::PLACES);
    Failure::usage(lines.join("\n")).next(sought)
}

/// Prints the rivals, and which are built.
pub(super) fn list(out: &mut Out<'_>) -> Ended<()> {
    out.line(out.paint(Style::Title, "rivals, for --vs"))?;
    let places = rivals::places();
    for rival in &rivals::ALL {
        let (built, how) = match rival.find(&places) {
            Some(path) => ("built", path.display().to_string()),
            None => ("not built", rival.command()),
        };
        let classes: Vec<&str> = rival.classes.iter().map(|class| class.name()).collect();
        out.line(format!("  {:<10} {}", rival.name, rival.about))?;
        out.line(format!("             durability {}; {built}: {how}", classes.join(", ")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn all_engines_are_those_that_are_built() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().to_owned()];
        let of = |vs: &[&str]| engines_of(&words(&["tidesdb"]), &words(vs), &places);
        assert_eq!(of(&["all"]).unwrap(), ["tidesdb"]);
        let failure = of(&["redb", "rocksdb", "rocksdb:blob"]).unwrap_err().message();
        for part in ["redb is not built", "apt-get install g++ libclang-dev", "--features rocksdb", "minutes"]
        {
            assert_eq!(failure.matches(part).count(), 1, "{part}: {failure}");
        }
        let program = format!("tidesdb-bench-redb{}", std::env::consts::EXE_SUFFIX);
        std::fs::write(dir.path().join(program), "").unwrap();
        assert_eq!(of(&["all", "redb"]).unwrap(), ["tidesdb", "redb"]);
        assert!(of(&["nonesuch"]).unwrap_err().message().contains("nonesuch"));
        assert!(of(&["redb:x"]).unwrap_err().message().contains("no variant"));
    }
}
