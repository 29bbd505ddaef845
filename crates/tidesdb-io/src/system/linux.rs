//! Linux: what it has beyond the other Unix systems.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
#[cfg(all(target_env = "gnu", not(miri)))]
use std::sync::OnceLock;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use rustix::ioctl::{Getter, Opcode, opcode};
use rustix::mm::Advice;

use super::boot::Boot;
use super::unix::{self, Handle, Mapping, checked, uninterrupted};
use super::{uuid, write_then_sync};

pub(super) use super::posix::{disable_read_ahead, space};
pub(crate) use super::posix::{dont_need, sync_all, sync_data, will_need};

pub(super) const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;

const EXT: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const TMPFS: u64 = 0x0102_1994;
/// Magic numbers of file systems on which a page fault inside a preallocated file never ends in a signal: ext2/3/4, XFS, tmpfs.
const MAPPABLE: [u64; 3] = [EXT, XFS, TMPFS];

/// Niceness of a thread of low priority, added to that of the process: such a thread gets about a third of a busy processor
/// when it competes with one normal thread. With much less, merges would fall behind while readers or other programs keep the
/// processors busy, and writers would wait for them.
const LOW_NICE: i32 = 3;
/// Highest niceness of the system.
const NICE_MAX: i32 = 19;

/// Reads at `offset` without waiting for the device. `EAGAIN` if the first byte is not in the page cache.
fn read_nowait(file: &Handle, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut bufs = [io::IoSliceMut::new(buf)];
    retry_on_intr(|| rustix::io::preadv2(file, &mut bufs, offset, ReadWriteFlags::NOWAIT))
}

