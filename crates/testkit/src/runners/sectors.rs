//! T19, bad sectors: a file of the database lies on sectors that the kernel cannot read. Reads of it must fail with an
//! `Io` error that names file and offset. Other data must still be readable and writable, the process must not die, and
//! all rows must be back once the sectors are readable again.
//!
//! The bad sectors are made by truncating the file behind a loop device. This needs Linux, root, `losetup` and e2fsprogs;
//! without them, these cases are reported as skipped. The other cases run everywhere: they truncate files of an open
//! database. A case is a file and the moment at which it becomes bad.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use testkit::home::in_memory;
use testkit::process;
use testkit::report::{self, exit, finish, violation};
use testkit::rng::Rng;
use testkit::watch::Watch;
use tidesdb::{Compression, Db, Error, Family, FamilyOptions, SyncMode, WriteBatch};
use tidesdb_io::{Access, Advice, Dir, Disk as _, File, FileExt as _, RealDisk};

/// Size of the device in bytes.
const DEVICE: u64 = 96 << 20;
/// Size of one ballast file in bytes.
const BALLAST: u64 = 512 << 10;
const BLOCK: u64 = 4096;
const ROWS: u64 = 3000;

/// Cases: the bad file, and when it becomes bad.
const CASES: [Case; 7] = [
    Case { name: "table-read", end: ".klog", open: true, cut: false },
    Case { name: "value-log-read", end: ".vlog", open: true, cut: false },
    Case { name: "table-opened", end: ".klog", open: false, cut: false },
    Case { name: "log-opened", end: ".wal", open: false, cut: false },
    Case { name: "manifest-opened", end: ".manifest", open: false, cut: false },
    Case { name: "table-cut", end: ".klog", open: true, cut: true },
    Case { name: "value-log-cut", end: ".vlog", open: true, cut: true },
];

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Suffix of the file name.
    end: &'static str,
    /// Whether the database is open when the sectors become bad.
    open: bool,
    /// Whether the file is truncated instead.
    cut: bool,
}

pub(super) type Done<T> = Result<T, String>;

#[derive(Parser)]
struct Args {
    /// Chooses the place of the bad sectors.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs this case alone.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..CASES.len() as u64))]
    case: Option<u64>,
    /// A process that runs the case of this name in `--dir`, with the device on `--image` if it has one.
    #[arg(long, hide = true, requires = "dir")]
    child: Option<String>,
    #[arg(long, hide = true)]
    dir: Option<PathBuf>,
    #[arg(long, hide = true, requires = "device")]
    image: Option<PathBuf>,
    #[arg(long, hide = true)]
    device: Option<String>,
}

pub(crate) fn runner() -> ExitCode {
    let args: Args = process::arguments();
    let seed = args.seed;
    if let (Some(name), Some(dir)) = (&args.child, &args.dir) {
        let device = args.image.clone().zip(args.device.clone());
        let device = device.map(|(image, name)| Loop { image, mount: dir.clone(), name });
        return run_case(name, dir, device.as_ref(), seed);
    }
    let watch = Watch::start(Duration::from_secs(60));
    let (mut cases, mut skipped, mut violations) = (0, 0, 0);
    for (n, case) in (0..).zip(CASES).filter(|(n, _)| args.case.is_none_or(|only| only == *n)) {
        report::begin(&[("seed", seed.to_string())], n);
        watch.begin(case.name);
        match in_memory().and_then(|temp| judge(case, temp.path(), seed)) {
            Ok(true) => cases += 1,
            Ok(false) => skipped += 1,
            Err(e) => {
                violation(format_args!("{}: {e}", case.name));
                violations += 1;
            }
        }
    }
    let figures = [("cases", cases), ("skipped", skipped), ("violations", violations), ("seed", seed)];
    let least = if args.case.is_some() { 0 } else { CASES.iter().filter(|case| case.cut).count() };
    exit(finish("T19", &figures, &[("cases", least as u64)]))
}

