//! What an open asks to tell a process that died from a machine, or a file system, that lost what it had not written yet.

/// The time in which no byte is lost that the system has taken: since the machine started, and since the file system of a directory was
/// mounted. A file system that was shut down by an error, or whose device was away, is mounted again without the bytes that it had in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// Identity of that time; all zeros if it is unknown. While it stays the same, each byte that was written is still there.
    pub id: [u8; 16],
    /// True if the identity changes only with that time. Otherwise it may change although nothing was lost.
    pub is_exact: bool,
}

impl Boot {
    /// The time of the machine alone, which is `id`, if it is known.
    #[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
    pub(super) fn of_machine(id: Option<[u8; 16]>) -> Self {
        Self { id: id.unwrap_or_default(), is_exact: id.is_some() }
    }
}
