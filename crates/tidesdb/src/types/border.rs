//! A border of an interval of keys that changes often.

/// A key or no border; its buffer outlives its being unset.
#[derive(Debug, Default)]
pub struct KeyBorder {
    set: bool,
    key: Vec<u8>,
}

impl KeyBorder {
    /// Sets it to a copy of `key`, or to no border.
    pub fn assign(&mut self, key: Option<&[u8]>) {
        self.set = key.is_some();
        self.key.clear();
        self.key.extend_from_slice(key.unwrap_or_default());
    }

    /// The key; `None` = no border.
    #[inline]
    pub fn get(&self) -> Option<&[u8]> {
        self.set.then_some(&*self.key)
    }
}
