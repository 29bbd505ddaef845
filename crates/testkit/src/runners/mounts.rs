//! T51, mounts: file systems that go away, cannot be written, or share blocks.
//!
//! * `lost`: an error shuts the file system down while a process writes. It is mounted again without a boot of the machine. The default open
//!   finds a prefix of the commits, with all that were synced.
//! * `read-only`: a database that is not closed, on a medium that cannot be written, without the file of the lock. It is opened for reading,
//!   also for salvage.
//! * `shared`: the files of an open database are copied by `cp --reflink`, and the disk is full. The process reports it and lives.
//!
//! Needs Linux, root, `losetup`, `perl`, `mkfs.ext4` and `mkfs.xfs`; a case that lacks one is reported as skipped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use testkit::home::in_memory;
use testkit::process;
use testkit::report::{self, exit, finish, violation};
use testkit::rng::Rng;
use testkit::watch::Watch;
use tidesdb::{Db, Error, RecoveryMode, SyncMode};
use tidesdb_io::{Access, Advice, Disk as _, RealDisk};

use super::sectors::{Done, call, text};

/// The cases and their file systems.
const CASES: [(&str, &str); 3] = [("lost", "ext4"), ("read-only", "ext4"), ("shared", "xfs")];
/// Size of the devices in bytes: the smallest one that `mkfs.xfs` takes.
const DEVICE: u64 = 320 << 20;
/// Bytes of a segment of the log.
const SEGMENT: u64 = 1 << 20;
/// Rows that are synced before others are written.
const SYNCED: u32 = 300;
const ROW_BYTES: usize = 500;
/// `EXT4_IOC_SHUTDOWN` of the folder that is the first argument. It writes its own log first (1): without the last changes there
/// the file system would be older, with the same gaps.
const SHUTDOWN: &str =
    "open F, '<', $ARGV[0] or die $!; my $how = pack 'L', 1; ioctl F, 0x8004587d, $how or die $!";

#[derive(Parser)]
struct Args {
    /// Chooses which parts of the log reach the disk.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File systems that go away.
    #[arg(long, default_value_t = 6)]
    rounds: u64,
    /// Runs this case alone.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..CASES.len() as u64))]
    case: Option<u64>,
    /// A process that writes to a database in `--dir` until it is killed, or the disk is full.
    #[arg(long, hide = true, requires = "dir")]
    child: bool,
    #[arg(long, hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn runner() -> ExitCode {
    let args: Args = process::arguments();
    if let (true, Some(dir)) = (args.child, &args.dir) {
        return exit(write_rows(dir).is_ok());
    }
    let watch = Watch::start(Duration::from_secs(120));
    let (mut cases, mut skipped, mut gaps, mut violations) = (0, 0, 0, 0);
    for (n, (name, kind)) in (0..).zip(CASES).filter(|(n, _)| args.case.is_none_or(|only| only == *n)) {
        report::begin(&[("seed", args.seed.to_string())], n);
        watch.begin(name);
        match in_memory().and_then(|temp| run(name, kind, temp.path(), &args)) {
            Ok(Some(found)) => {
                cases += 1;
                gaps += found;
            }
            Ok(None) => skipped += 1,
            Err(e) => {
                violation(format_args!("{name}: {e}"));
                violations += 1;
            }
        }
    }
    let figures = [
        ("cases", cases),
        ("gaps", gaps),
        ("skipped", skipped),
        ("violations", violations),
        ("seed", args.seed),
    ];
    exit(finish("T51", &figures, &[]))
}

/// Runs a case. Returns how many logs had a gap, or `None` if there is no device for it.
fn run(name: &str, kind: &str, temp: &Path, args: &Args) -> Done<Option<u64>> {
    let device = match Device::new(temp, kind) {
        Ok(device) => device,
        Err(why) => {
            println!("T51 SKIPPED {name}: {why}");
            return Ok(None);
        }
    };
    match name {
        "lost" => {
            let mut rng = Rng::new(args.seed);
            (0..args.rounds).try_fold(0, |gaps, _| Ok(gaps + lost(&device, &mut rng)?)).map(Some)
        }
        "read-only" => read_only(&device).map(|()| Some(0)),
        _ => shared(&device).map(|()| Some(0)),
    }
}