/// Runs a case in a separate process, which a signal may kill. Returns false if there is no device to run it on.
fn judge(case: Case, temp: &Path, seed: u64) -> Done<bool> {
    let mut child = process::itself()?;
    child.args(["--child", case.name, "--seed", &seed.to_string()]);
    let device = if case.cut { None } else { Some(Device::new(temp)) };
    match &device {
        None => child.arg("--dir").arg(temp),
        Some(Err(why)) => {
            println!("T19 SKIPPED {}: {why}", case.name);
            return Ok(false);
        }
        Some(Ok(device)) => child
            .arg("--dir")
            .arg(&device.0.mount)
            .arg("--image")
            .arg(&device.0.image)
            .args(["--device", &device.0.name]),
    };
    let status = child.status().map_err(|e| e.to_string())?;
    match status.code() {
        Some(0) => Ok(true),
        Some(_) => Err("see above".to_owned()),
        None => Err(format!("the process died: {status}")),
    }
}

/// A file system on a loop device over a file.
struct Loop {
    image: PathBuf,
    mount: PathBuf,
    name: String,
}

/// Dropping it unmounts and detaches the device.
struct Device(Loop);

pub(super) fn call(program: &str, args: &[&str]) -> Done<String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

impl Device {
    fn new(temp: &Path) -> Done<Self> {
        let (image, mount) = (temp.join("image"), temp.join("mount"));
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(DEVICE).map_err(|e| e.to_string())?;
        std::fs::create_dir(&mount).map_err(|e| e.to_string())?;
        call("filefrag", &["-V"])?;
        call(
            "mkfs.ext4",
            &["-q", "-F", "-b", "4096", "-m", "0", "-O", "none,extent,filetype", text(&image)],
        )?;
        let name = call("losetup", &["--find", "--show", text(&image)])?.trim().to_owned();
        let device = Self(Loop { image, mount, name });
        mount_at(&device.0.name, &device.0.mount)?;
        Ok(device)
    }
}

impl Loop {
    /// Remounts the device, which returns the blocks that the file system had preallocated for growing files.
    fn remount(&self) -> Done<()> {
        call("umount", &[text(&self.mount)])?;
        mount_at(&self.name, &self.mount)
    }
}

/// Mounts the device without reserved blocks, so that the ballast can take all of them.
fn mount_at(device: &str, mount: &Path) -> Done<()> {
    call("mount", &["-t", "ext4", device, text(mount)])?;
    let name = device.trim_start_matches("/dev/");
    std::fs::write(format!("/sys/fs/ext4/{name}/reserved_clusters"), "0").map_err(|e| e.to_string())
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = call("umount", &[text(&self.0.mount)]);
        let _ = call("losetup", &["-d", &self.0.name]);
    }
}

/// Unreadable sectors: the end of the image file, truncated and kept in memory.
struct Bad<'a> {
    image: &'a Path,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Bad<'a> {
    /// Makes everything on the device from byte `at` on unreadable.
    fn make(image: &'a Path, at: u64) -> Done<Self> {
        let mut bytes = std::fs::read(image).map_err(|e| e.to_string())?;
        let bytes = bytes.split_off(at as usize);
        set_len(image, at)?;
        Ok(Self { image, at, bytes })
    }

    /// Makes the sectors readable again.
    fn mend(self) -> Done<()> {
        set_len(self.image, self.at)?;
        file(self.image, Access::ReadWrite)?.write_all_at(&self.bytes, self.at).map_err(|e| e.to_string())
    }
}

fn directory(path: &Path) -> Done<Arc<dyn Dir>> {
    RealDisk::new().open_dir(path, true).map_err(|e| format!("{}: {e}", path.display()))
}

fn file(path: &Path, access: Access) -> Done<Arc<dyn File>> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or("no file")?;
    let opened = directory(parent)?.open(&name.to_string_lossy(), access);
    opened.map_err(|e| format!("{}: {e}", path.display()))
}

fn set_len(path: &Path, len: u64) -> Done<()> {
    file(path, Access::ReadWrite)?.set_len(len).map_err(|e| e.to_string())
}

/// Drops the cached pages of the file.
fn forget(path: &Path) -> Done<()> {
    let file = file(path, Access::Read)?;
    file.sync_all().and_then(|()| file.advise(Advice::DontNeed, 0, 0)).map_err(|e| e.to_string())
}