/// Reads at `offset` if the bytes are in the page cache; `None` if not, or if the file system does not tell.
pub(crate) fn read_cached_at(file: &Handle, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    match read_nowait(file, buf, offset) {
        Ok(read) => Ok(Some(read)),
        // File systems that cannot report this refuse the flag.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Returns whether the byte at `offset` is in the page cache; true if the file system does not tell.
pub(crate) fn is_cached(file: &Handle, offset: u64) -> io::Result<bool> {
    match read_nowait(file, &mut [0], offset) {
        Err(Errno::AGAIN) => Ok(false),
        // File systems that cannot report this refuse the flag.
        Ok(_) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// Writes at `offset` and makes these bytes durable. May be short.
pub(crate) fn write_durably_at(file: &Handle, buf: &[u8], offset: u64) -> io::Result<usize> {
    let buffers = [io::IoSlice::new(buf)];
    match retry_on_intr(|| rustix::io::pwritev2(file, &buffers, offset, ReadWriteFlags::SYNC)) {
        // Old systems, and some file systems.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => write_then_sync(file, buf, offset),
        other => Ok(other?),
    }
}

/// Reserves blocks for a range that is not empty, and makes the file at least that long. Returns false if the file system cannot.
pub(crate) fn allocate(file: &Handle, offset: u64, len: u64) -> io::Result<bool> {
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Starts writing the dirty pages of a range, up to the end of the file if `len` is 0. Does not wait until they are written.
pub(crate) fn start_writing(file: &Handle, offset: u64, len: u64) -> io::Result<()> {
    let to_offset = |n| libc::off64_t::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
    let (offset, len) = (to_offset(offset)?, to_offset(len)?);
    let start = || {
        // SAFETY: the call takes a descriptor, which is open as long as `file` is borrowed, and three numbers; it touches no memory.
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) }
    };
    uninterrupted(|| checked(start()))
}

/// Returns whether a page fault of a read in a map of this file never ends in a signal.
pub(crate) fn may_map(file: &Handle) -> io::Result<bool> {
    Ok(MAPPABLE.contains(&magic(file)?))
}

/// Like [`may_map`], for writes. Two files of XFS may share blocks, after `cp --reflink`: a write to one of them needs a new block, for which
/// a full disk has no room, and a page fault can only answer with a signal. No file system but XFS is on the list that can share blocks.
pub(crate) fn may_map_shared(file: &Handle) -> io::Result<bool> {
    Ok(match magic(file)? {
        XFS => !shares_blocks(file),
        kind => MAPPABLE.contains(&kind),
    })
}

/// `struct xfs_fsop_geom_v1`.
#[repr(C)]
struct XfsGeometry {
    _before: [u32; 23],
    flags: u32,
    _after: [u32; 4],
}

/// `XFS_FSOP_GEOM_FLAGS_REFLINK`: files may share blocks.
const XFS_REFLINK: u32 = 1 << 20;
/// `XFS_IOC_FSGEOMETRY_V1`.
const XFS_GEOMETRY: Opcode = opcode::read::<XfsGeometry>(b'X', 100);

/// Returns whether files of this XFS may share blocks; true if it does not say.
fn shares_blocks(file: &Handle) -> bool {
    // SAFETY: the call of this number writes one structure of this type; every value of it is valid.
    let ask = || unsafe { rustix::ioctl::ioctl(file, Getter::<XFS_GEOMETRY, XfsGeometry>::new()) };
    retry_on_intr(ask).map_or(true, |geometry| geometry.flags & XFS_REFLINK != 0)
}

/// See [`Mapping::expect_order`]. In order, a fault reads as far ahead as the device is set to (`read_ahead_kb`: 128 KiB usually, MiBs on
/// some), which clears that memory for a file that was only allocated.
pub(super) fn expect_order(map: &Mapping, in_order: bool) {
    let advice = if in_order { Advice::Normal } else { Advice::Random };
    // SAFETY: the range is the whole mapping, which is live; this advice changes no byte of it. A refusal is harmless.
    let _ = unsafe { rustix::mm::madvise(map.base().as_ptr().cast(), map.len(), advice) };
}

/// See [`Mapping::release`].
pub(super) fn release(map: &Mapping) -> io::Result<()> {
    // SAFETY: the range is the whole mapping, which is shared. Its pages stay in the page cache with every
    // byte that was stored, so later accesses to the mapping see the same bytes.
    let drop_pages =
        || unsafe { rustix::mm::madvise(map.base().as_ptr().cast(), map.len(), Advice::LinuxDontNeed) };
    Ok(retry_on_intr(drop_pages)?)
}

/// Asks for huge pages in a long buffer: filling it then takes one page fault for each 2 MiB instead of one for each 4 KiB.
pub(crate) fn advise_huge(buffer: &mut [u8]) {
    let page = unix::page_bytes();
    let skip = buffer.as_ptr().align_offset(page);
    let Some(pages) = buffer.get_mut(skip..) else { return };
    let whole = pages.len() / page * page;
    // SAFETY: the pages lie within `buffer`, which is borrowed exclusively, and this advice never changes the content
    // of pages. A refusal is harmless.
    let _ = unsafe { rustix::mm::madvise(pages.as_mut_ptr().cast(), whole, Advice::LinuxHugepage) };
}

/// Where the file systems that can be told apart have a folder for each mounted device, by their magic numbers: ext2/3/4, XFS, F2FS.
const FOLDERS: [(u64, &str); 3] =
    [(EXT, "/sys/fs/ext4"), (XFS, "/sys/fs/xfs"), (0xF2F5_2010, "/sys/fs/f2fs")];
/// `STATX_MNT_ID_UNIQUE`: the number of a mount that is never used again, from Linux 6.8 on.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Returns the time since the machine started and the file system of `folder` was mounted.
///
/// ext4, XFS and F2FS have a folder in `/sys` as long as a device is mounted, however often and in whichever namespace, and the number of
/// that folder is not used again before the next boot. The number of the mount itself says less: another container has another mount of a
/// file system that never went away. A tmpfs that went away has lost its files too.
pub(super) fn boot(folder: &OwnedFd) -> Boot {
    let Some(id) = boot_id() else { return Boot::default() };
    let kind = magic(folder).unwrap_or(0);
    if kind == TMPFS {
        return Boot { id, is_exact: true };
    }
    let mut id = u128::from_le_bytes(id);
    // The numbers are added at different places: none of one kind is taken for one of the other.
    let is_exact = match (instance(folder, kind), unique_mount(folder)) {
        (Some(number), _) => {
            id ^= u128::from(number) << 64;
            true
        }
        (None, Some(number)) => {
            id ^= u128::from(number);
            false
        }
        (None, None) => return Boot::default(),
    };
    Boot { id: id.to_le_bytes(), is_exact }
}

/// The number of the folder in `/sys` that a file system of this kind has while its device is mounted.
fn instance(folder: &OwnedFd, kind: u64) -> Option<u64> {
    let (_, folders) = FOLDERS.iter().find(|(magic, _)| *magic == kind)?;
    let device = retry_on_intr(|| rustix::fs::fstat(folder)).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let found = std::fs::metadata(Path::new(folders).join(device.file_name()?)).ok()?;
    Some(found.ino())
}

/// The number of the mount through which `folder` was opened.
fn unique_mount(folder: &OwnedFd) -> Option<u64> {
    let stat = || rustix::fs::statx(folder, c"", AtFlags::EMPTY_PATH, UNIQUE_MOUNT);
    let found = retry_on_intr(stat).ok()?;
    (found.stx_mask & UNIQUE_MOUNT.bits() != 0).then_some(found.stx_mnt_id)
}

/// The magic number of the file system of an open file.
fn magic(file: &OwnedFd) -> io::Result<u64> {
    // The type of `f_type` differs between platforms; the magic numbers fit in 32 bits on all of them.
    #[allow(clippy::useless_conversion, reason = "the field is signed on some platforms")]
    Ok(u64::try_from(retry_on_intr(|| rustix::fs::fstatfs(file))?.f_type).unwrap_or(0) & 0xFFFF_FFFF)
}

/// Reads the boot id that Linux draws at each boot, written as a UUID.
fn boot_id() -> Option<[u8; 16]> {
    if cfg!(miri) {
        return None;
    }
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = || rustix::fs::open("/proc/sys/kernel/random/boot_id", flags, Mode::empty());
    let file = retry_on_intr(open).ok()?;
    let mut text = [0; 36];
    let len = retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
    uuid::parse(&text[..len])
}

/// Returns when this process was started, the boot, and the namespace of the number of the process. 0 is what is not known.
pub(crate) fn process() -> (u64, [u8; 16], u64) {
    if cfg!(miri) {
        return Default::default();
    }
    let started = process_now(std::process::id()).map_or(0, |(started, _)| started);
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    (started, boot_id().unwrap_or_default(), namespace)
}

/// Returns when the process `number` was started, and whether it is stopped; `None` in place of that if it has ended and its parent does not
/// know yet. 0 if the process is there and may not be looked at, as with `hidepid`. `None` if there is no such process.
pub(crate) fn process_now(number: u32) -> Option<(u64, Option<bool>)> {
    if let Some(state) =
        std::fs::read_to_string(format!("/proc/{number}/stat")).ok().and_then(|stat| state_of(&stat))
    {
        return Some(state);
    }
    let number = i32::try_from(number).ok().and_then(rustix::process::Pid::from_raw)?;
    match rustix::process::test_kill_process(number) {
        Err(Errno::SRCH) => None,
        _ => Some((0, Some(false))),
    }
}

/// Reads what has the form of `/proc/self/stat`. The name of the program, in parentheses, may hold anything.
fn state_of(stat: &str) -> Option<(u64, Option<bool>)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let stopped = match fields.next()? {
        "T" | "t" => Some(true),
        "Z" | "X" | "x" => None,
        _ => Some(false),
    };
    Some((fields.nth(18)?.parse().ok()?, stopped)) // field 22 of all, the third is the state
}

/// Fills `out` with random bytes. Returns false if the system has none.
pub(crate) fn random(out: &mut [u8; 8]) -> bool {
    let len = out.len();
    retry_on_intr(|| rustix::rand::getrandom(&mut *out, rustix::rand::GetRandomFlags::empty())) == Ok(len)
}

/// Lowers the priority of the calling thread. If the system forbids it, the thread stays as it is.
pub(crate) fn lower_priority() {
    // Reads and changes the calling thread only, which has the niceness of the thread that started it.
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    let _ = rustix::process::setpriority_process(None, (nice + LOW_NICE).min(NICE_MAX));
}

/// Returns free memory of the heap to the system.
pub(crate) fn trim_heap() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: the call takes a number, may run on any thread, and frees only memory that no program part holds.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the bytes of the heap that are allocated, and those that are free; `None` if the C library does not count them.
pub(crate) fn heap() -> Option<(u64, u64)> {
    #[cfg(all(target_env = "gnu", not(miri)))]
    {
        type Count = unsafe extern "C" fn() -> libc::mallinfo2;
        static COUNT: OnceLock<Option<Count>> = OnceLock::new();
        let count = *COUNT.get_or_init(|| {
            // SAFETY: the name ends with 0. The result is null, or the function of this name and type in the C library, which stays
            // loaded as long as the process runs.
            unsafe {
                let found = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
                std::mem::transmute::<*mut libc::c_void, Option<Count>>(found)
            }
        });
        // SAFETY: the function takes nothing, may run on any thread, and changes no memory of the program.
        let seen = unsafe { count?() };
        Some(((seen.uordblks + seen.hblkhd) as u64, seen.fordblks as u64))
    }
    #[cfg(not(all(target_env = "gnu", not(miri))))]
    None
}

/// Returns the bytes of RAM that this process takes beside pages of files and shared memory.
pub(crate) fn anonymous_bytes() -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    let pages = pages_of(&std::fs::read_to_string("/proc/self/statm").ok()?)?;
    Some(pages * unix::page_bytes() as u64)
}

/// Anonymous resident pages according to `statm`, which has the form of `/proc/self/statm`: the second number, less the third.
fn pages_of(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_whitespace().skip(1).map(|word| word.parse::<u64>().ok());
    let (resident, shared) = (numbers.next()??, numbers.next()??);
    Some(resident.saturating_sub(shared))
}

/// Where the hierarchies of control groups are mounted: the list of controllers in `/proc/self/cgroup`, the mount point, and the
/// files with the limit and the usage of a group. Version 1 is first, then version 2.
const HIERARCHIES: [(&str, &str, &str, &str); 3] = [
    ("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ("", "/sys/fs/cgroup", "memory.max", "memory.current"),
    ("", "/sys/fs/cgroup/unified", "memory.max", "memory.current"),
];

/// Returns all bytes of memory that this process may use, and those of them that are free.
pub(crate) fn memory() -> (u64, u64) {
    memory_within(&read_text(Path::new("/proc/self/cgroup")).unwrap_or_default())
}

/// Returns all bytes of memory that the process `number` may use; `None` if it is not there.
pub(super) fn memory_of(number: u32) -> Option<u64> {
    Some(memory_within(&read_text(Path::new(&format!("/proc/{number}/cgroup")))?).0)
}

fn read_text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns the bytes of memory, all and free, of the machine within `groups`, which has the form of `/proc/self/cgroup`.
fn memory_within(groups: &str) -> (u64, u64) {
    let host = memory_of_host(&read_text(Path::new("/proc/meminfo")).unwrap_or_default());
    within_groups(host, groups, read_text)
}

/// Reads `/proc/meminfo`. If that is not mounted, asks the kernel, which does not count caches as free.
fn memory_of_host(info: &str) -> (u64, u64) {
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    if let (Some(total), Some(available)) = (field("MemTotal:"), field("MemAvailable:")) {
        return (total, available);
    }
    let host = rustix::system::sysinfo();
    let unit = u64::from(host.mem_unit);
    (host.totalram as u64 * unit, host.freeram as u64 * unit + host.bufferram as u64 * unit)
}

/// Reduces the numbers to what the control groups in `groups` allow, which has the form of `/proc/self/cgroup`. A group is
/// limited by its ancestors too. In a container, the path of the group may not exist; then only the mount point does.
fn within_groups(host: (u64, u64), groups: &str, read: impl Fn(&Path) -> Option<String>) -> (u64, u64) {
    let (mut total, mut available) = host;
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
                (total, available) = (total.min(max), available.min(free));
            }
        }
    }
    (total, available)
}