/// A file system on a loop device over a file. Dropping it unmounts and detaches the device.
struct Device {
    name: String,
    mount: PathBuf,
    kind: String,
}

impl Device {
    fn new(temp: &Path, kind: &str) -> Done<Self> {
        let (image, mount) = (temp.join("image"), temp.join("mount"));
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(DEVICE).map_err(|e| e.to_string())?;
        std::fs::create_dir(&mount).map_err(|e| e.to_string())?;
        call("perl", &["-v"])?;
        call(&format!("mkfs.{kind}"), &["-q", text(&image)])?;
        let name = call("losetup", &["--find", "--show", text(&image)])?.trim().to_owned();
        let device = Self { name, mount, kind: kind.to_owned() };
        device.mount("rw")?;
        Ok(device)
    }

    fn mount(&self, how: &str) -> Done<()> {
        call("mount", &["-t", &self.kind, "-o", how, &self.name, text(&self.mount)]).map(drop)
    }

    fn unmount(&self) -> Done<()> {
        call("umount", &[text(&self.mount)]).map(drop)
    }

    fn database(&self) -> PathBuf {
        self.mount.join("db")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.unmount();
        let _ = call("losetup", &["-d", &self.name]);
    }
}

/// A process that writes rows.
struct Writer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Writer {
    fn start(dir: &Path) -> Done<Self> {
        let mut command = process::itself()?;
        command.arg("--child").arg("--dir").arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|e| e.to_string())?;
        let (input, output) = process.stdin.take().zip(process.stdout.take()).ok_or("no pipes")?;
        Ok(Self { process, input, output: BufReader::new(output) })
    }

    /// Reads the next number that the process says.
    fn said(&mut self) -> Done<u32> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|e| e.to_string())?;
        line.trim().parse().map_err(|e| format!("it said {line:?}: {e}"))
    }

    /// Lets the process go on.
    fn go_on(&mut self) -> Done<()> {
        self.input.write_all(b"\n").map_err(|e| e.to_string())
    }
}

fn options(dir: &Path) -> tidesdb::OpenOptions {
    Db::options(dir).sync(SyncMode::None).with(|o| {
        o.wal_segment_bytes = SEGMENT;
        o.disk_free_min = 1 << 20;
    })
}

fn key(n: u32) -> String {
    format!("{n:09}")
}

/// Writes rows and syncs them, writes others, and says how many each time, when it may go on. Then it writes until the disk is full.
fn write_rows(dir: &Path) -> Done<()> {
    let db = options(dir).open().map_err(|e| e.to_string())?;
    let put = |n: u32| db.put(key(n).as_bytes(), &[n as u8; ROW_BYTES]).map(drop);
    let next = |n: u32| {
        println!("{n}");
        std::io::stdin().read_line(&mut String::new()).map_err(|e| e.to_string())
    };
    (0..SYNCED).try_for_each(put).and_then(|()| db.sync().map(drop)).map_err(|e| e.to_string())?;
    next(SYNCED)?;
    let mut n = 4 * SYNCED;
    (SYNCED..n).try_for_each(put).map_err(|e| e.to_string())?;
    next(n)?;
    loop {
        match put(n) {
            Ok(()) => n += 1,
            Err(Error::NoSpace { .. }) => break,
            Err(e) => return Err(e.to_string()),
        }
    }
    db.get(key(n - 1).as_bytes()).map_err(|e| e.to_string())?.ok_or("a row is gone")?;
    println!("{n}");
    db.close().map_err(|e| e.to_string())
}

/// Checks that the database has a prefix of the rows, of at least `least`.
fn check_prefix(db: &Db, least: u32) -> Done<u32> {
    let rows = db.iter().map_err(|e| e.to_string())?;
    let mut n = 0;
    for row in rows {
        let (k, value) = row.map_err(|e| e.to_string())?;
        if *k != *key(n).as_bytes() || *value != [n as u8; ROW_BYTES] {
            return Err(format!("row {n} is missing or another"));
        }
        n += 1;
    }
    if n < least {
        return Err(format!("{n} rows are left, {least} were synced"));
    }
    let report = db.verify().map_err(|e| e.to_string())?;
    if report.is_ok() { Ok(n) } else { Err(format!("damage: {:?}", report.damage)) }
}