/// Fills the free space of the device with files in `dir`.
fn fill(dir: &Path, part: &str) -> Done<()> {
    let dir = directory(dir)?;
    let mut bytes = BALLAST;
    for n in 0.. {
        if dir.create_new(&format!("{part}{n:04}"), bytes).is_err() {
            bytes /= 2;
            if bytes < BLOCK {
                break;
            }
        }
    }
    Ok(())
}

/// Returns the first and last device block of each extent of the file.
fn blocks(file: &Path) -> Done<Extents> {
    let listing = call("filefrag", &["-e", text(file)])?;
    let extent = |line: &str| {
        let (first, last) = line.split(':').nth(2)?.split_once("..")?;
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    Ok(listing.lines().filter_map(extent).collect())
}

/// First and last block of each extent of a file.
type Extents = Vec<(u64, u64)>;

/// Returns the names of the files in `dir` and their extents.
fn extents(dir: &Path) -> Done<Vec<(String, Extents)>> {
    let entries = std::fs::read_dir(dir).map_err(|e| e.to_string())?.flatten();
    entries.map(|e| Ok((e.file_name().to_string_lossy().into_owned(), blocks(&e.path())?))).collect()
}

/// Returns the ballast files, ordered by the first or by the last block of each file.
fn ballast_in_order(mount: &Path, by_last: bool) -> Done<Vec<PathBuf>> {
    let ballast = mount.join("ballast");
    let mut files = extents(&ballast)?;
    files.retain(|(_, extents)| !extents.is_empty());
    files.sort_by_key(|(_, extents)| match by_last {
        true => extents.iter().map(|(_, last)| *last).max(),
        false => extents.iter().map(|(first, _)| *first).min(),
    });
    Ok(files.into_iter().map(|(name, _)| ballast.join(name)).collect())
}

fn remove<'p>(files: impl IntoIterator<Item = &'p PathBuf>) -> Done<()> {
    files.into_iter().try_for_each(std::fs::remove_file).map_err(|e| e.to_string())
}

/// Fills the device so that only about its first half is free.
fn reserve_the_end(mount: &Path) -> Done<()> {
    fill(&mount.join("ballast"), "end")?;
    let files = ballast_in_order(mount, true)?;
    remove(&files[..files.len() / 2])
}

/// Moves the file to the end of the device, after all other files of the database. Returns the device byte of byte `at`
/// of the file.
fn move_to_the_end(mount: &Path, dir: &Path, name: &str, at: u64) -> Done<u64> {
    let ballast = mount.join("ballast");
    fill(&ballast, "rest")?;
    let bytes = std::fs::read(dir.join(name)).map_err(|e| e.to_string())?;
    let room = bytes.len() / BALLAST as usize + 24;
    remove(ballast_in_order(mount, false)?.iter().rev().take(room))?;
    // Copies may land in holes that are too small for the ballast, so copy until one lies after all other files.
    for copy in 0..200 {
        let moved = ballast.join(format!("copy{copy}"));
        std::fs::write(&moved, &bytes).map_err(|e| e.to_string())?;
        forget(&moved)?;
        let own = blocks(&moved)?;
        let others =
            extents(dir)?.into_iter().filter(|(file, _)| file != name).flat_map(|(_, extents)| extents);
        if own.first().map(|(first, _)| *first) > others.map(|(_, last)| last).max() {
            std::fs::rename(&moved, dir.join(name)).map_err(|e| e.to_string())?;
            fill(&ballast, "behind")?;
            // Free some ballast at the front, so that files created later lie before the moved file.
            remove(ballast_in_order(mount, true)?.iter().take(16))?;
            return place_of(&own, at).ok_or(format!("{name} has no block for byte {at}"));
        }
    }
    Err(format!("cannot make {name} the last file of the device"))
}

/// Returns the device byte of byte `at` of a file with these extents.
fn place_of(extents: &[(u64, u64)], at: u64) -> Option<u64> {
    let mut block = at / BLOCK;
    for (first, last) in extents {
        let len = last - first + 1;
        if block < len {
            return Some((first + block) * BLOCK);
        }
        block -= len;
    }
    None
}