#[cfg(not(miri))]
pub(crate) mod pages {
    //! Private mappings for long buffers: the system takes their memory back at once, and grows them without copying.

    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap};

    pub(crate) const AVAILABLE: bool = true;

    /// Buffers that begin with this length ask for huge pages: filling one then takes a page fault for each 2 MiB, not for each 4 KiB.
    const HUGE_MIN: usize = 4 << 20;

    /// Returns `wanted` zero bytes; `None` if the system has no memory.
    pub(crate) fn new(wanted: usize) -> Option<NonNull<u8>> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping touches no memory of ours.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), wanted, prot, MapFlags::PRIVATE) }.ok()?;
        if wanted >= HUGE_MIN {
            // SAFETY: the range is a whole mapping of ours, and the advice changes no byte of it. A refusal is harmless.
            let _ = unsafe { madvise(start, wanted, Advice::LinuxHugepage) };
        }
        NonNull::new(start.cast())
    }

    /// Returns `wanted` bytes that begin with those of `start`, as many as fit; `None` if the system has no memory.
    ///
    /// # Safety
    ///
    /// `start` is a mapping of `capacity` bytes from this module, and is not used any more.
    pub(crate) unsafe fn resize(start: NonNull<u8>, capacity: usize, wanted: usize) -> Option<NonNull<u8>> {
        // SAFETY: by contract, this is a whole mapping of ours.
        let new = unsafe { mremap(start.as_ptr().cast(), capacity, wanted, MremapFlags::MAYMOVE) };
        NonNull::new(new.ok()?.cast())
    }

    /// Returns the pages of the first `bytes` bytes to the system; they are zero afterwards. Returns false if it could not.
    ///
    /// # Safety
    ///
    /// `start` is a mapping of at least `bytes` bytes from this module, which nothing reads meanwhile; `bytes` are whole pages.
    pub(crate) unsafe fn clear(start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: by contract, the pages are ours; they stay mapped.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }.is_ok()
    }

    /// Returns a mapping to the system.
    ///
    /// # Safety
    ///
    /// `start` is a mapping of `capacity` bytes from this module, and is not used any more.
    pub(crate) unsafe fn free(start: NonNull<u8>, capacity: usize) {
        // SAFETY: by contract, this is a whole mapping of ours.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), capacity) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: (u64, u64) = (8 << 30, 4 << 30);

    #[test]
    fn the_state_of_a_process_follows_its_name() {
        let stat = |name: &str, state: &str| {
            state_of(&format!("7 ({name}) {state} 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4321 13 14\n"))
        };
        assert_eq!(stat("a", "S"), Some((4321, Some(false))));
        assert_eq!(stat("a) T 1 (b", "T"), Some((4321, Some(true))));
        assert_eq!(stat("a", "Z"), Some((4321, None)));
        assert_eq!(state_of("7 (a) S 1"), None);
        assert_eq!(state_of(""), None);
    }

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
        assert_eq!(within_groups(HOST, "5:cpu:/x\n4:memory:/a/b\n0::/\n", files), (1000, 600));
    }

    #[test]
    fn version_2_limits_and_max_does_not() {
        let files = read(&[
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/user/memory.max", "5000\n"),
            ("/sys/fs/cgroup/user/memory.current", "6000\n"),
        ]);
        assert_eq!(within_groups(HOST, "0::/user\n", files), (5000, 0));
        assert_eq!(within_groups(HOST, "0::/user\n", read(&[])), HOST);
        assert_eq!(within_groups(HOST, "", read(&[("/sys/fs/cgroup/memory.max", "1")])), HOST);
    }

    /// In a container `/proc/self/cgroup` may name a path of the host, while the mount shows only the container's own group.
    #[test]
    fn a_group_whose_path_is_not_mounted_is_at_the_mount_point() {
        let files = read(&[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000")]);
        assert_eq!(within_groups(HOST, "4:memory:/docker/0123\n", files).0, 1000);
    }

    #[test]
    fn memory_is_known_without_proc() {
        let seen = memory_of_host("");
        assert!(seen.0 > 16 << 20 && seen.1 > 0 && seen.1 <= seen.0, "{seen:?}");
        let told = memory_of_host("MemTotal:  2048 kB\nMemFree: 5 kB\nMemAvailable:   1024 kB\n");
        assert_eq!(told, (2 << 20, 1 << 20));
        let now = memory();
        assert!(now.0 <= seen.0 + seen.0 / 10 && now.1 <= now.0, "{now:?} {seen:?}");
    }

    #[test]
    fn anonymous_pages_are_resident_and_not_shared() {
        assert_eq!(pages_of("9000 500 120 40 0 800 0\n"), Some(380));
        assert_eq!(pages_of("9000 5 120"), Some(0));
        assert_eq!(pages_of("9000 5"), None);
        assert_eq!(pages_of("a b c"), None);
    }
}
