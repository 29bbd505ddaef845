//! An open database: the engine's, with what C knows beside it.
//!
//! Which families there are, only the engine knows; here they get their handles and the settings C gave them. Those settings are kept
//! in a family of their own, so they are as durable as everything else: key `family/<id>`, value the settings as text.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tidesdb::types::FamilyId;
use tidesdb::{Db, FamilyOptions, SyncMode};
use tidesdb_sync::{Mutex, rank};

use super::orders::{Order, Orders};
use super::{DATABASES, FAMILIES, Family, ITERATORS, TRANSACTIONS, Transaction};
use crate::abi::{
    ERR_EXISTS, ERR_INVALID_DB, ERR_MEMORY_LIMIT, ERR_NOT_FOUND, FAMILY_NAME_BYTES, FamilyConfig,
};
use crate::callback;
use crate::connector::Connector;
use crate::failure::{Answer, Failure, invalid, told};
use crate::handle::Handle;
use crate::log::Messages;
use crate::pointer::{bytes_of, put_text, text_of};
use crate::settings;

/// The family that keeps the settings. It is not listed.
pub(crate) const SETTINGS_FAMILY: &str = "tidesdb:settings";
/// Section of the text that keeps the settings of one family.
const SECTION: &str = "family";

/// What was settled when it was opened.
pub(crate) struct Facts {
    pub(crate) path: PathBuf,
    /// Bytes of memory that it may use.
    pub(crate) memory_limit: u64,
    pub(crate) has_cache: bool,
    /// Whether the caller asked for one memtable for all families. The engine has one log for all of them anyway.
    pub(crate) unified: bool,
    /// When every commit is durable at the latest; a family may ask for more.
    pub(crate) sync: SyncMode,
    /// Whether closing it waits for merges that are due.
    pub(crate) waits_at_close: bool,
    /// The object store, which is destroyed when it is closed.
    pub(crate) connector: Option<Arc<Connector>>,
    /// Where messages go as long as it is there.
    pub(crate) _messages: Messages,
}

/// Bytes of the writes of each transaction.
#[derive(Default)]
struct Counted {
    bytes: Vec<Weak<AtomicU64>>,
    /// Length of the list at which freed transactions are removed.
    full: usize,
}

/// An open database.
pub(crate) struct Database {
    engine: Db,
    orders: Orders,
    /// Those that somebody asked for, with their handles.
    families: Mutex<HashMap<FamilyId, (Handle, Arc<Family>)>, { rank::C_FAMILIES }>,
    /// Bytes of the writes of each transaction; those of freed ones go when the list has doubled.
    transactions: Mutex<Counted, { rank::C_TRANSACTIONS }>,
    /// Held by who changes which families there are, so that a name means one of them from beginning to end.
    catalog: Mutex<(), { rank::C_CATALOG }>,
    facts: Facts,
    closed: AtomicBool,
    handle: OnceLock<Handle>,
}

impl Database {
    /// What `tidesdb_open` opened.
    pub(crate) fn new(engine: Db, facts: Facts) -> Self {
        Self {
            engine,
            orders: Orders::default(),
            families: Mutex::default(),
            transactions: Mutex::default(),
            catalog: Mutex::default(),
            facts,
            closed: AtomicBool::new(false),
            handle: OnceLock::new(),
        }
    }

    /// Gives it its handle.
    ///
    /// # Errors
    /// `ERR_MEMORY`.
    pub(crate) fn publish(self: &Arc<Self>) -> Answer<Handle> {
        let handle = DATABASES.insert(Arc::clone(self), Handle::NULL)?;
        Ok(*self.handle.get_or_init(|| handle))
    }

    /// The handle that stands for it.
    #[inline]
    pub(super) fn handle(&self) -> Handle {
        self.handle.get().copied().unwrap_or(Handle::NULL)
    }

    /// The engine's database.
    pub(crate) fn engine(&self) -> &Db {
        &self.engine
    }

