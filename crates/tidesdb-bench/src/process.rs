//! Figures from the system about this process, its files and the machine. A figure that the system does not provide is
//! 0.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Advice, Mode, OFlags, fadvise, fdatasync, open};
use rustix::io::pread;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Counters of this process since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor seconds in user mode, with a resolution of 10 ms.
    pub user: f64,
    /// Processor seconds in the kernel, with a resolution of 10 ms.
    pub system: f64,
    /// Processor seconds of all threads, with a resolution of 1 ns.
    pub processor: f64,
    /// Bytes read from devices; without page cache hits.
    pub read: u64,
    /// Bytes that were or will be written to devices.
    pub written: u64,
    /// Bytes returned by read calls, from devices or the page cache. Without memory maps and io_uring.
    #[serde(default)]
    pub read_calls: u64,
    /// Bytes passed to write calls.
    #[serde(default)]
    pub written_calls: u64,
}

const TICKS: f64 = 100.0;

impl Usage {
    /// Reads the counters.
    pub fn now() -> Self {
        let stat = text("/proc/self/stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let seconds = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0) / TICKS;
        let io = text("/proc/self/io");
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            user: seconds(11),
            system: seconds(12),
            processor: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            read: number(&io, "read_bytes:"),
            // Bytes of files that were removed before the system wrote them were counted, too.
            written: number(&io, "write_bytes:").saturating_sub(number(&io, "cancelled_write_bytes:")),
            read_calls: number(&io, "rchar:"),
            written_calls: number(&io, "wchar:"),
        }
    }

    /// Returns the usage since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            user: self.user - before.user,
            system: self.system - before.system,
            processor: self.processor - before.processor,
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            read_calls: self.read_calls.saturating_sub(before.read_calls),
            written_calls: self.written_calls.saturating_sub(before.written_calls),
        }
    }
}

/// Returns the peak resident memory of this process, in bytes.
pub fn peak_memory() -> u64 {
    number(&text("/proc/self/status"), "VmHWM:") << 10
}

/// Returns the resident memory of this process, in bytes, mapped files included.
pub fn resident() -> u64 {
    number(&text("/proc/self/status"), "VmRSS:") << 10
}

/// Returns the peak address space of this process, in bytes.
pub fn peak_addresses() -> u64 {
    number(&text("/proc/self/status"), "VmPeak:") << 10
}

/// Returns the total size of all files below `dir`, in bytes.
pub fn bytes_below(dir: &Path) -> u64 {
    space_below(dir).bytes
}

/// Space that files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Sum of their sizes.
    pub bytes: u64,
    /// Bytes of the blocks allocated to them, as `du` counts; less than `bytes` if files have holes.
    pub allocated: u64,
}

/// Bytes of one unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Returns the space of all files below `dir`.
pub fn space_below(dir: &Path) -> Space {
    let Ok(entries) = fs::read_dir(dir) else { return Space::default() };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => space_below(&entry.path()),
        Ok(meta) => Space { bytes: meta.len(), allocated: meta.blocks() * BLOCK },
        Err(_) => Space::default(),
    };
    entries.flatten().map(of_entry).fold(Space::default(), |all, one| Space {
        bytes: all.bytes + one.bytes,
        allocated: all.allocated + one.allocated,
    })
}

/// Writes the files below `dir` to their device and drops them from the page cache, so that the next reads are cold. No
/// process may have them mapped.
///
/// # Errors
/// Returns the error of the system.
pub fn forget_files(dir: &Path) -> Result<(), String> {
    for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            forget_files(&path)?;
            continue;
        }
        let failed = |e| format!("{}: cannot be dropped from the page cache: {e}", path.display());
        let file = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        fdatasync(&file).map_err(failed)?;
        fadvise(&file, 0, None, Advice::DontNeed).map_err(failed)?;
    }
    Ok(())
}

/// Returns the seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a report states its date")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The machine a report was made on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors available to this program.
    pub processors: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Kernel and its version.
    pub kernel: String,
    /// Type of the file system that holds the databases.
    pub file_system: String,
    /// Build profile of this program.
    pub build: String,
    /// Compiler that built this program.
    #[serde(default)]
    pub compiler: String,
    /// Commit that this program was built from; empty if unknown.
    #[serde(default)]
    pub commit: String,
    /// Load average over one minute when the run started: other activity on the machine.
    pub load: f64,
}

impl Machine {
    /// Describes this machine; the databases are in `dir`.
    pub fn here(dir: &Path) -> Self {
        let cpu = text("/proc/cpuinfo");
        let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
        Self {
            processor: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, Into::into),
            memory: number(&text("/proc/meminfo"), "MemTotal:") << 10,
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(dir),
            build: match cfg!(debug_assertions) {
                true => "with assertions: not for publication",
                false => env!("TIDESDB_BENCH_PROFILE"),
            }
            .to_owned(),
            compiler: env!("TIDESDB_BENCH_COMPILER").to_owned(),
            commit: env!("TIDESDB_BENCH_COMMIT").to_owned(),
            load: text("/proc/loadavg").split_whitespace().next().and_then(|w| w.parse().ok()).unwrap_or(0.0),
        }
    }
}

