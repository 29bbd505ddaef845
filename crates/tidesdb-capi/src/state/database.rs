//! An open database: the engine's database and the state that C needs in addition.
//!
//! A C program registers its comparators after `tidesdb_open`, but the engine needs them to open. So `tidesdb_open` only locks a
//! database whose families need comparators of the program; the registration of the last one opens it.
//!
//! The engine keeps the list of families; this module gives them handles and keeps their C settings. The
//! settings are stored in a family of their own, so they are as durable as all other data: key `family/<id>`,
//! value the settings as text.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tidesdb::internals::types::FamilyId;
use tidesdb::{Db, FamilyOptions, LockedDb, MergeOperator, SyncMode};
use tidesdb_sync::{Mutex, MutexGuard, rank};

use super::committer::Committer;
use super::orders::{Order, Orders};
use super::{
    CLOSED, DATABASES, FAMILIES, Family, ITERATORS, OBJECTS, SCANS, SHARED, TRANSACTIONS, Transaction, family,
};
use crate::abi::{
    ERR_EXISTS, ERR_INVALID_DB, ERR_MEMORY_LIMIT, ERR_NOT_FOUND, FAMILY_NAME_BYTES, FamilyConfig,
};
use crate::callback;
use crate::connector::Connector;
use crate::failure::{Answer, Failure, invalid, told};
use crate::gate::Gate;
use crate::handle::Handle;
use crate::log::Messages;
use crate::pointer::{bytes_of, put_text, text_of};
use crate::settings;

/// The family that stores the settings. It is not listed.
pub(crate) const SETTINGS_FAMILY: &str = "tidesdb:settings";
/// Section name in the stored settings of a family.
const SECTION: &str = "family";

/// The properties fixed when the database was opened.
pub(crate) struct Facts {
    pub(crate) path: PathBuf,
    /// Memory limit in bytes.
    pub(crate) memory_limit: u64,
    pub(crate) has_cache: bool,
    /// True if the caller asked for one memtable for all families. The engine has one log for all of them in
    /// any case.
    pub(crate) unified: bool,
    /// When every commit becomes durable at the latest; a family may ask for more.
    pub(crate) sync: SyncMode,
    /// False if families are merged on request only.
    pub(crate) merges: bool,
    /// True if closing waits for merges that are due.
    pub(crate) waits_at_close: bool,
    /// True for a view of a reader beside the writer.
    pub(crate) is_view: bool,
    /// The object store, destroyed when the database is closed.
    pub(crate) connector: Option<Arc<Connector>>,
    /// The merge operators of the program.
    pub(crate) operators: Vec<MergeOperator>,
    /// Keeps the log destination open while the database is open.
    pub(crate) _messages: Arc<Messages>,
}

/// The bytes written by each transaction.
#[derive(Default)]
struct Counted {
    bytes: Vec<Weak<AtomicU64>>,
    /// Length of the list at which freed transactions are removed from it.
    full: usize,
}

/// An open database.
pub(crate) struct Database {
    /// The engine's database, or why it could not be opened. Unset until all comparators that it needs are registered.
    engine: OnceLock<Answer<Db>>,
    /// The families that need comparators of the program, with the engine's names of these.
    awaiting: Vec<(String, String)>,
    /// The database until the engine opens it. Locked while it is opened.
    locked: Mutex<Option<LockedDb>, { rank::C_OPENING }>,
    orders: Orders,
    /// The families that callers asked for, with their handles.
    families: Mutex<HashMap<FamilyId, (Handle, Arc<Family>)>, { rank::C_FAMILIES }>,
    /// The name of a family that is being made by a clone, whose settings are not stored yet. Changed with `families` locked.
    cloning: Mutex<Option<String>, { rank::LEAF }>,
    /// The bytes written by each transaction. Entries of freed transactions are removed whenever the list has
    /// doubled.
    transactions: Mutex<Counted, { rank::C_TRANSACTIONS }>,
    /// Held by a thread that changes the list of families, so that a name refers to one family throughout the
    /// call.
    catalog: Mutex<(), { rank::C_CATALOG }>,
    /// Commits batches in the background.
    committer: Committer,
    facts: Facts,
    /// The calls that use the database or a family of it; shut once it is closed.
    calls: Arc<Gate>,
    handle: OnceLock<Handle>,
}

