//! Tests the fuzz targets on their corpus and on some mutations.

use testkit::fuzz::base::options;
use testkit::fuzz::targets::{TARGETS, base, open_table, take_table};
use testkit::fuzz::{corpus, foreign, mutate, seal};
use testkit::rng::Rng;
use testkit::world::PATH;
use tidesdb_io::{checksummed_bytes, sim};

/// A file that is rebuilt from its short form equals the original: the short form loses nothing, and the checksums are
/// valid.
#[test]
fn files_can_be_rebuilt_from_their_short_form() {
    let disk = base().disk();
    let mut kinds = 0;
    for name in disk.file_names(PATH).unwrap() {
        let file = disk.read_file(format!("{PATH}/{name}")).unwrap();
        let again = match name.rsplit_once('.').map_or("", |(_, ext)| ext) {
            "wal" => seal::segment(&seal::segment_parts(&file).unwrap()).0,
            "klog" => seal::table(&seal::table_parts(&file).unwrap()).0,
            "vlog" => {
                let mut again = file.clone();
                again[40..44].fill(0);
                seal::vlog(&mut again);
                again
            }
            "manifest" if name == base().manifest.name() => {
                let again = base().manifest.to_file();
                // The reserve after the records is longer in the original, and its length is stored in the marks.
                assert_eq!(again[20480..again.len() - 8192], file[20480..again.len() - 8192], "{name}");
                continue;
            }
            _ => continue,
        };
        assert!(again == file, "{name}");
        kinds += 1;
    }
    assert!(kinds >= 5, "{kinds}");
    assert_eq!(base().manifest.with(&base().manifest.encode()), base().manifest);
}

/// The inputs in the tree equal the generated ones, so they can be regenerated, and all of them are small.
#[test]
fn the_corpus_equals_the_generated_inputs() {
    let mut bytes = 0;
    for target in TARGETS {
        let there = corpus::read(&target).unwrap();
        bytes += there.iter().map(|(_, input)| input.len()).sum::<usize>();
        let built = there.iter().filter(|(name, _)| !name.starts_with(corpus::FOUND));
        let mut names: Vec<_> = built.map(|(name, _)| name.clone()).collect();
        names.sort();
        let mut seeds = (target.seeds)();
        seeds.sort();
        assert_eq!(names, seeds.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), "{}", target.name);
        // The order of settings in an INI file is not fixed.
        for (name, input) in seeds.iter().filter(|_| target.name != "ini") {
            let found = there.iter().find(|(n, _)| n == name).map(|(_, input)| input);
            assert!(found == Some(input), "{}/{name}: cargo xtask fuzz --write-corpus", target.name);
        }
    }
    assert!(bytes < 1 << 20, "{bytes} bytes");
}

/// The description of a table that the target builds was once not that of any format: every input was refused before the table was
/// opened.
#[test]
fn the_tables_of_the_corpus_can_be_opened_and_read() {
    let target = TARGETS.iter().find(|target| target.name == "table").unwrap();
    for (name, input) in (target.seeds)() {
        let table = open_table(&input).unwrap_or_else(|| panic!("{name} is refused"));
        assert!(table.verify().unwrap() >= 340, "{name}");
    }
}

/// Bytes that a target checksums for each byte of its input and of what it builds, at most. Searches in the log have a bound of their own.
const WORK_MAX: f64 = 8.0;
const SEARCHES_MAX: f64 = 400.0;
/// Bytes of the database that a target may build, and of the segment that is searched six times.
const BUILT_BYTES: u64 = 256 << 10;

/// A target also fails if it does more work than its input explains: a search once checksummed bytes that users choose again and again.
#[test]
fn the_built_tables_of_the_corpus_are_taken() {
    let target = TARGETS.iter().find(|target| target.name == "ingest").unwrap();
    for (name, input) in corpus::read(target).unwrap() {
        if !name.starts_with(corpus::FOUND) {
            assert!(take_table(&input).is_some_and(|rows| rows > 0), "{name}");
        }
    }
    let taking = foreign::taking();
    let disk = taking.with(taking.body()).unwrap();
    let db = options(&sim::env_on(disk, 1).0).default_family(foreign::family(0)).open().unwrap();
    assert!(db.default_family().iter().unwrap().count() > 20, "the record of the corpus takes its tables");
}

#[test]
fn every_target_survives_its_corpus_and_some_changes_with_bounded_work() {
    for target in TARGETS {
        let mut most = 0.0_f64;
        let mut run = |input: &[u8]| {
            let before = checksummed_bytes();
            (target.run)(input);
            let work = (checksummed_bytes() - before) as f64;
            most = most.max(work / (input.len() as u64 + BUILT_BYTES) as f64);
        };
        let seeds: Vec<Vec<u8>> =
            corpus::read(&target).unwrap().into_iter().map(|(_, input)| input).collect();
        seeds.iter().for_each(|input| run(input));
        let some = if target.name == "arguments" { 5 } else { 200 };
        for n in 0..some {
            run(&mutate::input(&seeds, &mut Rng::new(n)));
        }
        println!("{}: at most {most:.2} bytes are checksummed for each byte", target.name);
        let bound = if target.name == "search" { SEARCHES_MAX } else { WORK_MAX };
        assert!(most <= bound, "{}: {most:.2} bytes are checksummed for each byte", target.name);
    }
}
