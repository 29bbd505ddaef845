//! Memory limit for child processes: a control group (cgroup) of version 1 or 2.
//!
//! The parent creates and removes the group. A child enters it before it opens the database, so all memory and page
//! cache of the engine is charged to the group. Creating a group needs root, or a cgroup delegated to this user.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A group created by this process. Dropping it removes the group.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Memory that is charged to a group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// Total.
    pub total: u64,
    /// Anonymous memory of processes.
    pub anonymous: u64,
    /// Page cache, mapped or not.
    pub cache: u64,
}

/// Attempts, and the delay between them, to remove a group: an exited process may stay charged for a short time.
const FAREWELL: (u32, Duration) = (50, Duration::from_millis(10));

impl Group {
    /// Creates a group with a memory limit of `limit` bytes.
    ///
    /// # Errors
    /// Returns each place that was tried and the reason it failed.
    pub fn make(limit: u64) -> Result<Self, String> {
        let places = places(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"));
        let name = format!("tidesdb-bench-{}", std::process::id());
        Self::make_in(&places, &name, limit)
    }

    fn make_in(places: &[(Version, PathBuf)], name: &str, limit: u64) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for (version, place) in places {
            match Self::make_at(*version, place, name, limit) {
                Ok(group) => return Ok(group),
                Err(reason) => reasons.push(reason),
            }
        }
        if reasons.is_empty() {
            reasons.push("no hierarchy with a memory controller is mounted".to_owned());
        }
        Err(format!(
            "no cgroup with a memory limit can be made, so nothing was run; be root, or run inside a delegated cgroup: {}",
            reasons.join("; ")
        ))
    }

    fn make_at(version: Version, place: &Path, name: &str, limit: u64) -> Result<Self, String> {
        let dir = place.join(name);
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        // From here on, a failure removes the directory.
        let group = Self { dir, version };
        if version == Version::Two && !group.dir.join("memory.max").exists() {
            // Fails if the parent group contains processes; the check below detects that.
            let _ = fs::write(place.join("cgroup.subtree_control"), "+memory");
        }
        let (file, swap) = match version {
            Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            Version::Two => ("memory.max", "memory.swap.max"),
        };
        let file = group.dir.join(file);
        if !file.exists() {
            return Err(format!("{}: no memory controller", group.dir.display()));
        }
        fs::write(&file, limit.to_string()).map_err(|e| format!("{}: {e}", file.display()))?;
        // Optional: a kernel without swap accounting lacks this file.
        let _ = fs::write(group.dir.join(swap), if version == Version::One { limit } else { 0 }.to_string());
        Ok(group)
    }

    /// Returns the directory of the group, for a child to enter.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns how many processes the memory limit has killed.
    pub fn kills(&self) -> u64 {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        field(&read(&self.dir, file), "oom_kill").unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..FAREWELL.0 {
            if fs::remove_dir(&self.dir).is_ok() || !self.dir.exists() {
                return;
            }
            std::thread::sleep(FAREWELL.1);
        }
    }
}

/// Moves this process with all its threads into the group at `dir`.
///
/// # Errors
/// Returns the error of the kernel.
pub fn enter(dir: &Path) -> Result<(), String> {
    let file = dir.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string()).map_err(|e| format!("{}: {e}", file.display()))
}

/// Returns the memory charged to the group at `dir`; zeros if it cannot be read.
pub fn charged(dir: &Path) -> Charged {
    match dir.join("memory.current").exists() {
        true => parse(Version::Two, &read(dir, "memory.current"), &read(dir, "memory.stat")),
        false => parse(Version::One, &read(dir, "memory.usage_in_bytes"), &read(dir, "memory.stat")),
    }
}

fn parse(version: Version, total: &str, stat: &str) -> Charged {
    let (anonymous, cache) = match version {
        Version::One => ("rss", "cache"),
        Version::Two => ("anon", "file"),
    };
    Charged {
        total: total.trim().parse().unwrap_or(0),
        anonymous: field(stat, anonymous).unwrap_or(0),
        cache: field(stat, cache).unwrap_or(0),
    }
}

/// Returns the number after the word `name` in lines such as `name 12`.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