fn open(dir: &Path) -> Result<Db, Error> {
    let family = FamilyOptions::default().value_threshold(usize::MAX).compression(Compression::None);
    let options = Db::options(dir).sync(SyncMode::Full).background_threads(2).default_family(family);
    options.with(|o| (o.wal_segment_bytes, o.disk_free_min, o.cache_bytes) = (1 << 20, 0, CACHE_BYTES)).open()
}

/// Holds the filters and indexes of the tables, which lie at the end of their files, but few of the blocks.
const CACHE_BYTES: u64 = 128 << 10;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n + 1);
    (0..38).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

fn say<T>(what: &str, done: Result<T, Error>) -> Done<T> {
    done.map_err(|e| format!("{what}: {e}"))
}

/// Returns the families: one stored in tables, one in value logs, and one in another table that stays intact.
fn families(db: &Db) -> Done<[Family; 3]> {
    let values = FamilyOptions::default().value_threshold(16).compression(Compression::None);
    let values = say("family", db.family_or_create("values", values))?;
    let other = say("family", db.family_or_create("other", FamilyOptions::default()))?;
    Ok([db.default_family().clone(), values, other])
}

/// Returns the number of rows of a family.
fn rows(family: usize) -> u64 {
    if family == 2 { ROWS / 10 } else { ROWS }
}

/// Creates and closes the database. With `keep_log`, the database is abandoned, so that its log still holds the rows.
fn make(dir: &Path, keep_log: bool) -> Done<()> {
    let db = say("open", open(dir))?;
    let all = families(&db)?;
    for n in (0..ROWS).step_by(20) {
        let mut batch = WriteBatch::new();
        for n in n..n + 20 {
            for (i, family) in all.iter().enumerate().filter(|(i, _)| n < rows(*i)) {
                say("put", batch.put(family, &key(n), &value(n))).map_err(|e| format!("family {i}: {e}"))?;
            }
        }
        say("commit", db.write(&mut batch))?;
    }
    if keep_log {
        db.abandon();
        return Ok(());
    }
    say("compact", db.compact())?;
    say("close", db.close())
}

/// Returns the largest file with this suffix; among tables this is the table of the first family.
fn victim(dir: &Path, end: &str) -> Done<(String, u64)> {
    let entries = std::fs::read_dir(dir).map_err(|e| e.to_string())?.flatten();
    let files = entries.filter_map(|e| Some((e.file_name().into_string().ok()?, e.metadata().ok()?.len())));
    files.filter(|(name, _)| name.ends_with(end)).max_by_key(|(_, len)| *len).ok_or(format!("no {end} file"))
}

