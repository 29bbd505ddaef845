//! A column family of an open database.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidesdb::SyncMode;
use tidesdb_sync::{Mutex, rank};

use super::CLOSED;
use super::database::Database;
use crate::abi::extended;
use crate::abi::{FamilyConfig, HookFn};
use crate::callback::{Context, Filter, Hook, HookKind};
use crate::failure::{Answer, invalid};
use crate::pointer::put_text;
use crate::settings;

/// Sync word: no sync at commit.
const NONE: u64 = 0;
/// Sync word: sync at each commit. Any other value is an interval in nanoseconds.
const FULL: u64 = u64::MAX;

/// One family, its C settings, and the state that a commit checks.
pub(crate) struct Family {
    engine: tidesdb::Family,
    database: Weak<Database>,
    config: Mutex<Settings, { rank::C_CONFIG }>,
    /// How commits to the family become durable. Read at each commit; may change while the family is open.
    sync: AtomicU64,
    dropped: AtomicBool,
}

/// The settings. The functions they contain are never called from here.
struct Settings {
    config: FamilyConfig,
    /// The hook that the engine has.
    hook: Option<Arc<Hook>>,
    /// The filter that the engine has.
    filter: Option<Arc<Filter>>,
}

// SAFETY: the pointers in it are only stored and passed back. The caller guarantees the properties of the
// functions, see `callback`.
unsafe impl Send for Settings {}

impl Family {
    /// Creates a family with these settings.
    pub(super) fn new(engine: tidesdb::Family, database: Weak<Database>, config: &FamilyConfig) -> Self {
        let hook = hook_of(config);
        engine.set_commit_hook(hook.as_ref().map(Hook::for_engine));
        Self {
            engine,
            database,
            config: Mutex::new(Settings { config: *config, hook, filter: None }),
            sync: AtomicU64::new(word(settings::sync_mode(config))),
            dropped: AtomicBool::new(false),
        }
    }

    /// Returns the engine's family.
    #[inline]
    pub(crate) fn engine(&self) -> &tidesdb::Family {
        &self.engine
    }

    /// Returns the database of the family.
    ///
    /// # Errors
    /// `ERR_INVALID_DB` if it is closed.
    pub(crate) fn database(&self) -> Answer<Arc<Database>> {
        self.database.upgrade().ok_or(CLOSED)
    }

    /// Returns how a commit to the family becomes durable.
    #[inline]
    pub(super) fn sync(&self) -> SyncMode {
        match self.sync.load(Ordering::Relaxed) {
            NONE => SyncMode::None,
            FULL => SyncMode::Full,
            nanos => SyncMode::Interval(Duration::from_nanos(nanos)),
        }
    }

