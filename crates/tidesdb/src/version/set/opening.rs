//! Opens the tables of a database with several threads.
//!
//! The threads only fill a map, and drop errors: [`FamilyVersion::build`](super::FamilyVersion) opens what the map lacks,
//! one table after the other, and reports the first error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidesdb_io::{Priority, Threads};
use tidesdb_sync::Mutex;

use super::{FamilyState, OpenTable, State};
use crate::sst::TableMeta;
use crate::types::TableId;

/// A database with fewer tables opens them with one thread.
const TABLES_MIN: usize = 64;
/// Maximum number of threads. Opening waits for the disk if nothing is cached, so there may be more than processors.
const THREADS_MAX: usize = 8;
/// Tables that a thread takes at a time.
const CHUNK: usize = 16;

/// Tables that were opened ahead.
pub(super) type Opened<T> = BTreeMap<TableId, Arc<T>>;

struct Work<T> {
    tables: Vec<(Arc<FamilyState>, Arc<TableMeta>)>,
    next: AtomicUsize,
    open: Arc<OpenTable<T>>,
    opened: Mutex<Opened<T>>,
}

impl<T> Work<T> {
    fn run(&self) {
        loop {
            let from = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            let Some(rest) = self.tables.get(from..).filter(|rest| !rest.is_empty()) else {
                return;
            };
            let chunk = rest.iter().take(CHUNK);
            let opened: Vec<_> =
                chunk.filter_map(|(family, meta)| Some((meta.id, (self.open)(family, meta).ok()?))).collect();
            self.opened.lock().extend(opened);
        }
    }
}

/// Opens the tables of all families of `state`. Those that cannot be opened are left out.
pub(super) fn open_all<T: Send + Sync + 'static>(
    state: &State,
    open: &Arc<OpenTable<T>>,
    threads: &dyn Threads,
) -> Opened<T> {
    let tables_of = |family: &Arc<FamilyState>| {
        let family = Arc::clone(family);
        let metas: Vec<_> = family.tables.iter().map(|table| Arc::clone(&table.meta)).collect();
        metas.into_iter().map(move |meta| (Arc::clone(&family), meta))
    };
    let tables: Vec<_> = state.families.values().flat_map(tables_of).collect();
    let helpers = match tables.len() {
        0..TABLES_MIN => return Opened::new(),
        _ => (2 * threads.parallelism()).min(THREADS_MAX) - 1,
    };
    let work = Work { tables, next: AtomicUsize::new(0), open: Arc::clone(open), opened: Mutex::default() };
    let work = Arc::new(work);
    let start = || {
        let work = Arc::clone(&work);
        threads.spawn("tidesdb-open", Priority::Normal, Box::new(move || work.run()))
    };
    let started: Vec<_> = (0..helpers).map_while(|_| start().ok()).collect();
    work.run();
    started.into_iter().for_each(|thread| {
        thread.join();
    });
    std::mem::take(&mut *work.opened.lock())
}
