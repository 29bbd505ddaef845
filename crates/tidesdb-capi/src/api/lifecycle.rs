//! Opening and closing, memory, the last error.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::Arc;
use std::time::Duration;

use tidesdb::{Db, MergeOperator, RemoteOptions, SyncMode};

use crate::abi::{Code, Config, ERR_MEMORY, ObjstoreConfig};
use crate::connector::Connector;
use crate::failure::{Answer, answer, answer_or, invalid, last_text, told};
use crate::handle::Handle;
use crate::memory::{self, Allocator, CallocFn, FreeFn, MallocFn, ReallocFn};
use crate::pointer::{In, Out};
use crate::state::{self, DATABASES, Database, Facts, Order, SETTINGS_FAMILY};
use crate::{callback, log, settings, system};

/// Minimum time between two uploads of tables.
const UPLOAD_INTERVAL: Duration = Duration::from_millis(200);

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_default_config() -> Config {
    Config::default()
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_init(
    malloc: Option<MallocFn>,
    calloc: Option<CallocFn>,
    realloc: Option<ReallocFn>,
    free: Option<FreeFn>,
) -> Code {
    answer(|| {
        let given = (malloc, calloc, realloc, free);
        let (Some(malloc), Some(calloc), Some(realloc), Some(free)) = given else {
            return memory::choose(None);
        };
        memory::choose(Some(Allocator { malloc, calloc, realloc, free }))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_ensure_initialized() {
    memory::settle();
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_finalize() {
    // What the last readers of a closed database left.
    tidesdb_sync::reclaim();
    memory::forget();
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_free(memory: *mut c_void) {
    memory::free(memory);
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_last_error() -> *const c_char {
    last_text()
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_raise_open_file_limit(desired: c_long) -> c_long {
    answer_or(0, || Ok(system::raise_open_file_limit(desired)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_open(config: In<Config>, db: Out<Handle>) -> Code {
    answer(|| {
        db.check()?;
        let config = config.get()?;
        let handle = open(config).inspect_err(|_| db.set(Handle::NULL))?;
        db.set(handle);
        Ok(())
    })
}

/// What the extended interface adds to the settings of an open.
#[derive(Default)]
pub(super) struct More {
    pub(super) orders: Vec<Order>,
    pub(super) operators: Vec<MergeOperator>,
    pub(super) history_bytes: u64,
    pub(super) read_only: bool,
    pub(super) must_exist: bool,
    pub(super) resources: Option<tidesdb::Resources>,
    pub(super) must_be_new: bool,
}

pub(super) fn open(config: &Config) -> Answer<Handle> {
    open_with(config, More::default())
}

/// Opens a database with settings of the extended interface.
pub(super) fn open_with(config: &Config, more: More) -> Answer<Handle> {
    if config.db_path.is_null() {
        return Err(told!(ERR_MEMORY, "db_path is NULL"));
    }
    let path = In::from_caller(config.db_path).path()?;
    let connector = match config.object_store.is_null() {
        true => None,
        false => Some(Arc::new(Connector::new(config.object_store, path)?)),
    };
    let remote = connector.as_ref().map(|connector| remote(config, connector)).transpose()?;
    let sync = settings::unified_sync_mode(config)?;
    system::check_parent(path)?;
    memory::settle();
    // Before the engine opens, so that messages of recovery and of a failed open are logged too.
    // One that must be new, and is not, is not touched: its log is that of another program.
    let is_refused = more.must_be_new && path.join("CURRENT").exists();
    let directory = (config.log_to_file != 0 && !is_refused).then_some(path);
    if directory.is_some() && !more.must_exist && !more.read_only {
        let _ = std::fs::create_dir(path); // it may exist; if it cannot be created, the engine reports that
    }
    let messages = log::open(config.log_level, directory, config.log_truncation_at as u64);
    let mut options = Db::options(path);
    for operator in &more.operators {
        options = options.merge_operator(operator.clone());
    }
    if let Some(resources) = &more.resources {
        options = options.resources(resources);
    }
    let locked = options
        .history_bytes(more.history_bytes)
        .read_only(more.read_only)
        .create_if_missing(!more.must_exist)
        .error_if_exists(more.must_be_new)
        .sync(SyncMode::None)
        .memory_limit(config.max_memory_usage as u64)
        .cache_bytes(config.block_cache_size as u64)
        .default_family_name(SETTINGS_FAMILY)
        .allow_unknown(true)
        .with(|options| {
            options.background_threads = threads(config);
            options.remote = remote;
            options.active_memtables_bytes_max = settings::unified_bytes(config);
        })
        .lock()?;
    connector.iter().for_each(|connector| connector.remove_leftovers());
    let facts = Facts {
        path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        memory_limit: locked.memory_limit(),
        has_cache: config.block_cache_size > 0 || more.resources.is_some(),
        unified: config.unified_memtable != 0,
        sync,
        merges: config.num_compaction_threads != 0,
        waits_at_close: config.finish_compactions_on_close != 0,
        is_view: false,
        connector,
        operators: more.operators,
        _messages: Arc::new(messages),
    };
    let database = Arc::new(Database::new(locked, more.orders, facts)?);
    database.publish()
}

/// Converts the settings of an object store. Settings without an effect here are ignored; `docs/reference/c-api.md` lists
/// them.
fn remote(config: &Config, connector: &Arc<Connector>) -> Answer<RemoteOptions> {
    let given = In::from_caller(config.object_store_config.cast_const());
    let given = if given.is_null() { ObjstoreConfig::default() } else { *given.get()? };
    if given.replica_mode != 0 {
        return Err(invalid!(
            "replicas are not supported: open with replica_mode = 0; you still own the connector"
        ));
    }
    let mut remote = RemoteOptions::new(connector.store());
    remote.local_bytes_max = given.local_cache_max_bytes as u64;
    remote.replicate_log = given.replicate_wal != 0;
    remote.log_bytes = if given.wal_sync_on_commit != 0 { 1 } else { given.wal_sync_threshold_bytes as u64 };
    remote.interval = UPLOAD_INTERVAL;
    Ok(remote)
}

/// Returns the number of threads for flushes and merges together, which the engine divides. Returns `None`, the
/// engine's default, if no flush threads are requested and no more compaction threads than the default.
fn threads(config: &Config) -> Option<usize> {
    let defaults = Config::default();
    let positive = |n: c_int| usize::try_from(n).unwrap_or(0).max(1);
    let flush = config.num_flush_threads;
    if flush <= 0 && config.num_compaction_threads <= defaults.num_compaction_threads {
        return None;
    }
    Some((positive(flush) + positive(config.num_compaction_threads)).min(64))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_close(db: Handle) -> Code {
    answer(|| {
        let database = DATABASES.share(db)?;
        callback::not_inside()?;
        if DATABASES.retire(db).is_none() {
            return Err(invalid!("another thread is closing the database"));
        }
        database.close()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cancel_background_work(db: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        Ok(state::database(db)?.engine()?.cancel_compactions()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_promote_to_primary(db: Handle) -> Code {
    answer(|| {
        state::database(db)?;
        Err(invalid!("the database is not a replica: replicas are not supported"))
    })
}
