//! A memory control group (version 1 or 2), and the memory of a process as the kernel counts it.

use std::path::{Path, PathBuf};

/// A control group with a memory limit; dropping it removes it.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Creates a group with a limit of `bytes`.
    ///
    /// # Errors
    /// The reason why no group can be created here.
    pub fn new(bytes: u64) -> Result<Self, String> {
        let name = format!("tidesdb-memory-{}", std::process::id());
        let list = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let place = |controllers: &str| {
            let line = list.lines().find(|line| line.split(':').nth(1) == Some(controllers))?;
            Some(line.splitn(3, ':').nth(2)?.trim_start_matches('/').to_owned())
        };
        let (root, own, setting) = match place("memory") {
            Some(own) => (Path::new("/sys/fs/cgroup/memory"), own, "memory.limit_in_bytes"),
            None => (Path::new("/sys/fs/cgroup"), place("").ok_or("no control groups")?, "memory.max"),
        };
        // In a container the path of the own group may not be mounted; then the root is the own group.
        let parent = Some(root.join(own)).filter(|path| path.is_dir()).unwrap_or_else(|| root.to_owned());
        let path = parent.join(name);
        std::fs::create_dir(&path).map_err(|e| format!("create a control group: {e}"))?;
        let group = Self(path);
        std::fs::write(group.0.join(setting), bytes.to_string()).map_err(|e| format!("{setting}: {e}"))?;
        // Anonymous memory must not escape to swap.
        let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
        let _ = std::fs::write(group.0.join("memory.swappiness"), "0");
        Ok(group)
    }

    /// The file to which a process writes its number to join.
    pub fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Returns whether the kernel killed a process of the group for its memory.
    pub fn has_killed(&self) -> bool {
        ["memory.oom_control", "memory.events"].iter().any(|file| {
            let text = std::fs::read_to_string(self.0.join(file)).unwrap_or_default();
            text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|n| n.trim() != "0"))
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Returns the anonymous memory of the process, and the peak of all its resident memory, in bytes; `None` once it
/// has ended.
pub(super) fn memory_of(pid: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    Some((field("RssAnon:")?, field("VmHWM:")?))
}