    /// Returns whether the handle of the family is still valid.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        !self.dropped.load(Ordering::Acquire)
    }

    /// Marks the handle as dropped. Returns the hook that the family had, for [`Hook::end`]: the caller may free its context
    /// after the drop.
    #[must_use]
    pub(super) fn drop_handle(&self) -> (Option<Arc<Hook>>, Option<Arc<Filter>>) {
        self.dropped.store(true, Ordering::Release);
        let mut settings = self.config.lock();
        self.engine.set_compaction_filter(None);
        (self.exchange_hook(&mut settings, None), settings.filter.take())
    }

    /// Returns the settings with the current name of the family.
    pub(crate) fn config(&self) -> FamilyConfig {
        let mut config = self.config.lock().config;
        put_text(&mut config.name, self.engine.name().as_bytes());
        config
    }

    /// Changes the settings that may change while the family is open. The old hook stays if none is given.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for an invalid value; the engine's errors if the settings are to be stored.
    pub(crate) fn update(&self, new: &FamilyConfig, keep: bool) -> Answer {
        let database = self.database()?;
        let mut settings = self.config.lock();
        let old = settings.config;
        let mut merged = FamilyConfig {
            name: old.name,
            comparator_name: old.comparator_name,
            comparator_ctx_str: old.comparator_ctx_str,
            comparator_fn_cached: old.comparator_fn_cached,
            comparator_ctx_cached: old.comparator_ctx_cached,
            use_btree: old.use_btree,
            object_target_file_size: old.object_target_file_size,
            object_lazy_compaction: old.object_lazy_compaction,
            object_prefetch_compaction: old.object_prefetch_compaction,
            ..*new
        };
        if new.commit_hook_fn.is_none() {
            (merged.commit_hook_fn, merged.commit_hook_ctx) = (old.commit_hook_fn, old.commit_hook_ctx);
        }
        let options = settings::options(&merged, self.engine.current_options())?;
        if keep {
            self.engine.change_options(options)?;
            database.keep_settings(&self.engine, &merged)?;
        } else {
            self.engine.change_options_until_close(options)?;
        }
        self.sync.store(word(settings::sync_mode(&merged)), Ordering::Relaxed);
        settings.config = merged;
        let hook = hook_of(new);
        let old = if hook.is_some() { self.exchange_hook(&mut settings, hook) } else { None };
        drop(settings);
        end(old);
        Ok(())
    }

    /// Sets or removes the hook. The old one does not run any more when this returns, unless the call comes from a function of
    /// the caller.
    pub(crate) fn set_hook(&self, function: Option<HookFn>, context: Context) {
        let mut settings = self.config.lock();
        settings.config.commit_hook_fn = function;
        settings.config.commit_hook_ctx = context.raw();
        let hook = hook_of(&settings.config);
        let old = self.exchange_hook(&mut settings, hook);
        drop(settings);
        end(old);
    }

    /// Sets a hook of the extended interface, in the place of any other.
    pub(crate) fn set_extended_hook(&self, function: extended::HookFn, context: Context) {
        let hook = Hook::new(HookKind::Extended(function), context);
        let mut settings = self.config.lock();
        settings.config.commit_hook_fn = None;
        let old = self.exchange_hook(&mut settings, Some(hook));
        drop(settings);
        end(old);
    }

    /// Sets or removes the filter. The old one does not run any more when this returns, unless the call comes from a function of the caller.
    pub(crate) fn set_filter(&self, filter: Option<Arc<Filter>>) {
        let mut settings = self.config.lock();
        self.engine.set_compaction_filter(filter.as_ref().map(Filter::for_engine));
        let old = std::mem::replace(&mut settings.filter, filter);
        drop(settings);
        old.iter().for_each(|old| old.end());
    }

    /// Changes a setting that the structure of the base interface does not have.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for another setting or a value out of its domain; the engine's errors if it is to be stored.
    pub(crate) fn change(&self, name: &str, value: u64, keep: bool) -> Answer {
        if !EXTENDED_SETTINGS.contains(&name) {
            return Err(invalid!(
                "this setting does not exist, or is a field of tidesdb_column_family_config_t: tidesdb_cf_update_runtime_config \
                 changes those"
            ));
        }
        let _settings = self.config.lock();
        let mut options = self.engine.current_options();
        options.set(name, value)?;
        match keep {
            true => self.engine.change_options(options)?,
            false => self.engine.change_options_until_close(options)?,
        }
        Ok(())
    }

    /// Gives the engine another hook. Returns the old one, which is to be ended when no lock is held.
    #[must_use]
    fn exchange_hook(&self, settings: &mut Settings, hook: Option<Arc<Hook>>) -> Option<Arc<Hook>> {
        self.engine.set_commit_hook(hook.as_ref().map(Hook::for_engine));
        std::mem::replace(&mut settings.hook, hook)
    }
}

/// The settings that [`Family::change`] changes.
const EXTENDED_SETTINGS: [&str; 5] =
    ["table_bytes", "vlog_file_bytes", "value_garbage_percent", "default_ttl", "tiered_runs_max"];

/// Ends a hook that was exchanged for another one.
pub(super) fn end(hook: Option<Arc<Hook>>) {
    if let Some(hook) = hook {
        hook.end();
    }
}

fn hook_of(config: &FamilyConfig) -> Option<Arc<Hook>> {
    config
        .commit_hook_fn
        .map(|function| Hook::new(HookKind::Base(function), Context::new(config.commit_hook_ctx)))
}

fn word(mode: SyncMode) -> u64 {
    match mode {
        SyncMode::None => NONE,
        SyncMode::Full => FULL,
        SyncMode::Interval(period) => u64::try_from(period.as_nanos()).unwrap_or(FULL - 1).clamp(1, FULL - 1),
    }
}

/// Returns the stricter of two modes.
pub(super) fn stricter(a: SyncMode, b: SyncMode) -> SyncMode {
    match (a, b) {
        (SyncMode::Full, _) | (_, SyncMode::Full) => SyncMode::Full,
        (SyncMode::Interval(x), SyncMode::Interval(y)) => SyncMode::Interval(x.min(y)),
        (SyncMode::None, other) | (other, SyncMode::None) => other,
    }
}
