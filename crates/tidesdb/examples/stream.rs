//! Streams one value into a database and back, checks every byte, and prints rates, disk space and the peak memory of the
//! process.
//!
//! Usage: `cargo run --profile dist -p tidesdb-engine --example stream -- DIR [GIB]`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::io::{self, Read, Seek, SeekFrom};
use std::time::Instant;

use tidesdb::Db;

/// A part of the value that begins with its number; the rest repeats a byte.
const PART_BYTES: usize = 4096;

/// Yields the value.
struct Source {
    at: u64,
    len: u64,
}

/// Fills `part` with part `number` of the value.
fn fill(part: &mut [u8; PART_BYTES], number: u64) {
    part.fill(number as u8);
    part[..8].copy_from_slice(&number.to_le_bytes());
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        let mut part = [0; PART_BYTES];
        while done < out.len() && self.at < self.len {
            fill(&mut part, self.at / PART_BYTES as u64);
            let rest = &part[(self.at % PART_BYTES as u64) as usize..];
            let n = rest.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&rest[..n]);
            done += n;
            self.at += n as u64;
        }
        Ok(done)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("DIR is missing")?;
    let gib: u64 = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let len = gib << 30;
    let db = Db::open(&dir)?;
    let start = Instant::now();
    db.put_stream("value", Source { at: 0, len })?;
    report("written", len, start);
    let start = Instant::now();
    let mut reader = db.value_reader("value")?.ok_or("the value is missing")?;
    let (mut found, mut want) = ([0; PART_BYTES], [0; PART_BYTES]);
    for number in 0..len / PART_BYTES as u64 {
        reader.read_exact(&mut found)?;
        fill(&mut want, number);
        if found != want {
            return Err(format!("part {number} is wrong").into());
        }
    }
    report("read", len, start);
    let start = Instant::now();
    for n in 0..10_000u64 {
        let number = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (len / PART_BYTES as u64);
        reader.seek(SeekFrom::Start(number * PART_BYTES as u64))?;
        reader.read_exact(&mut found)?;
        fill(&mut want, number);
        if found != want {
            return Err(format!("part {number} is wrong").into());
        }
    }
    println!("sought and read 10000 parts in {:.2} s", start.elapsed().as_secs_f64());
    drop(reader);
    println!("value logs: {} MiB on disk", disk_bytes(&dir)? >> 20);
    if let Err(e) = db.get("value") {
        println!("get: {e}");
    }
    db.delete("value")?;
    db.compact()?;
    println!("value logs after a delete: {} MiB on disk", disk_bytes(&dir)? >> 20);
    db.close()?;
    println!("peak memory: {}", peak_memory());
    Ok(())
}

fn report(what: &str, len: u64, start: Instant) {
    let secs = start.elapsed().as_secs_f64();
    println!("{what}: {} MiB in {secs:.2} s, {:.0} MiB/s", len >> 20, (len >> 20) as f64 / secs);
}

fn disk_bytes(dir: &str) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains(".vlog") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// The largest resident size of the process so far, as the kernel of Linux reports it; other systems are not asked.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("unknown").trim().to_owned()
}