impl Database {
    /// Opens the database, unless it needs comparators that the program must register first.
    ///
    /// # Errors
    /// The engine's errors.
    pub(crate) fn new(locked: LockedDb, orders: Vec<Order>, facts: Facts) -> Answer<Self> {
        let awaiting = locked.missing_comparators()?;
        let this = Self::unopened(Some(locked), awaiting, facts);
        orders.into_iter().try_for_each(|order| this.orders.add(order))?;
        this.open_if_complete(&mut this.locked.lock())?;
        Ok(this)
    }

    /// Creates the database of a view of a reader, which is open already.
    pub(super) fn of_view(view: Db, facts: Facts) -> Self {
        let this = Self::unopened(None, Vec::new(), facts);
        let _ = this.engine.set(Ok(view)); // it is empty
        this
    }

    fn unopened(locked: Option<LockedDb>, awaiting: Vec<(String, String)>, facts: Facts) -> Self {
        Self {
            engine: OnceLock::new(),
            awaiting,
            locked: Mutex::new(locked),
            orders: Orders::default(),
            committer: Committer::default(),
            families: Mutex::default(),
            cloning: Mutex::default(),
            transactions: Mutex::default(),
            catalog: Mutex::default(),
            facts,
            calls: Arc::default(),
            handle: OnceLock::new(),
        }
    }

    /// Opens the engine if all comparators that it needs are registered.
    fn open_if_complete(&self, locked: &mut Option<LockedDb>) -> Answer {
        if self.missing().next().is_some() {
            return Ok(());
        }
        let Some(locked) = locked.take() else { return Ok(()) };
        let opened = locked.open(self.orders.all()).and_then(|engine| {
            if !self.facts.merges {
                engine.cancel_compactions()?;
            }
            Ok(engine)
        });
        let opened = self.engine.get_or_init(|| opened.map_err(Failure::from));
        opened.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Returns the families whose comparators are not registered yet, with the engine's names of these.
    fn missing(&self) -> impl Iterator<Item = &(String, String)> {
        let known = self.orders.all();
        self.awaiting.iter().filter(move |(_, order)| !known.iter().any(|known| known.name() == order))
    }

    /// Creates the handle of the database.
    ///
    /// # Errors
    /// `ERR_MEMORY`.
    pub(crate) fn publish(self: &Arc<Self>) -> Answer<Handle> {
        let handle = DATABASES.insert(Arc::clone(self), Handle::NULL)?;
        Ok(*self.handle.get_or_init(|| handle))
    }

    /// Returns the handle of the database.
    #[inline]
    pub(super) fn handle(&self) -> Handle {
        self.handle.get().copied().unwrap_or(Handle::NULL)
    }

    /// Returns the engine's database.
    ///
    /// # Errors
    /// `ERR_INVALID_DB` before all comparators that it needs are registered; then the engine's errors if it could not be opened.
    pub(crate) fn engine(&self) -> Answer<&Db> {
        match self.engine.get() {
            Some(opened) => opened.as_ref().map_err(Clone::clone),
            None => Err(callback::not_in_order().err().unwrap_or_else(|| self.not_open())),
        }
    }

    #[cold]
    fn not_open(&self) -> Failure {
        let name = |(family, order): &(String, String)| {
            format!("{:?} of family {family:?}", settings::c_name(order))
        };
        let names: Vec<_> = self.missing().map(name).collect();
        let names = names.join(", ");
        let text = format!("the database opens when its comparators are registered; missing: {names}");
        Failure::text_of(ERR_INVALID_DB, text)
    }

    /// Returns whether the caller asked for one memtable for all families.
    pub(crate) fn is_unified(&self) -> bool {
        self.facts.unified
    }

    /// Returns when every commit becomes durable at the latest; a family may ask for more.
    #[inline]
    pub(super) fn sync(&self) -> SyncMode {
        self.facts.sync
    }

    /// Returns the thread that commits batches in the background.
    pub(super) fn committer(&self) -> &Committer {
        &self.committer
    }

    /// Returns the merge operator called `name`: a built-in one or one of the program.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`.
    fn operator(&self, name: &str) -> Answer<MergeOperator> {
        let registered = || self.facts.operators.iter().find(|operator| operator.name() == name).cloned();
        MergeOperator::by_name(name)
            .or_else(registered)
            .ok_or(told!(ERR_NOT_FOUND, "no merge operator has this name: pass it to tidesdb_x_open"))
    }

    /// Returns whether there is a block cache.
    pub(crate) fn has_cache(&self) -> bool {
        self.facts.has_cache
    }

    /// Returns the name of the object store; `None` without one.
    pub(crate) fn connector(&self) -> Option<&'static std::ffi::CStr> {
        self.facts.connector.as_ref().map(|connector| connector.name())
    }

