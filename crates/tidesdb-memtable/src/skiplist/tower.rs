//! [`Tower`]: one key of the skip list, in the arena, with its versions and its links.
//!
//! Invariants: `first` and `height` never change; `newest` is never null; `height` links follow the head.
//! Threads: a tower is private until its bottom link is published; then `newest` and the links are atomic.

use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::ptr::{self, NonNull};

use crate::arena::Arena;
use crate::record::{MemtableFull, Record, RecordRef};
use crate::sync::{AtomicPtr, Born, Ordering};

/// The head of a tower. `height` links follow it.
#[repr(C)]
pub(super) struct Tower {
    born: Born,
    /// The version that created the tower. Its key is the tower's key.
    first: *mut Record,
    newest: AtomicPtr<Record>,
    height: usize,
}

const LINK_SIZE: usize = size_of::<AtomicPtr<Tower>>();
const _: () = assert!(size_of::<Tower>().is_multiple_of(align_of::<AtomicPtr<Tower>>()));

/// A tower that lives for `'a`, with provenance over its links.
#[derive(Clone, Copy)]
pub(super) struct TowerRef<'a> {
    ptr: NonNull<Tower>,
    _life: PhantomData<&'a Tower>,
}

impl<'a> TowerRef<'a> {
    /// Creates a private tower for the key of `record`, with all links null.
    pub(super) fn create(
        arena: &'a Arena,
        record: RecordRef<'a>,
        height: usize,
    ) -> Result<TowerRef<'a>, MemtableFull> {
        let size = size_of::<Tower>() + height * LINK_SIZE;
        let ptr = arena.alloc(size, align_of::<Tower>()).ok_or(MemtableFull)?.cast::<Tower>();
        let head = Tower {
            born: Born::new(),
            first: record.as_ptr(),
            newest: AtomicPtr::new(record.as_ptr()),
            height,
        };
        // SAFETY: fresh bytes of the right size and alignment.
        unsafe { ptr.write(head) };
        let tower = TowerRef { ptr, _life: PhantomData };
        for level in 0..height {
            // SAFETY: the links lie in the fresh bytes after the head.
            unsafe { tower.link_ptr(level).write(AtomicPtr::new(ptr::null_mut())) };
        }
        Ok(tower)
    }

    /// Returns the tower at `ptr`, or `None` if `ptr` is null.
    ///
    /// # Safety
    ///
    /// A non-null `ptr` came from [`as_ptr`](Self::as_ptr), the tower lives for `'a`, and its creation happens
    /// before this call.
    #[inline]
    pub(super) unsafe fn from_ptr(ptr: *mut Tower) -> Option<TowerRef<'a>> {
        NonNull::new(ptr).map(|ptr| TowerRef { ptr, _life: PhantomData })
    }

    #[inline]
    pub(super) fn as_ptr(self) -> *mut Tower {
        self.ptr.as_ptr()
    }

    #[inline]
    fn head(self) -> &'a Tower {
        // SAFETY: initialized in `create`, alive for 'a, and only its atomic field ever changes.
        let head = unsafe { self.ptr.as_ref() };
        head.born.check();
        head
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: `first` is a record of the same arena, written before the tower was created.
        let first = unsafe { RecordRef::from_ptr(self.head().first) };
        first.expect("a tower is created from a record").key()
    }

    /// Returns the newest version of the key.
    #[inline]
    pub(super) fn newest(self) -> RecordRef<'a> {
        let newest = self.head().newest.load(Ordering::Acquire);
        // SAFETY: a published record of the same arena; Acquire pairs with its publishing Release.
        let newest = unsafe { RecordRef::from_ptr(newest) };
        newest.expect("a tower always has a version")
    }

    /// Publishes `record` at its place among the versions: before all that are not newer.
    pub(super) fn add_version(self, record: RecordRef<'a>, arena: &'a Arena) {
        loop {
            let newest = self.newest();
            if newest.seq() > record.seq() {
                newest.link_older(record);
                return;
            }
            record.put_on(newest, arena);
            let slot = &self.head().newest;
            // Release: publishes the record.
            let swap =
                slot.compare_exchange(newest.as_ptr(), record.as_ptr(), Ordering::Release, Ordering::Relaxed);
            if swap.is_ok() {
                return;
            }
        }
    }

    /// Returns the link at `level`.
    #[inline]
    pub(super) fn link(self, level: usize) -> &'a AtomicPtr<Tower> {
        assert!(level < self.head().height);
        // SAFETY: `create` initialized `height` links, and they live for 'a.
        unsafe { &*self.link_ptr(level) }
    }

    /// Sets a link of a tower that is not yet published at `level`.
    pub(super) fn set_next(self, level: usize, next: *mut Tower) {
        self.link(level).store(next, Ordering::Relaxed);
    }

    #[inline]
    fn link_ptr(self, level: usize) -> *mut AtomicPtr<Tower> {
        let links = self.ptr.as_ptr().wrapping_add(1).cast::<AtomicPtr<Tower>>();
        links.wrapping_add(level)
    }
}
