//! The object store of a run: in memory, slow, and down for a while.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::store::{Body, Condition, Object, Tag};
use tidesdb::{MemoryStore, ObjectStore};
use tidesdb_io::Clock;

/// An object store whose calls take virtual time.
#[derive(Debug)]
pub(super) struct Shaky {
    objects: MemoryStore,
    clock: Arc<dyn Clock>,
    is_down: AtomicBool,
    calls: AtomicU64,
    failures: AtomicU64,
}

impl Shaky {
    /// A store with these objects, which is up.
    pub(super) fn new(objects: MemoryStore, clock: Arc<dyn Clock>) -> Self {
        let (is_down, calls, failures) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Self { objects, clock, is_down, calls, failures }
    }

    /// All calls fail while the store is down.
    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, SeqCst);
    }

    /// Number of calls that have failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(SeqCst)
    }

    /// The objects as they are now.
    pub(super) fn fork(&self) -> MemoryStore {
        self.objects.fork()
    }

    fn call(&self) -> io::Result<()> {
        let n = self.calls.fetch_add(1, SeqCst);
        self.clock.sleep(Duration::from_micros(1 << (n % 12)));
        match self.is_down.load(SeqCst) {
            false => Ok(()),
            true => {
                self.failures.fetch_add(1, SeqCst);
                Err(io::Error::other("the store is down"))
            }
        }
    }
}

impl ObjectStore for Shaky {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        self.call()?;
        self.objects.put(name, body)?;
        self.call() // it may be there although the call fails
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.call()?;
        self.objects.get(name, sink)
    }

    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.call()?;
        self.objects.get_range(name, range, sink)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        self.call()?;
        self.objects.get_tagged(name, sink)
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        self.call()?;
        let done = self.objects.put_if(name, body, condition)?;
        self.call()?;
        Ok(done)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        self.call()?;
        self.objects.list()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.call()?;
        self.objects.delete(name)?;
        self.call()
    }
}
