//! A pair of fences of unequal cost, and a cheap name for the running thread.
//!
//! [`light_fence`] with [`heavy_fence`] order what two sequentially consistent fences would: of two threads that each store, fence
//! and load what the other stores, one at least sees the other's store. The light one costs nothing at run time: the
//! heavy one makes every running thread of the process pass a full fence, by `membarrier(2)`; a thread that is not running
//! passed one when it was stopped. In models, under Miri and on other systems both are ordinary fences.

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
mod real {
    use std::sync::OnceLock;
    use std::sync::atomic::{Ordering, compiler_fence};

    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether there is a heavy fence. Where there is none, nobody may rely on a light one.
    pub(crate) fn has_heavy_fence() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
    }

    /// The side that is passed all the time.
    #[inline(always)]
    pub(crate) fn light_fence() {
        compiler_fence(Ordering::SeqCst);
    }

    /// The side that is passed seldom; `false` if the system refused it, and nothing is ordered.
    pub(crate) fn heavy_fence() -> bool {
        compiler_fence(Ordering::SeqCst);
        let passed = membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        compiler_fence(Ordering::SeqCst);
        passed
    }
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
mod real {
    #[cfg(loom)]
    use loom::sync::atomic::{Ordering, fence};
    #[cfg(not(loom))]
    use std::sync::atomic::{Ordering, fence};

    pub(crate) fn has_heavy_fence() -> bool {
        true
    }

    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }
}

pub(crate) use real::{has_heavy_fence, heavy_fence, light_fence};

/// A number that no other thread has while this one lives; never 0. The thread pointer, which every thread library keeps in a
/// register, is one: an address in the thread's own memory.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(loom), not(miri)))]
#[inline(always)]
pub(crate) fn me() -> usize {
    let token: usize;
    // SAFETY: the ABI of Linux on x86-64 keeps the thread pointer at `fs:0` in every thread; it is only read.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) token, options(nostack, preserves_flags, readonly)) };
    token
}

/// As above: the address of something that is the thread's own.
#[cfg(all(not(all(target_arch = "x86_64", target_os = "linux", not(miri))), not(loom)))]
#[inline]
pub(crate) fn me() -> usize {
    thread_local! {
        static OWN: u8 = const { 0 };
    }
    OWN.with(|own| std::ptr::from_ref(own).addr())
}

/// As above, in a model.
#[cfg(loom)]
pub(crate) fn me() -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    hasher.finish() as usize | 1
}