/// Shuts the file system down under a writer, after some of its pages were written. Returns 1 if the log had a gap.
fn lost(device: &Device, rng: &mut Rng) -> Done<u64> {
    let path = device.database();
    let mut writer = Writer::start(&path)?;
    let synced = writer.said()?;
    writer.go_on()?;
    writer.said()?;
    let dir = RealDisk::new().open_dir(&path, false).map_err(|e| e.to_string())?;
    for name in dir.list().map_err(|e| e.to_string())?.iter().filter(|name| name.ends_with(".wal")) {
        let file = dir.open(name, Access::Read).map_err(|e| e.to_string())?;
        for page in (0..SEGMENT / 4096).filter(|_| rng.one_in(3)) {
            file.advise(Advice::SyncSoon, page * 4096, 4096).map_err(|e| e.to_string())?;
        }
    }
    drop(dir);
    // The pages are on the device, or on their way: what has not come there is one more part that is lost.
    std::thread::sleep(Duration::from_millis(100));
    call("perl", &["-e", SHUTDOWN, text(&device.mount)])?;
    writer.process.kill().and_then(|()| writer.process.wait()).map_err(|e| e.to_string())?;
    device.unmount()?;
    device.mount("rw")?;
    let db = options(&path).open().map_err(|e| format!("the default open: {e}"))?;
    let gap = db.recovery_report().cut.is_some();
    check_prefix(&db, synced)?;
    db.close().map_err(|e| e.to_string())?;
    std::fs::remove_dir_all(&path).map_err(|e| e.to_string())?;
    Ok(gap.into())
}

/// Opens a database on a medium that cannot be written.
fn read_only(device: &Device) -> Done<()> {
    let path = device.database();
    let mut writer = Writer::start(&path)?;
    writer.said()?;
    writer.go_on()?;
    let rows = writer.said()?;
    writer.process.kill().and_then(|()| writer.process.wait()).map_err(|e| e.to_string())?;
    std::fs::remove_file(path.join("LOCK")).map_err(|e| e.to_string())?;
    device.unmount()?;
    device.mount("ro")?;
    for mode in [RecoveryMode::Tail, RecoveryMode::PointInTime, RecoveryMode::Salvage] {
        let read = || options(&path).read_only(mode != RecoveryMode::Salvage).recovery(mode).open();
        let (db, again) = read().and_then(|db| Ok((db, read()?))).map_err(|e| format!("{mode:?}: {e}"))?;
        // The file system was mounted anew, so the log may end at a commit that was not finished.
        check_prefix(&db, SYNCED).and_then(|n| check_prefix(&again, n.min(rows)))?;
    }
    match options(&path).open() {
        Err(Error::Io { .. }) => Ok(()),
        other => Err(format!("it is opened for writing: {:?}", other.map(drop))),
    }
}

/// Copies the files of an open database so that both share their blocks, fills the disk, and lets the writer go on.
fn shared(device: &Device) -> Done<()> {
    let path = device.database();
    let mut writer = Writer::start(&path)?;
    writer.said()?;
    writer.go_on()?;
    writer.said()?;
    call("cp", &["-r", "--reflink=always", text(&path), text(&device.mount.join("copy"))])?;
    let dir = RealDisk::new().open_dir(&device.mount, false).map_err(|e| e.to_string())?;
    let mut bytes = DEVICE;
    for n in 0.. {
        if dir.create_new(&format!("ballast{n}"), bytes).is_err() {
            bytes /= 2;
            if bytes < 4096 {
                break;
            }
        }
    }
    writer.go_on()?;
    let rows = writer.said();
    let status = writer.process.wait().map_err(|e| e.to_string())?;
    if status.code().is_none() {
        return Err(format!("the process died: {status}"));
    }
    if rows? < 4 * SYNCED || !status.success() {
        return Err(format!("the writer ends with {status}"));
    }
    Ok(())
}
