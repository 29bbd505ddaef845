//! Memory of the machine, and of the control groups that this process belongs to.

use std::path::Path;

/// Memory that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineMemory {
    /// Bytes in all: those of the machine, or of the smallest control group of the process if that is less.
    pub total: u64,
    /// Bytes of these that are free or can be freed at once.
    pub available: u64,
}

/// Where the hierarchies of control groups are mounted: the list of controllers in `/proc/self/cgroup`, the mount point, and the
/// files with the limit and the usage of a group. Version 1 is first, then version 2.
const HIERARCHIES: [(&str, &str, &str, &str); 3] = [
    ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ("", "/sys/fs/cgroup", "memory.max", "memory.current"),
    ("", "/sys/fs/cgroup/unified", "memory.max", "memory.current"),
];

impl MachineMemory {
    /// Asks the system.
    pub fn now() -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let host = Self::of_host(&read(Path::new("/proc/meminfo")).unwrap_or_default());
        let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        host.within_groups(&groups, read)
    }

    /// Reads `/proc/meminfo`. If that is not mounted, asks the kernel, which does not count caches as free.
    fn of_host(info: &str) -> Self {
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
        };
        if let (Some(total), Some(available)) = (field("MemTotal:"), field("MemAvailable:")) {
            return Self { total, available };
        }
        #[cfg(target_os = "linux")]
        {
            let host = rustix::system::sysinfo();
            let unit = u64::from(host.mem_unit);
            let (total, free) = (host.totalram as u64 * unit, host.freeram as u64 * unit);
            Self { total, available: free + host.bufferram as u64 * unit }
        }
        #[cfg(not(target_os = "linux"))]
        Self { total: ASSUMED, available: ASSUMED }
    }

    /// Reduces the numbers to what the control groups in `groups` allow, which has the form of `/proc/self/cgroup`. A group is
    /// limited by its ancestors too. In a container, the path of the group may not exist; then only the mount point does.
    fn within_groups(mut self, groups: &str, read: impl Fn(&Path) -> Option<String>) -> Self {
        for (controllers, mount, limit, used) in HIERARCHIES {
            let own = groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (list, path) = rest.split_once(':')?;
                (list.split(',').any(|name| name == controllers)).then_some(path)
            });
            let Some(own) = own else { continue };
            let path = Path::new(mount).join(own.trim_start_matches('/'));
            for group in path.ancestors().take_while(|group| group.starts_with(mount)) {
                let number = |file: &str| read(&group.join(file))?.trim().parse::<u64>().ok();
                if let Some(max) = number(limit) {
                    let free = max.saturating_sub(number(used).unwrap_or(0));
                    (self.total, self.available) = (self.total.min(max), self.available.min(free));
                }
            }
        }
        self
    }
}

/// Memory of a machine that does not say how much it has.
#[cfg(not(target_os = "linux"))]
const ASSUMED: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: MachineMemory = MachineMemory { total: 8 << 30, available: 4 << 30 };

    /// A file system of these files.
    fn read(files: &'static [(&str, &str)]) -> impl Fn(&Path) -> Option<String> {
        |path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn version_1_limits_by_the_group_and_its_ancestors() {
        let files = read(&[
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "400\n"),
            ("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2000\n"),
        ]);
        let seen = HOST.within_groups("5:cpu:/x\n4:memory:/a/b\n0::/\n", files);
        assert_eq!(seen, MachineMemory { total: 1000, available: 600 });
    }

    #[test]
    fn version_2_limits_and_max_does_not() {
        let files = read(&[
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/user/memory.max", "5000\n"),
            ("/sys/fs/cgroup/user/memory.current", "6000\n"),
        ]);
        assert_eq!(HOST.within_groups("0::/user\n", files), MachineMemory { total: 5000, available: 0 });
        assert_eq!(HOST.within_groups("0::/user\n", read(&[])), HOST);
        assert_eq!(HOST.within_groups("", read(&[("/sys/fs/cgroup/memory.max", "1")])), HOST);
    }

    /// In a container `/proc/self/cgroup` may name a path of the host, while the mount shows only the container's own group.
    #[test]
    fn a_group_whose_path_is_not_mounted_is_at_the_mount_point() {
        let files = read(&[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000")]);
        assert_eq!(HOST.within_groups("4:memory:/docker/0123\n", files).total, 1000);
    }

    #[test]
    fn memory_is_known_without_proc() {
        let seen = MachineMemory::of_host("");
        assert!(seen.total > 16 << 20 && seen.available > 0 && seen.available <= seen.total, "{seen:?}");
        let told = MachineMemory::of_host("MemTotal:  2048 kB\nMemFree: 5 kB\nMemAvailable:   1024 kB\n");
        assert_eq!(told, MachineMemory { total: 2 << 20, available: 1 << 20 });
        let now = MachineMemory::now();
        assert!(now.total <= seen.total + seen.total / 10 && now.available <= now.total, "{now:?} {seen:?}");
    }
}
