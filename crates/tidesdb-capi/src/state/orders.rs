//! The comparators of one database by their C names: the built-in ones and those registered by the user.

use std::ffi::CString;

use tidesdb::Comparator;
use tidesdb_sync::{Mutex, rank};

use crate::abi::{COMPARATOR_CONTEXT_BYTES, COMPARATOR_NAME_BYTES, CompareFn, ERR_NOT_FOUND};
use crate::callback::{self, Context};
use crate::failure::{Answer, invalid, told};
use crate::settings;

/// A user-defined comparator.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) function: CompareFn,
    pub(crate) context: Context,
    /// The context as text; stored with the families that use the comparator.
    pub(crate) context_text: CString,
}

/// All user-defined comparators. None is ever removed.
#[derive(Default)]
pub(super) struct Orders {
    registered: Mutex<Vec<Order>, { rank::C_ORDERS }>,
}

impl Orders {
    /// Returns the comparator called `name`, for a new family.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND`.
    pub(super) fn find(&self, name: &str) -> Answer<Comparator> {
        settings::engine_order(name)
            .or_else(|| self.registered(name).map(|order| order.comparator()))
            .ok_or(told!(ERR_NOT_FOUND, "no comparator with this name is registered"))
    }

    /// Returns the user-defined comparator called `name`.
    pub(super) fn registered(&self, name: &str) -> Option<Order> {
        self.registered.lock().iter().find(|order| order.name == name).cloned()
    }

    /// Returns all of them for the engine.
    pub(super) fn all(&self) -> Vec<Comparator> {
        self.registered.lock().iter().map(Order::comparator).collect()
    }

    /// Adds a comparator.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a name that is too long or taken.
    pub(super) fn add(&self, mut order: Order) -> Answer {
        if order.name.is_empty() || order.name.len() >= COMPARATOR_NAME_BYTES {
            tracing::warn!(name = order.name, "refused a comparator whose name does not have 1 to 63 bytes");
            return Err(invalid!("a comparator name must have 1 to 63 bytes"));
        }
        let text = order.context_text.as_bytes();
        if text.len() >= COMPARATOR_CONTEXT_BYTES {
            tracing::warn!(
                name = order.name,
                bytes = text.len(),
                "the context of a comparator is cut to 255 bytes"
            );
            order.context_text = CString::new(&text[..COMPARATOR_CONTEXT_BYTES - 1]).unwrap_or_default();
        }
        if self.registered(&order.name).is_some() || settings::engine_order(&order.name).is_some() {
            return Err(invalid!("a comparator with this name is already registered"));
        }
        self.registered.lock().push(order);
        Ok(())
    }
}

impl Order {
    /// Returns the comparator for the engine.
    pub(crate) fn comparator(&self) -> Comparator {
        callback::comparator(&settings::engine_name(&self.name), self.function, self.context)
    }
}