/// Lists the groups in which a child group may be created, best first: for each memory hierarchy, the group of this
/// process, then its ancestors.
fn places(mounts: &str, own: &str) -> Vec<(Version, PathBuf)> {
    let mut places = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (before, after): (Vec<&str>, Vec<&str>) =
            (before.split(' ').collect(), after.split(' ').collect());
        let (&[_, _, _, root, point, ..], &[kind, _, options, ..]) = (&before[..], &after[..]) else {
            continue;
        };
        let version = match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
            "cgroup2" => Version::Two,
            _ => continue,
        };
        let Some(path) = own_path(version, own) else { continue };
        // A mount shows the part of the hierarchy below its root.
        let below = path.strip_prefix(root).unwrap_or(path).trim_matches('/');
        let below = Path::new(below);
        places.extend(below.ancestors().map(|part| (version, Path::new(point).join(part))));
    }
    places
}

/// Returns the path of this process in a hierarchy, from `/proc/self/cgroup`.
fn own_path(version: Version, own: &str) -> Option<&str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let right = match version {
            Version::One => controllers.split(',').any(|name| name == "memory"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        right.then_some(path)
    })
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn read(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        41 31 0:38 /user /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        nonsense\n";

    fn paths(own: &str) -> Vec<(Version, String)> {
        places(MOUNTS, own).into_iter().map(|(v, path)| (v, path.display().to_string())).collect()
    }

    #[test]
    fn candidate_places_are_the_own_group_and_its_ancestors() {
        let own = "8:pids:/\n4:memory:/jobs/one\n0::/user/scope\n";
        let one = ["jobs/one", "jobs", ""].map(|p| (Version::One, format!("/sys/fs/cgroup/memory/{p}")));
        let two = ["scope", ""].map(|p| (Version::Two, format!("/sys/fs/cgroup/unified/{p}")));
        assert_eq!(paths(own), [&one[..], &two[..]].concat());
        assert_eq!(paths("5:cpu,memory:/\n"), [(Version::One, "/sys/fs/cgroup/memory/".to_owned())]);
        assert_eq!((paths(""), places("", own)), (vec![], vec![]));
    }

    #[test]
    fn charges_are_parsed_for_both_versions() {
        let one = "cache 4096\nrss 8192\nrss_huge 1\nmapped_file 5\ntotal_cache 9\n";
        let want = Charged { total: 12288, anonymous: 8192, cache: 4096 };
        assert_eq!(parse(Version::One, "12288\n", one), want);
        assert_eq!(parse(Version::Two, "12288\n", "anon 8192\nfile 4096\nanon_thp 7\n"), want);
        assert_eq!(parse(Version::Two, "max\n", ""), Charged::default());
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
    }

    #[test]
    fn an_impossible_group_returns_the_reasons() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let places = [(Version::One, missing.clone()), (Version::Two, dir.path().to_owned())];
        let failure = Group::make_in(&places, "x", 1 << 30).unwrap_err();
        assert!(failure.contains("nothing was run") && failure.contains("be root"), "{failure}");
        assert!(failure.contains(&missing.display().to_string()), "{failure}");
        assert!(failure.contains("no memory controller"), "a plain directory is not a cgroup: {failure}");
        assert!(!dir.path().join("x").exists(), "a partly created group is removed");
        assert!(Group::make_in(&[], "x", 1).unwrap_err().contains("no hierarchy"));
    }

    #[test]
    fn a_child_in_a_group_is_charged_and_limited() {
        // If this user may not create groups, the refusal is tested above.
        let Ok(group) = Group::make(64 << 20) else { return };
        let dir = group.dir().to_owned();
        let script =
            "echo $$ > \"$0/cgroup.procs\" && head -c 8000000 /dev/zero | tail -c 8000000 | wc -c; read _";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]).arg(&dir).stdin(std::process::Stdio::piped());
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let most = (0..30_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(2));
            Some(charged(&dir).total).filter(|bytes| *bytes > 0)
        });
        child.wait().unwrap(); // closes its input, for which it waits
        assert!(most.is_some_and(|bytes| bytes <= 64 << 20), "{most:?}");
        assert_eq!(group.kills(), 0);
        let script = "echo $$ > \"$0/cgroup.procs\" && head -c 200000000 /dev/zero | tail -c 200000000";
        let mut command = std::process::Command::new("sh");
        let status =
            command.args(["-c", script]).arg(&dir).stdout(std::process::Stdio::null()).status().unwrap();
        assert!(!status.success() && group.kills() > 0, "200 MB must exceed the limit: {status}");
        drop(group);
        assert!(!dir.exists());
    }
}
