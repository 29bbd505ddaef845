//! What Linux tells about a folder, in `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::linux::memory_of;
use crate::surroundings::{Holder, Mount, Surroundings};

/// What the system appends to the name of a file that has none any more.
const REMOVED: &str = " (deleted)";
/// Bytes of a block of `st_blocks`.
const BLOCK: u64 = 512;

pub(crate) fn surroundings(dir: &Path, process: Option<u32>) -> Surroundings {
    if cfg!(miri) {
        return Surroundings::default();
    }
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let device = fs::metadata(&dir).map_or(0, |found| found.dev());
    let (holders, hidden) = holders(&dir, device);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Surroundings {
        memory: process.and_then(memory_of),
        descriptors: process.and_then(descriptors),
        mount: mount_of(&dir, &mounts),
        holders,
        hidden,
        linked: linked(&dir),
    }
}

fn descriptors(process: u32) -> Option<(u64, u64)> {
    let open = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    Some((open, line.split_whitespace().next()?.parse().ok()?))
}

/// Returns the file system with the longest mount point above `dir`; of several on the same point the last one, which hides the others.
fn mount_of(dir: &Path, mounts: &str) -> Option<Mount> {
    let parsed = mounts.lines().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mount: Vec<&str> = mount.split(' ').collect();
        let (point, own) = (unescaped(mount.get(4)?), mount.get(5)?);
        let mut system = system.split(' ');
        let (kind, all) = (system.next()?.to_owned(), system.nth(1).unwrap_or_default());
        let options = own.split(',').chain(all.split(',')).map(str::to_owned).collect();
        Some(Mount { point, kind, options })
    });
    parsed.filter(|mount| dir.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
}

/// Replaces `\040` and others in a path of `mountinfo`.
fn unescaped(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let code = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    std::ffi::OsString::from_vec(out).into()
}

/// Returns who holds removed files of `dir`, and how many processes did not let themselves be looked at.
fn holders(dir: &Path, device: u64) -> (Vec<Holder>, u64) {
    let (mut all, mut hidden) = (Vec::new(), 0);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match held_by(process, dir, device) {
            Some(held) if held.is_empty() => {}
            Some(held) => all.push(Holder {
                process,
                name: fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim_end().to_owned(),
                files: held.len() as u64,
                bytes: held.values().sum(),
            }),
            None => hidden += 1,
        }
    }
    all.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    (all, hidden)
}

/// Returns the removed files of `dir`, which is on `device`, that a process has open or mapped, by inode, with their bytes; `None` if it may
/// not be looked at. A process without an open file of `dir` has none of its files mapped: reading its maps would hold it up for nothing.
fn held_by(process: u32, dir: &Path, device: u64) -> Option<BTreeMap<u64, u64>> {
    let folder = format!("/proc/{process}");
    let mut held = BTreeMap::new();
    let is_ours = |name: &Path| name.parent() == Some(dir);
    let is_removed = |name: &Path| name.as_os_str().as_encoded_bytes().ends_with(REMOVED.as_bytes());
    let open = match fs::read_dir(format!("{folder}/fd")) {
        Ok(open) => open,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Err(_) => return Some(held), // it has ended
    };
    let mut uses_dir = false;
    for one in open.flatten() {
        // The link says the name that the file had, and leads to the file. Another container may have the same name.
        let Ok(name) = fs::read_link(one.path()) else { continue };
        uses_dir |= name == dir || is_ours(&name);
        if is_ours(&name)
            && is_removed(&name)
            && let Ok(file) = fs::metadata(one.path())
            && file.dev() == device
        {
            held.insert(file.ino(), file.blocks() * BLOCK);
        }
    }
    let maps = if uses_dir { fs::read_to_string(format!("{folder}/maps")) } else { Ok(String::new()) };
    for line in maps.unwrap_or_default().lines() {
        let mut fields = line.splitn(6, ' ');
        let (range, place, inode) = (fields.next(), fields.nth(2), fields.next());
        let name = fields.next().map(|name| Path::new(name.trim_start()));
        let is_on_device = place.and_then(number_of_device) == Some(device);
        if !is_on_device || !name.is_some_and(|name| is_ours(name) && is_removed(name)) {
            continue;
        }
        let ends = range.and_then(|range| range.split_once('-'));
        let bytes = ends.and_then(|(from, to)| {
            u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)
        });
        if let (Some(bytes), Some(inode)) = (bytes, inode.and_then(|inode| inode.parse().ok())) {
            held.entry(inode).or_insert(bytes);
        }
    }
    Some(held)
}

/// Reads `fd:01`, as `maps` names a device.
fn number_of_device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some(rustix::fs::makedev(number(major)?, number(minor)?))
}

/// Returns how many files of `dir` have another name, and their bytes.
fn linked(dir: &Path) -> (u64, u64) {
    let files = fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
    let linked = files.filter(|file| file.is_file() && file.nlink() > 1);
    linked.fold((0, 0), |(files, bytes), file| (files + 1, bytes + file.blocks() * BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_deepest_mounts_counts() {
        let mounts = "\
            22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda rw,nobarrier\n\
            30 22 0:40 / /srv/my\\040data rw,sync - ext4 /dev/vdb rw\n\
            31 30 0:41 / /srv/my\\040data rw - nfs4 host:/x rw,vers=4.2\n\
            32 22 0:42 / /srv/my rw - tmpfs none rw\n\
            broken line - \n";
        let of = |dir: &str| mount_of(Path::new(dir), mounts).unwrap();
        let mount = of("/srv/my data/db");
        assert_eq!((mount.kind.as_str(), mount.point.to_str()), ("nfs4", Some("/srv/my data")));
        let root = of("/var/db");
        assert!(root.kind == "ext4" && root.options.iter().any(|option| option == "nobarrier"), "{root:?}");
        assert_eq!(mount_of(Path::new("/x"), ""), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn this_process_is_seen_to_hold_a_removed_file_and_to_share_another() {
        let dir = tempfile::tempdir().unwrap();
        let (_open, removed) = tempfile::NamedTempFile::new_in(dir.path()).unwrap().into_parts();
        let shared = dir.path().join("2.klog");
        fs::write(&removed, vec![1; 100_000]).unwrap();
        fs::write(&shared, vec![1; 50_000]).unwrap();
        let own = std::process::id();
        let held = |around: &Surroundings| around.holders.iter().find(|one| one.process == own).cloned();
        let before = surroundings(dir.path(), Some(own));
        assert_eq!((held(&before), before.linked), (None, (0, 0)));
        let (open, limit) = before.descriptors.unwrap();
        assert!(open > 2 && open < limit && before.memory.unwrap() > 1 << 20 && before.mount.is_some());

        drop(removed);
        fs::hard_link(&shared, dir.path().join("3.klog")).unwrap();
        let after = surroundings(dir.path(), Some(own));
        let holder = held(&after).unwrap();
        assert!(holder.files == 1 && holder.bytes >= 100_000 && !holder.name.is_empty(), "{holder:?}");
        assert!(after.linked.0 == 2 && after.linked.1 >= 100_000, "{:?}", after.linked);
    }
}
