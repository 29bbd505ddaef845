//! Random read limit of the device: reads of 4 KiB over the files of a database, bypassing the page cache (`O_DIRECT`).
//!
//! Each read in flight has its own thread. An engine that reads one page per key cannot answer more keys than this from
//! a cold cache.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::pread;
use serde::{Deserialize, Serialize};

use crate::measure::{Recorder, now};
use crate::rng::Rng;

/// Size and alignment of a read in bytes.
pub const PAGE: usize = 4096;

/// Random read performance of the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Reads in flight.
    pub depth: usize,
    /// Reads per second; 0 if the measurement failed.
    pub rate: f64,
    /// Median latency in microseconds.
    pub p50: f64,
    /// Maximum latency in microseconds.
    pub max: f64,
    /// Why the measurement failed; `None` if it did not.
    pub failure: Option<String>,
}

/// Reads random pages of the files below `dir` for `time`, with `depth` reads in flight.
pub fn measure(dir: &Path, depth: usize, time: Duration, seed: u64) -> Device {
    match reads(dir, depth, time, seed) {
        Ok(device) => device,
        Err(failure) => Device { depth, failure: Some(failure), ..Device::default() },
    }
}

fn reads(dir: &Path, depth: usize, time: Duration, seed: u64) -> Result<Device, String> {
    let files = Files::below(dir)?;
    let start = now();
    let work = |lane: u64| -> Result<Recorder, String> {
        let (mut rng, mut recorder) = (Rng::new(seed, lane), Recorder::default());
        let mut buffer = vec![0; 2 * PAGE];
        let first = buffer.as_ptr().align_offset(PAGE);
        let page = &mut buffer[first..first + PAGE];
        let mut last = now();
        while last - start < time {
            files.read(rng.below(files.pages), page)?;
            let end = now();
            recorder.record(end - last);
            last = end;
        }
        Ok(recorder)
    };
    let recorders = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..depth as u64).map(|lane| scope.spawn(move || work(lane))).collect();
        let join = |lane: std::thread::ScopedJoinHandle<'_, _>| {
            lane.join().map_err(|_| "a thread panicked".to_owned())?
        };
        lanes.into_iter().map(join).collect::<Result<Vec<_>, String>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let mut all = Recorder::default();
    recorders.iter().for_each(|recorder| all.merge(recorder));
    let latency = all.latency().ok_or("no read ended within the time")?;
    Ok(Device {
        depth,
        rate: latency.samples as f64 / seconds,
        p50: latency.p50,
        max: latency.max,
        failure: None,
    })
}

/// Files, each with the number of the first page after it.
struct Files {
    files: Vec<(u64, OwnedFd, PathBuf)>,
    pages: u64,
}

impl Files {
    /// Opens all files below `dir` that have at least one page.
    fn below(dir: &Path) -> Result<Self, String> {
        let mut files = Self { files: Vec::new(), pages: 0 };
        files.add(dir)?;
        if files.pages == 0 {
            Err(format!("{}: no file has 4 KiB to read", dir.display()))
        } else {
            Ok(files)
        }
    }

    fn add(&mut self, dir: &Path) -> Result<(), String> {
        for entry in fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?.flatten() {
            let (path, meta) = (entry.path(), entry.metadata().map_err(|e| e.to_string())?);
            let pages = meta.len() / PAGE as u64;
            if meta.is_dir() {
                self.add(&path)?;
            } else if meta.is_file() && pages > 0 {
                let file = open(&path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
                    .map_err(|e| format!("{}: cannot be opened with O_DIRECT: {e}", path.display()))?;
                self.pages += pages;
                self.files.push((self.pages, file, path));
            }
        }
        Ok(())
    }

    fn read(&self, page: u64, buffer: &mut [u8]) -> Result<(), String> {
        let at = self.files.partition_point(|(end, _, _)| *end <= page);
        let (end, file, path) = self.files.get(at).ok_or("a page after the last file")?;
        let first = if at == 0 { 0 } else { self.files[at - 1].0 };
        debug_assert!(page < *end);
        let n = pread(file, &mut *buffer, (page - first) * PAGE as u64)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        if n == PAGE { Ok(()) } else { Err(format!("{}: short read of {n} bytes", path.display())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_all_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        for (name, pages) in [("a", 1), ("sub/b", 3), ("small", 0)] {
            let bytes: Vec<u8> =
                (0..pages * PAGE + 100).map(|i| (i / PAGE) as u8 + name.len() as u8).collect();
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let files = match Files::below(dir.path()) {
            Ok(files) => files,
            Err(what) => return assert!(what.contains("with O_DIRECT"), "{what}"),
        };
        assert_eq!(files.pages, 4);
        let mut buffer = vec![0; 2 * PAGE];
        let first = buffer.as_ptr().align_offset(PAGE);
        let mut seen: Vec<u8> = Vec::new();
        for page in 0..4 {
            files.read(page, &mut buffer[first..first + PAGE]).unwrap();
            seen.push(buffer[first]);
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 5, 6, 7], "each page of each file, once");
        assert!(files.read(4, &mut buffer[first..first + PAGE]).is_err());
        let device = measure(dir.path(), 2, Duration::from_millis(20), 1);
        assert!(device.rate > 0.0 && device.p50 > 0.0 && device.p50 <= device.max, "{device:?}");
    }

    #[test]
    fn a_directory_without_files_returns_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let device = measure(dir.path(), 1, Duration::from_millis(1), 1);
        assert!(device.rate == 0.0 && device.failure.unwrap().contains("no file"));
    }
}
