//! A batch for engines with a single writer: what is put waits here, so that the writer is held while a commit runs and no
//! longer.

/// Puts and deletes in their order.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Length of each key, and of its value if it is a put.
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

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Key and value of each operation; no value for deletes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map(move |(key, value)| {
            let (k, after) = rest.split_at(*key);
            let (v, after) = after.split_at(value.unwrap_or(0));
            rest = after;
            (k, value.map(|_| v))
        })
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_back_in_order() {
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
