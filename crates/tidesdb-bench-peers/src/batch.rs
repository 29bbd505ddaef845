//! A batch for engines with a single writer. It buffers operations, so that the engine's write lock is held only during
//! the commit.

/// Puts and deletes in the order in which they were added.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Length of each key, and of its value for a put.
    lengths: Vec<(usize, Option<usize>)>,
}

impl Batch {
    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lengths.push((key.len(), Some(value.len())));
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.lengths.push((key.len(), None));
    }

    /// Returns whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns key and value of each operation; `None` as the value of a delete.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map(move |(key, value)| {
            let (k, after) = rest.split_at(*key);
            let (v, after) = after.split_at(value.unwrap_or(0));
            rest = after;
            (k, value.map(|_| v))
        })
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_returned_in_order() {
        let mut batch = Batch::default();
        for _ in 0..2 {
            assert!(batch.is_empty());
            batch.put(b"a", b"one");
            batch.delete(b"bc");
            batch.put(b"d", b"");
            let all: Vec<_> = batch.iter().collect();
            assert_eq!(
                all,
                [(&b"a"[..], Some(&b"one"[..])), (&b"bc"[..], None), (&b"d"[..], Some(&b""[..]))]
            );
            batch.clear();
        }
    }
}