    /// Bytes of memory that it may use.
    #[inline]
    pub(crate) fn memory_limit(&self) -> u64 {
        self.facts.memory_limit
    }

    /// Whether the caller asked for one memtable for all families.
    pub(crate) fn is_unified(&self) -> bool {
        self.facts.unified
    }

    /// When every commit is durable at the latest; a family may ask for more.
    #[inline]
    pub(super) fn sync(&self) -> SyncMode {
        self.facts.sync
    }

    /// Whether there is a cache of blocks.
    pub(crate) fn has_cache(&self) -> bool {
        self.facts.has_cache
    }

    /// The name of the object store; `None` without one.
    pub(crate) fn connector(&self) -> Option<&'static std::ffi::CStr> {
        self.facts.connector.as_ref().map(|connector| connector.name())
    }

    /// Whether it lies in this directory.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|path| path == self.facts.path)
    }

    /// Whether it was closed.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Where a new transaction counts the bytes of its writes.
    pub(super) fn count_transaction(&self) -> Arc<AtomicU64> {
        let bytes = Arc::default();
        let mut counted = self.transactions.lock();
        if counted.bytes.len() >= counted.full {
            counted.bytes.retain(|bytes| bytes.strong_count() > 0);
            counted.full = (counted.bytes.len() * 2).max(64);
        }
        counted.bytes.push(Arc::downgrade(&bytes));
        bytes
    }

    /// Length of the list of transactions.
    #[cfg(test)]
    pub(super) fn transactions_listed(&self) -> usize {
        self.transactions.lock().bytes.len()
    }

    /// Bytes of the writes of all transactions that have not ended.
    pub(crate) fn transaction_bytes(&self) -> u64 {
        let counted = self.transactions.lock();
        let live = counted.bytes.iter().filter_map(Weak::upgrade);
        live.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Refuses to go on after the end.
    ///
    /// # Errors
    /// `ERR_INVALID_DB`.
    pub(super) fn check_open(&self) -> Answer {
        if self.is_closed() { Err(CLOSED) } else { Ok(()) }
    }

    /// Names of all families, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.engine.families();
        names.retain(|name| name != SETTINGS_FAMILY);
        names
    }

    /// The number above those of all families, from 0 on; that of the library's own family is not counted.
    pub(crate) fn next_family(&self) -> u32 {
        let names = self.names();
        let numbers = names.iter().filter_map(|name| Some(self.engine.family(name).ok()?.id().0));
        let own = self.engine.default_family().id().0;
        numbers.max().map_or(0, |largest| largest.saturating_sub(own))
    }

    /// The family called `name`, and its handle.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; `ERR_INVALID_ARGS` for one whose key order is not registered yet.
    pub(crate) fn family(self: &Arc<Self>, name: &str) -> Answer<(Handle, Arc<Family>)> {
        if name == SETTINGS_FAMILY {
            return Err(told!(ERR_NOT_FOUND, "this family is the library's own"));
        }
        let mut families = self.families.lock();
        // Under the lock, which a drop takes after the engine has dropped the family: what is found here, and given a handle, the drop
        // finds, too.
        let engine = self.engine.family(name)?;
        if let Some((handle, family)) = families.get(&engine.id()) {
            return Ok((*handle, Arc::clone(family)));
        }
        let config = self.kept_settings(&engine)?;
        self.adopt(&mut families, engine, &config)
    }

    /// Gives a family its handle. Closing takes the handles under the same lock, after it has said that it closes.
    fn adopt(
        self: &Arc<Self>,
        families: &mut HashMap<FamilyId, (Handle, Arc<Family>)>,
        engine: tidesdb::Family,
        config: &FamilyConfig,
    ) -> Answer<(Handle, Arc<Family>)> {
        self.check_open()?;
        let id = engine.id();
        let family = Arc::new(Family::new(engine, Arc::downgrade(self), config));
        let handle = FAMILIES.insert(Arc::clone(&family), self.handle())?;
        families.insert(id, (handle, Arc::clone(&family)));
        Ok((handle, family))
    }

    /// Creates a family.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a name or setting out of its domain, `ERR_NOT_FOUND` for a key order that is not registered,
    /// `ERR_EXISTS`; the engine's.
    pub(crate) fn create(self: &Arc<Self>, name: &str, config: &FamilyConfig) -> Answer {
        callback::not_in_order()?;
        check_name(name)?;
        if config.write_buffer_size as u64 > self.facts.memory_limit / 2 {
            return Err(invalid!("two write buffers are larger than the memory limit"));
        }
        let order_name = text_of(&config.comparator_name)?;
        let order = self.orders.find(&order_name)?;
        let options = settings::options(config, FamilyOptions::default().comparator(order))?;
        let mut config = *config;
        put_text(&mut config.comparator_name, &order_name);
        let context = bytes_of(&config.comparator_ctx_str); // either may come without an end
        put_text(&mut config.comparator_ctx_str, context);
        if let Some(order) = self.orders.registered(&order_name) {
            put_text(&mut config.comparator_ctx_str, order.context_text.as_bytes());
        }
        let _catalog = self.catalog.lock();
        // Who asks for the family before its settings are kept waits here.
        let mut families = self.families.lock();
        let engine = self.engine.create_family(name, options)?;
        self.keep_settings(&engine, &config)?;
        self.adopt(&mut families, engine, &config).map(drop)
    }

    /// Makes a family `new` with the contents and settings of `source`.
    ///
    /// # Errors
    /// As [`Database::create`]; `ERR_NOT_FOUND` for the source.
    pub(crate) fn clone_family(self: &Arc<Self>, source: &str, new: &str) -> Answer {
        callback::not_in_order()?;
        check_name(new)?;
        if source == new {
            return Err(invalid!("a family cannot be cloned onto itself"));
        }
        let _catalog = self.catalog.lock();
        let (_, from) = self.family(source)?;
        let config = FamilyConfig { commit_hook_fn: None, ..from.config() };
        let engine = self.engine.clone_family(source, new)?;
        self.keep_settings(&engine, &config)
    }

    /// Gives a family another name; its handle stays.
    ///
    /// # Errors
    /// As [`Database::create`]; `ERR_NOT_FOUND`.
    pub(crate) fn rename(self: &Arc<Self>, old: &str, new: &str) -> Answer {
        callback::not_in_order()?;
        check_name(new)?;
        let _catalog = self.catalog.lock();
        self.family(old)?;
        if old == new { Ok(()) } else { Ok(self.engine.rename_family(old, new)?) }
    }

    /// Drops a family; its handle is stale from then on.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; the engine's.
    pub(crate) fn drop_family(self: &Arc<Self>, name: &str) -> Answer {
        callback::not_in_order()?;
        let _catalog = self.catalog.lock();
        let (handle, family) = self.family(name)?;
        self.drop_one(handle, &family)
    }

    /// The catalog is locked.
    fn drop_one(&self, handle: Handle, family: &Family) -> Answer {
        self.engine.drop_family(&family.engine().name())?;
        family.drop_handle();
        self.families.lock().remove(&family.engine().id());
        FAMILIES.retire(handle);
        // Those that were freed and wait in other threads would keep the family, and its files with it.
        TRANSACTIONS.visit_parked(self.handle(), Transaction::forget_dropped);
        // The family is dropped, whatever becomes of this: a number is never used again.
        if let Err(error) = self.engine.default_family().delete(&settings_key(family.engine())) {
            tracing::warn!(%error, "settings of a dropped family stay behind");
        }
        Ok(())
    }

    /// Drops the family that `handle` stands for.
    ///
    /// # Errors
    /// As [`Database::drop_family`]; `ERR_INVALID_ARGS` for a family of another database.
    pub(crate) fn delete_family(self: &Arc<Self>, handle: Handle) -> Answer {
        callback::not_in_order()?;
        let _catalog = self.catalog.lock();
        let family = FAMILIES.share(handle)?;
        let ours = self.families.lock().values().any(|(own, _)| *own == handle);
        if !ours {
            return Err(invalid!("the family belongs to another database"));
        }
        self.drop_one(handle, &family)
    }

    /// Adds a key order; families that waited for it are there from now on.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a name that is too long or taken; the engine's.
    pub(crate) fn register(&self, order: Order) -> Answer {
        callback::not_in_order()?;
        self.orders.add(order, |comparator| Ok(self.engine.register_comparator(comparator)?))
    }

    /// The user's order called `name`.
    pub(crate) fn order(&self, name: &str) -> Option<Order> {
        self.orders.registered(name)
    }

    /// Refuses a pair that would take more than three quarters of the memory.
    #[inline]
    pub(super) fn check_size(&self, key: &[u8], value: &[u8]) -> Answer {
        let bytes = key.len() as u64 + value.len() as u64;
        if bytes > self.facts.memory_limit / 4 * 3 {
            if bytes > u64::from(u32::MAX) {
                return Err(invalid!("a key with its value is longer than 4 GiB"));
            }
            return Err(told!(
                ERR_MEMORY_LIMIT,
                "a key with its value is larger than 75 % of the memory limit",
            ));
        }
        Ok(())
    }

    /// Keeps the settings of a family.
    pub(super) fn keep_settings(&self, family: &tidesdb::Family, config: &FamilyConfig) -> Answer {
        let text = settings::to_text(SECTION, config);
        self.engine.default_family().put(&settings_key(family), text.as_bytes())?;
        self.engine.sync()?; // as durable as the family: its sync mode is among them
        Ok(())
    }

    /// The settings of a family: those that were kept, or what the engine's say. Text that cannot be read, which older versions could
    /// write, must not hide the family.
    fn kept_settings(&self, family: &tidesdb::Family) -> Answer<FamilyConfig> {
        let options = family.options();
        let Some(kept) = self.engine.default_family().get(&settings_key(family))? else {
            return Ok(settings::of_engine(&options));
        };
        match settings::from_text(SETTINGS_FAMILY, &String::from_utf8_lossy(&kept), SECTION) {
            Ok(mut config) => {
                settings::correct_order(&mut config, &options);
                Ok(config)
            }
            Err(failure) => {
                let name = family.name();
                tracing::warn!(
                    ?name,
                    ?failure,
                    "the kept settings of a family cannot be read: the engine's count"
                );
                Ok(settings::of_engine(&options))
            }
        }
    }

    /// Ends all handles and closes the engine. What was committed is kept even if this fails.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn close(self: &Arc<Self>) -> Answer {
        self.closed.store(true, Ordering::SeqCst);
        self.end_all();
        for (_, (handle, family)) in self.families.lock().drain() {
            family.drop_handle();
            FAMILIES.retire(handle);
        }
        while self.facts.waits_at_close && self.engine.stats().jobs_pending > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let closed = self.engine.clone().close();
        self.end_all(); // those that were in use, or on their way, the first time
        if let Some(connector) = &self.facts.connector {
            connector.retire();
        }
        Ok(closed?)
    }

    /// Iterators stay until they are freed, refused by all other calls: their callers may be reading what the iterators lent.
    fn end_all(&self) {
        ITERATORS.shut_all(self.handle());
        drop(TRANSACTIONS.remove_all(self.handle()));
    }
}

const CLOSED: Failure = told!(ERR_INVALID_DB, "the database is closed");

fn settings_key(family: &tidesdb::Family) -> Vec<u8> {
    format!("family/{}", family.id().0).into_bytes()
}

fn check_name(name: &str) -> Answer {
    if name.is_empty() || name.len() >= FAMILY_NAME_BYTES {
        return Err(invalid!("a family's name has 1 to 127 bytes"));
    }
    if name == SETTINGS_FAMILY {
        return Err(told!(ERR_EXISTS, "this name is the library's own"));
    }
    Ok(())
}
