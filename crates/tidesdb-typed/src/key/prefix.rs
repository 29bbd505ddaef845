//! Beginnings of keys.

use super::Key;
use super::text::escape;

/// The beginning of a key of type `K`: leading components of a tuple, as a tuple; the beginning of a string.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::TableDefinition;
/// const POINTS: TableDefinition<(String, u64), f64> = TableDefinition::new("points");
/// let points = POINTS.open(&db)?;
/// points.put(("attic", 1), 20.5)?;
/// points.put(("cellar", 1), 12.0)?;
/// points.put(("cellar", 2), 11.5)?;
/// assert_eq!(points.prefix(("cellar",))?.count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Prefix<K: Key> {
    /// Appends the bytes with which all keys of this prefix begin.
    fn encode(&self, out: &mut Vec<u8>);

    /// As [`Prefix::encode`], for keys that something follows, as in an index: strings are escaped there.
    fn encode_inside(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

impl Prefix<String> for &str {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn encode_inside(&self, out: &mut Vec<u8>) {
        escape(self.as_bytes(), out);
    }
}

impl Prefix<Vec<u8>> for &[u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn encode_inside(&self, out: &mut Vec<u8>) {
        escape(self, out);
    }
}

macro_rules! leading {
    ([$($part:ident)*] of [$($all:ident)*]) => {
        #[expect(non_snake_case, reason = "each component has the name of its type")]
        impl<'a, $($all: Key),*> Prefix<($($all,)*)> for ($($part::Ref<'a>,)*) {
            fn encode(&self, out: &mut Vec<u8>) {
                let ($($part,)*) = *self;
                $($part::encode($part, false, out);)*
            }
        }
    };
}

leading!([A] of [A B]);
leading!([A] of [A B C]);
leading!([A B] of [A B C]);
leading!([A] of [A B C D]);
leading!([A B] of [A B C D]);
leading!([A B C] of [A B C D]);
leading!([A] of [A B C D E]);
leading!([A B] of [A B C D E]);
leading!([A B C] of [A B C D E]);
leading!([A B C D] of [A B C D E]);
leading!([A] of [A B C D E F]);
leading!([A B] of [A B C D E F]);
leading!([A B C] of [A B C D E F]);
leading!([A B C D] of [A B C D E F]);
leading!([A B C D E] of [A B C D E F]);
