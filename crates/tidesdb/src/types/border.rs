//! A bound of an interval of keys; made to be changed often.

/// A key, or no bound. Keeps its buffer when it is unset.
#[derive(Debug, Default)]
pub struct KeyBorder {
    set: bool,
    key: Vec<u8>,
}

impl KeyBorder {
    /// Sets the bound to a copy of `key`, or to no bound.
    pub fn assign(&mut self, key: Option<&[u8]>) {
        self.set = key.is_some();
        self.key.clear();
        self.key.extend_from_slice(key.unwrap_or_default());
    }

    /// The key; `None` = no bound.
    #[inline]
    pub fn get(&self) -> Option<&[u8]> {
        self.set.then_some(&*self.key)
    }
}