/// Returns the type from the mount table, because `stat -f` reports ext4 only as "ext2/ext3".
fn file_system(dir: &Path) -> String {
    let out = Command::new("df").arg("--output=fstype").arg(dir).output();
    let out = out.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into_owned());
    out.lines().nth(1).unwrap_or_default().trim().to_owned()
}

/// How long one thread was ready to run and had no processor, as Linux counts it (`schedstat`); 0 elsewhere.
#[derive(Debug)]
pub struct RunDelay {
    file: Option<OwnedFd>,
    seen: Duration,
}

impl RunDelay {
    /// That of the calling thread, from now on.
    pub fn of_this_thread() -> Self {
        let file = open("/proc/thread-self/schedstat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let mut this = Self { file, seen: Duration::ZERO };
        this.take();
        this
    }

    /// Returns the delay since the last call.
    pub fn take(&mut self) -> Duration {
        let mut text = [0; 64];
        let read = self.file.as_ref().and_then(|file| pread(file, &mut text, 0).ok()).unwrap_or(0);
        let mut numbers = text[..read].split(u8::is_ascii_whitespace).filter_map(|n| str::from_utf8(n).ok());
        let now = numbers.nth(1).and_then(|n| n.parse().ok()).map_or(self.seen, Duration::from_nanos);
        let delay = now.saturating_sub(self.seen);
        self.seen = now;
        delay
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the number after `name` in lines such as `name 12 kB`.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_counters_grow_with_the_work() {
        tidesdb_io::sim::alone(|| {
            let before = Usage::now();
            let mut n = 0u64;
            while Usage::now().since(&before).processor < 0.03 {
                n = std::hint::black_box(n + 1);
            }
            let used = Usage::now().since(&before);
            assert!(used.processor >= 0.03 && used.user + used.system <= used.processor + 0.05, "{used:?}");
            // In this order: to read one may take memory.
            let (resident, peak, addresses) = (resident(), peak_memory(), peak_addresses());
            assert!(
                peak >= resident && resident > 1 << 20 && addresses >= peak,
                "{resident} {peak} {addresses}"
            );
        });
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_that_share_a_processor_wait_for_it() {
        let spin = || {
            let (mut delay, begin) = (RunDelay::of_this_thread(), crate::measure::now());
            while begin.elapsed() < Duration::from_millis(300) {
                std::hint::spin_loop();
            }
            delay.take()
        };
        let threads = 4 * std::thread::available_parallelism().map_or(1, usize::from);
        let delays: Vec<Duration> = std::thread::scope(|scope| {
            let spinning: Vec<_> = (0..threads).map(|_| scope.spawn(spin)).collect();
            spinning.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let all: Duration = delays.iter().sum();
        assert!(
            all > Duration::from_millis(300) && all < threads as u32 * Duration::from_millis(600),
            "{delays:?}"
        );
    }

    /// The folder above `deps` has the name of the profile.
    #[test]
    fn the_profile_is_that_of_this_build() {
        let program = std::env::current_exe().unwrap();
        let folder = program.ancestors().nth(2).and_then(Path::file_name).unwrap();
        assert_eq!(folder, env!("TIDESDB_BENCH_PROFILE"));
    }

    #[test]
    fn bytes_below_counts_files_of_subdirectories() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("a"), [0; 100]).unwrap();
        fs::write(dir.path().join("sub/b"), [0; 23]).unwrap();
        assert_eq!(bytes_below(dir.path()), 123);
        assert_eq!(bytes_below(&dir.path().join("none")), 0);
    }

    #[test]
    fn a_hole_counts_in_the_size_and_takes_no_blocks() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), vec![7; 1 << 20]).unwrap();
        fs::File::create(dir.path().join("hole")).unwrap().set_len(64 << 20).unwrap();
        let space = space_below(dir.path());
        assert_eq!(space.bytes, 65 << 20);
        assert!((1 << 20..4 << 20).contains(&space.allocated), "{space:?}");
    }

    #[test]
    fn forgotten_files_are_read_from_the_device_again() {
        tidesdb_io::sim::alone(|| {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("sub")).unwrap();
            fs::write(dir.path().join("sub/b"), vec![7; 1 << 20]).unwrap();
            forget_files(dir.path()).unwrap();
            let before = Usage::now();
            assert_eq!(fs::read(dir.path().join("sub/b")).unwrap(), vec![7; 1 << 20]);
            let used = Usage::now().since(&before);
            assert!(used.read_calls >= 1 << 20, "{used:?}");
            let cold = used.read >= 1 << 20 || Machine::here(dir.path()).file_system == "tmpfs";
            assert!(cold, "the page cache was empty: {used:?}");
            assert!(forget_files(&dir.path().join("none")).is_err());
        });
    }
}
