//! Atomics and a lock for protocols that are explored by loom models: the standard ones, or loom's in a model.
//! In a simulation each access is a switch point.
//!
//! loom treats a SeqCst access as one that acquires and releases, except that a SeqCst load returns nothing
//! older than the last SeqCst store. It does not count the initial value as such a store; the wrapper here
//! stores it explicitly. So a protocol that uses SeqCst throughout is explored at full strength, and a weakened
//! access shows up as a failure.

#[cfg(not(loom))]
pub use crate::Mutex;
#[cfg(not(any(loom, simulated)))]
pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(simulated)]
pub use self::in_simulation::{AtomicBool, AtomicU64};
#[cfg(simulated)]
pub use std::sync::atomic::Ordering;

#[cfg(loom)]
pub use in_model::{AtomicBool, AtomicU64, Mutex, Ordering};

/// Each access is a switch point.
#[cfg(simulated)]
mod in_simulation {
    use std::ops::Deref;
    use std::sync::atomic;

    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            /// The standard type, for a simulation.
            #[derive(Debug)]
            pub struct $name(atomic::$name);

            impl $name {
                /// See the standard type.
                pub const fn new(value: $value) -> Self {
                    Self(atomic::$name::new(value))
                }
            }

            impl Deref for $name {
                type Target = atomic::$name;

                fn deref(&self) -> &Self::Target {
                    crate::point("atomic");
                    &self.0
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicU64, u64);
}

#[cfg(loom)]
mod in_model {
    use std::fmt;
    use std::ops::{Deref, DerefMut};

    use loom::sync::atomic;
    pub use loom::sync::atomic::Ordering;

    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            /// The loom counterpart of the real type.
            #[derive(Debug)]
            pub struct $name(atomic::$name);

            impl $name {
                /// See the real type.
                pub fn new(value: $value) -> Self {
                    let atomic = atomic::$name::new(value);
                    atomic.store(value, Ordering::SeqCst);
                    Self(atomic)
                }
            }

            impl Deref for $name {
                type Target = atomic::$name;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicU64, u64);

    /// The loom counterpart of the real type.
    #[derive(Default)]
    pub struct Mutex<T, const RANK: u16 = { crate::rank::LEAF }>(loom::sync::Mutex<T>);

    impl<T, const RANK: u16> Mutex<T, RANK> {
        /// See the real type.
        pub fn lock(&self) -> impl DerefMut<Target = T> + '_ {
            self.0.lock().expect("no model panics under the lock")
        }
    }

    impl<T, const RANK: u16> fmt::Debug for Mutex<T, RANK> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Mutex").finish_non_exhaustive()
        }
    }
}