fn run_case(name: &str, dir: &Path, device: Option<&Loop>, seed: u64) -> ExitCode {
    let Some(case) = CASES.into_iter().find(|case| case.name == name) else {
        eprintln!("no case {name}");
        return ExitCode::FAILURE;
    };
    let done = match device {
        None => cut(case, dir, seed),
        Some(device) => bad_sectors(case, device, seed),
    };
    done.map_or_else(
        |e| {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Truncates a file of the open database.
fn cut(case: Case, dir: &Path, seed: u64) -> Done<()> {
    let dir = dir.join("db");
    make(&dir, false)?;
    let (name, len) = victim(&dir, case.end)?;
    let at = len / 4 + Rng::new(seed).below(len / 4);
    let db = say("open", open(&dir))?;
    set_len(&dir.join(&name), at)?;
    use_it(&db, case, &name)?;
    db.abandon();
    Ok(())
}

fn bad_sectors(case: Case, device: &Loop, seed: u64) -> Done<()> {
    let Loop { image, mount, .. } = device;
    let dir = mount.join("db");
    reserve_the_end(mount)?;
    make(&dir, case.end == ".wal")?;
    device.remount()?;
    let (name, len) = victim(&dir, case.end)?;
    let at = match case.end {
        ".manifest" => 0,
        _ => len / 4 + Rng::new(seed).below(len / 4),
    };
    let place = move_to_the_end(mount, &dir, &name, at)?;
    if case.open {
        let db = say("open", open(&dir))?;
        forget(&dir.join(&name))?;
        let bad = Bad::make(image, place)?;
        use_it(&db, case, &name)?;
        say("close", db.close())?;
        bad.mend()?;
    } else {
        forget(&dir.join(&name))?;
        let bad = Bad::make(image, place)?;
        match open(&dir) {
            Ok(_) => return Err(format!("the open succeeded although {name} is bad")),
            Err(e) => check_error(&e, &name)?,
        }
        bad.mend()?;
    }
    forget(&dir.join(&name)).or_else(|e| if case.open { Ok(()) } else { Err(e) })?;
    let db = say("open with good sectors", open(&dir))?;
    for (i, family) in families(&db)?.iter().enumerate() {
        let found = say("scan", family.iter().and_then(Iterator::collect::<Result<Vec<_>, _>>))?;
        if found.len() as u64 != rows(i) {
            return Err(format!("{} rows of {} with good sectors", found.len(), rows(i)));
        }
    }
    say("close", db.close())
}

/// Checks that the error names the file and a byte offset.
fn check_error(e: &Error, file: &str) -> Done<()> {
    let named = match e {
        Error::Io { file: named, .. } | Error::Corrupt { file: named, .. } => &**named == file,
        _ => false,
    };
    if named && e.to_string().contains(" at byte ") {
        Ok(())
    } else {
        Err(format!("not an error of {file}: {e}"))
    }
}

/// Checks that a read of a bad sector reports a failed read, not wrong bytes.
fn check_kind(e: &Error, case: Case, file: &str) -> Done<()> {
    check_error(e, file)?;
    match e {
        Error::Io { .. } => Ok(()),
        Error::Corrupt { .. } if case.cut => Ok(()),
        other => Err(format!("no Io error: {other}")),
    }
}

/// Reads, verifies and merges a database in which part of one file is unreadable.
fn use_it(db: &Db, case: Case, file: &str) -> Done<()> {
    let all = families(db)?;
    let hurt = usize::from(case.end == ".vlog");
    let (mut good, mut bad) = (0, 0);
    for n in 0..ROWS {
        for (i, family) in all.iter().enumerate() {
            match family.get(&key(n)) {
                Ok(Some(v)) if *v == *value(n) => good += u64::from(i == hurt),
                Ok(None) if n >= rows(i) => {}
                Err(e) if i == hurt => {
                    check_kind(&e, case, file)?;
                    bad += 1;
                }
                other => return Err(format!("get {n} of family {i}: {other:?}")),
            }
        }
    }
    if good < ROWS / 8 || bad < ROWS / 8 {
        return Err(format!("{good} rows can be read and {bad} cannot: too few"));
    }
    walk(&all[hurt], case, file)?;
    let report = say("verify", db.verify())?;
    let Some(damage) = report.damage.first() else {
        return Err("verify found nothing".to_owned());
    };
    check_kind(damage, case, file)?;
    if case.end == ".klog" {
        match all[0].compact() {
            Ok(()) => return Err("a table that cannot be read was merged".to_owned()),
            Err(e) => check_kind(&e, case, file)?,
        }
    }
    // Writes must still work.
    for family in &all {
        say("put", family.put(&key(1), &value(1)))?;
        say("flush", family.flush())?;
    }
    say("compact of another family", all[2].compact())
}

/// Checks that a scan returns the rows before the bad sectors, then the error, then ends. A backward scan must return
/// the error first.
fn walk(family: &Family, case: Case, file: &str) -> Done<()> {
    let mut rows = 0;
    let mut iter = say("scan", family.iter())?;
    let e = loop {
        match iter.next() {
            Some(Ok((k, v))) if *k == *key(rows) && *v == *value(rows) => rows += 1,
            Some(Err(e)) => break e,
            other => return Err(format!("row {rows} of a scan: {other:?}")),
        }
    };
    check_kind(&e, case, file)?;
    if rows < ROWS / 8 || iter.next().is_some() {
        return Err(format!("a scan returned {rows} rows and an error; it went on, or the rows are too few"));
    }
    match say("scan", family.iter())?.next_back() {
        Some(Err(e)) => check_kind(&e, case, file),
        other => Err(format!("the last row is {other:?}")),
    }
}