    /// Returns whether the database is in this directory.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        path.canonicalize().is_ok_and(|path| path == self.facts.path)
    }

    /// Returns the gate of the calls that use it.
    pub(super) fn calls(&self) -> &Arc<Gate> {
        &self.calls
    }

    /// Returns whether it was closed.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.calls.is_shut()
    }

    /// Registers a new transaction. Returns the counter for the bytes of its writes.
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

    /// Returns the length of the list of transactions.
    #[cfg(test)]
    pub(super) fn transactions_listed(&self) -> usize {
        self.transactions.lock().bytes.len()
    }

    /// Returns the bytes written by all transactions that have not ended.
    pub(crate) fn transaction_bytes(&self) -> u64 {
        let counted = self.transactions.lock();
        let live = counted.bytes.iter().filter_map(Weak::upgrade);
        live.map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Fails if the database was closed.
    ///
    /// # Errors
    /// `ERR_INVALID_DB`.
    pub(super) fn check_open(&self) -> Answer {
        if self.is_closed() { Err(CLOSED) } else { Ok(()) }
    }

    /// Returns the names of all families, sorted.
    ///
    /// # Errors
    /// Errors of [`Database::engine`].
    pub(crate) fn names(&self) -> Answer<Vec<String>> {
        let mut names = self.engine()?.families();
        let cloning = self.cloning.lock().clone();
        names.retain(|name| name != SETTINGS_FAMILY && Some(name) != cloning.as_ref());
        Ok(names)
    }

    /// Returns the number after those of all families, starting at 0; the library's own family is not counted.
    ///
    /// # Errors
    /// Errors of [`Database::engine`].
    pub(crate) fn next_family(&self) -> Answer<u32> {
        let (names, engine) = (self.names()?, self.engine()?);
        let numbers = names.iter().filter_map(|name| Some(engine.family(name).ok()?.id().0));
        let own = engine.default_family().id().0;
        Ok(numbers.max().map_or(0, |largest| largest.saturating_sub(own)))
    }

    /// Returns the family called `name`, and its handle.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; those of [`Database::engine`].
    pub(crate) fn family(self: &Arc<Self>, name: &str) -> Answer<(Handle, Arc<Family>)> {
        if name == SETTINGS_FAMILY {
            return Err(told!(ERR_NOT_FOUND, "this family is reserved for the library"));
        }
        callback::not_in_order()?; // a thread that holds `families` may wait for a lock of the one that compares
        let engine = self.engine()?;
        let mut families = self.families.lock();
        if self.cloning.lock().as_deref() == Some(name) {
            return Err(told!(ERR_NOT_FOUND, "the family is being made"));
        }
        // Under the lock, which a drop takes after the engine has dropped the family. So a family that is found
        // here and given a handle is also found by the drop.
        let engine = engine.family(name)?;
        if let Some((handle, family)) = families.get(&engine.id()) {
            return Ok((*handle, Arc::clone(family)));
        }
        let config = self.kept_settings(&engine)?;
        self.adopt(&mut families, engine, &config)
    }

    /// Creates the handle of a family. Closing takes the handles under the same lock, after it has shut
    /// `calls`.
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
    /// `ERR_INVALID_ARGS` for an invalid name or setting, `ERR_NOT_FOUND` for a comparator that is not
    /// registered, `ERR_EXISTS`; the engine's errors.
    pub(crate) fn create(self: &Arc<Self>, name: &str, config: &FamilyConfig) -> Answer {
        self.create_with(name, config, FamilyOptions::default()).map(drop)
    }

    /// Creates a family with a merge operator and a default expiry. Returns its handle.
    ///
    /// # Errors
    /// As [`Database::create`]; `ERR_NOT_FOUND` for an unknown operator.
    pub(crate) fn create_more(
        self: &Arc<Self>,
        name: &str,
        config: &FamilyConfig,
        operator: Option<&str>,
        default_ttl: Duration,
    ) -> Answer<Handle> {
        let mut base = FamilyOptions::default().default_ttl(default_ttl);
        if let Some(operator) = operator {
            base = base.merge_operator(self.operator(operator)?);
        }
        self.create_with(name, config, base)
    }

    fn create_with(
        self: &Arc<Self>,
        name: &str,
        config: &FamilyConfig,
        base: FamilyOptions,
    ) -> Answer<Handle> {
        callback::not_in_order()?;
        check_name(name)?;
        if self.missing().any(|(family, _)| family == name) {
            return Err(told!(ERR_EXISTS, "the family exists; its comparator must be registered"));
        }
        let order_name = text_of(&config.comparator_name)?;
        let order = self.orders.find(&order_name)?;
        let options = settings::options(config, base.comparator(order))?;
        let mut config = *config;
        put_text(&mut config.comparator_name, &order_name);
        let context = bytes_of(&config.comparator_ctx_str); // both arrays may lack the terminating zero
        put_text(&mut config.comparator_ctx_str, context);
        if let Some(order) = self.orders.registered(&order_name) {
            put_text(&mut config.comparator_ctx_str, order.context_text.as_bytes());
        }
        let engine = self.engine()?;
        let _catalog = self.catalog.lock();
        // A thread that asks for the family before its settings are stored waits here.
        let mut families = self.families.lock();
        let engine = engine.create_family(name, options)?;
        self.keep_settings_of_new(&engine, &config)?;
        Ok(self.adopt(&mut families, engine, &config)?.0)
    }

    /// Creates a family `new` with the contents and settings of `source`.
    ///
    /// # Errors
    /// Errors of [`Database::create`]; `ERR_NOT_FOUND` for the source.
    pub(crate) fn clone_family(self: &Arc<Self>, source: &str, new: &str) -> Answer {
        callback::not_in_order()?;
        check_name(new)?;
        if source == new {
            return Err(invalid!("a family cannot be cloned onto itself"));
        }
        let _catalog = self.catalog.lock();
        let (_, from) = self.family(source)?;
        let config = FamilyConfig { commit_hook_fn: None, ..from.config() };
        let engine = self.engine()?;
        let set_cloning = |name: Option<&str>| {
            let _families = self.families.lock();
            *self.cloning.lock() = name.map(str::to_owned);
        };
        if engine.family(new).is_ok() {
            return Err(told!(ERR_EXISTS, "the family exists"));
        }
        // Not found by other threads until its settings are stored.
        set_cloning(Some(new));
        let made = engine.clone_family(source, new).map_err(Failure::from);
        let kept = made.and_then(|made| self.keep_settings_of_new(&made, &config));
        set_cloning(None);
        kept
    }

    /// Renames a family; its handle stays valid.
    ///
    /// # Errors
    /// Errors of [`Database::create`]; `ERR_NOT_FOUND`.
    pub(crate) fn rename(self: &Arc<Self>, old: &str, new: &str) -> Answer {
        callback::not_in_order()?;
        check_name(new)?;
        let _catalog = self.catalog.lock();
        self.family(old)?;
        if old == new { Ok(()) } else { Ok(self.engine()?.rename_family(old, new)?) }
    }

    /// Drops a family; its handle becomes stale.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`; the engine's errors.
    pub(crate) fn drop_family(self: &Arc<Self>, name: &str) -> Answer {
        callback::not_in_order()?;
        let catalog = self.catalog.lock();
        let (handle, family) = self.family(name)?;
        self.drop_one(catalog, handle, &family)
    }

    /// Drops a family. Ends its hook once `catalog`, the lock of that name, is released.
    fn drop_one(&self, catalog: MutexGuard<'_, ()>, handle: Handle, family: &Family) -> Answer {
        let engine = self.engine()?;
        engine.drop_family(&family.engine().name())?;
        let (hook, filter) = family.drop_handle();
        self.families.lock().remove(&family.engine().id());
        FAMILIES.retire(handle);
        // Freed transactions that are parked in other threads would keep the family alive, and with it its
        // files.
        TRANSACTIONS.visit_parked(self.handle(), Transaction::forget_dropped);
        // If this fails, the family is still dropped: its number is never used again.
        if let Err(error) = engine.default_family().delete(&settings_key(family.engine())) {
            tracing::warn!(%error, "the settings of a dropped family could not be deleted");
        }
        drop(catalog);
        family::end(hook);
        filter.iter().for_each(|filter| filter.end());
        Ok(())
    }

    /// Drops the family of `handle`.
    ///
    /// # Errors
    /// Errors of [`Database::drop_family`]; `ERR_INVALID_ARGS` for a family of another database.
    pub(crate) fn delete_family(self: &Arc<Self>, handle: Handle) -> Answer {
        callback::not_in_order()?;
        let catalog = self.catalog.lock();
        let family = FAMILIES.share(handle)?;
        let ours = self.families.lock().values().any(|(own, _)| *own == handle);
        if !ours {
            return Err(invalid!("the family belongs to another database"));
        }
        self.drop_one(catalog, handle, &family)
    }

    /// Registers a comparator. The last one that the families need opens the database.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a name that is too long or taken; the engine's errors if the database cannot be opened.
    pub(crate) fn register(&self, order: Order) -> Answer {
        callback::not_in_order()?;
        let mut locked = self.locked.lock();
        self.check_open()?;
        self.orders.add(order)?;
        self.open_if_complete(&mut locked)
    }

    /// Returns the user-defined comparator called `name`.
    pub(crate) fn order(&self, name: &str) -> Option<Order> {
        self.orders.registered(name)
    }

    /// Refuses a pair that would take more than three quarters of the memory limit.
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

    /// Stores the settings of a family.
    pub(super) fn keep_settings(&self, family: &tidesdb::Family, config: &FamilyConfig) -> Answer {
        let text = settings::to_text(SECTION, config);
        let engine = self.engine()?;
        engine.default_family().put(&settings_key(family), text.as_bytes())?;
        engine.sync()?; // the settings must be as durable as the family, because they include its sync mode
        Ok(())
    }

    /// Stores the settings of a new family, or drops it: without them it would lack its sync mode.
    fn keep_settings_of_new(&self, family: &tidesdb::Family, config: &FamilyConfig) -> Answer {
        self.keep_settings(family, config).inspect_err(|_| {
            let dropped = self.engine().map(|engine| engine.drop_family(&family.name()));
            tracing::debug!(?dropped, "a family is dropped because its settings cannot be stored");
        })
    }

    /// Returns the settings of a family: the stored ones, or those derived from the engine's options.
    /// Unreadable text, which older versions could write, must not make the family inaccessible.
    fn kept_settings(&self, family: &tidesdb::Family) -> Answer<FamilyConfig> {
        let options = family.current_options();
        // A view of a database of another program has no such family.
        let own = self.engine()?.family(SETTINGS_FAMILY);
        let kept = own.ok().map(|own| own.get(&settings_key(family))).transpose()?.flatten();
        let Some(kept) = kept else {
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
                    "the stored settings of a family cannot be read: using the engine's options"
                );
                Ok(settings::of_engine(&options))
            }
        }
    }

    /// Invalidates all handles, closes the engine, and waits for the calls that still use them: no function of the caller runs
    /// when this returns. Committed data is kept even if this fails.
    ///
    /// # Errors
    /// The engine's errors.
    pub(crate) fn close(self: &Arc<Self>) -> Answer {
        self.calls.shut();
        self.committer.end();
        drop(self.locked.lock().take()); // waits for a registration that is opening the engine
        // Iterators stay in memory until they are freed, because their callers may still read the keys and values they lent.
        ITERATORS.shut_all(self.handle());
        SCANS.shut_all(self.handle());
        drop(TRANSACTIONS.remove_all(self.handle()));
        drop(OBJECTS.remove_all(self.handle()));
        drop(SHARED.remove_all(self.handle()));
        let mut filters = Vec::new();
        for (_, (handle, family)) in self.families.lock().drain() {
            let (_, filter) = family.drop_handle(); // the waits below include the calls that run the hook
            filters.extend(filter);
            FAMILIES.retire(handle);
        }
        let closed = self.engine().map_or(Ok(()), |engine| {
            if self.facts.is_view {
                return Ok(()); // other handles may show the same view
            }
            while self.facts.waits_at_close && engine.stats().jobs_pending > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            engine.clone().close()
        });
        self.wait_for_calls();
        filters.iter().for_each(|filter| filter.end());
        if let Some(connector) = &self.facts.connector {
            connector.retire();
        }
        Ok(closed?)
    }

    /// Waits for the calls of other threads, which end soon because the engine is closed, unless a function of the caller takes
    /// long. No lock is held, because such a function may call the library. Calls that use the database or a family make transactions,
    /// and those make iterators: hence the order.
    fn wait_for_calls(&self) {
        self.calls.wait();
        drop(TRANSACTIONS.await_and_remove_all(self.handle()));
        ITERATORS.await_and_shut_all(self.handle());
        SCANS.await_and_shut_all(self.handle());
        drop(OBJECTS.await_and_remove_all(self.handle()));
        drop(SHARED.await_and_remove_all(self.handle()));
    }
}

fn settings_key(family: &tidesdb::Family) -> Vec<u8> {
    format!("family/{}", family.id().0).into_bytes()
}

fn check_name(name: &str) -> Answer {
    if name.is_empty() || name.len() >= FAMILY_NAME_BYTES {
        return Err(invalid!("a family name must have 1 to 127 bytes"));
    }
    if name == SETTINGS_FAMILY {
        return Err(told!(ERR_EXISTS, "this name is reserved for the library"));
    }
    Ok(())
}
