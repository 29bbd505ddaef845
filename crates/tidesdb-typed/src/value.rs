//! Values: raw bytes, the key types, and whatever serde can encode.

use crate::error::Malformed;
use crate::key::{self, Key};

/// How the values of a table are stored. Every [`Key`] is a value: `Vec<u8>` for raw bytes, `String`, numbers, tuples,
/// `()` for sets. [`Postcard`] and [`Json`] store types that serde can encode.
///
/// Implement it to store values in a format of your own:
///
/// ```
/// use tidesdb_typed::{Malformed, TableDefinition, Value};
///
/// /// Percent, in one byte.
/// struct Percent;
///
/// impl Value for Percent {
///     type Owned = f32;
///     type Ref<'a> = f32;
///     fn name() -> String { "percent".into() }
///     fn encode(value: f32, out: &mut Vec<u8>) -> Result<(), Malformed> {
///         if !(0.0..=1.0).contains(&value) {
///             return Err(Malformed::new("it is not between 0 and 1"));
///         }
///         out.push((value * 100.0).round() as u8);
///         Ok(())
///     }
///     fn decode(bytes: &[u8]) -> Result<f32, Malformed> {
///         match bytes {
///             [percent @ 0..=100] => Ok(f32::from(*percent) / 100.0),
///             _ => Err(Malformed::new("it is not one byte up to 100")),
///         }
///     }
///     fn to_ref(value: &f32) -> f32 { *value }
/// }
///
/// const LEVELS: TableDefinition<String, Percent> = TableDefinition::new("levels");
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// let levels = LEVELS.open(&db)?;
/// levels.put("tank", 0.25)?;
/// assert_eq!(levels.get("tank")?, Some(0.25));
/// assert!(levels.put("tank", 7.0).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Value: 'static {
    /// What reads return.
    type Owned;
    /// What writes take.
    type Ref<'a>: Copy;

    /// Returns the name of the encoding. It is stored with the table and compared when the table is opened.
    fn name() -> String;

    /// Appends the encoding of `value` to `out`.
    ///
    /// # Errors
    /// [`Malformed`] if the value cannot be encoded.
    fn encode(value: Self::Ref<'_>, out: &mut Vec<u8>) -> Result<(), Malformed>;

    /// Decodes a value.
    ///
    /// # Errors
    /// [`Malformed`] if `encode` does not write such bytes.
    fn decode(bytes: &[u8]) -> Result<Self::Owned, Malformed>;

    /// Borrows a value in the form that writes take.
    fn to_ref(value: &Self::Owned) -> Self::Ref<'_>;
}

impl<K: Key> Value for K {
    type Owned = K;
    type Ref<'a> = K::Ref<'a>;

    fn name() -> String {
        K::name()
    }

    fn encode(value: K::Ref<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
        K::encode(value, true, out);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<K, Malformed> {
        key::decode_all(bytes)
    }

    fn to_ref(value: &K) -> K::Ref<'_> {
        Key::to_ref(value)
    }
}

/// Stores `T` in the [postcard](https://docs.rs/postcard) format, through serde: compact, but a type whose fields change
/// cannot read what it wrote before.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::{Postcard, TableDefinition};
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct Boat { name: String, seats: u8 }
///
/// const BOATS: TableDefinition<u32, Postcard<Boat>> = TableDefinition::new("boats");
/// let boats = BOATS.open(&db)?;
/// let boat = Boat { name: "Whale".into(), seats: 4 };
/// boats.put(1, &boat)?;
/// assert_eq!(boats.get(1)?, Some(boat));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "postcard")]
#[derive(Debug)]
pub struct Postcard<T>(std::marker::PhantomData<fn() -> T>);

#[cfg(feature = "postcard")]
impl<T: serde::Serialize + serde::de::DeserializeOwned + 'static> Value for Postcard<T> {
    type Owned = T;
    type Ref<'a> = &'a T;

    fn name() -> String {
        "postcard".to_owned()
    }

    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), Malformed> {
        postcard::to_io(value, out).map(drop).map_err(|e| Malformed::new(e.to_string()))
    }

    fn decode(bytes: &[u8]) -> Result<T, Malformed> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok(_) => Err(Malformed::new("bytes are left over")),
            Err(e) => Err(Malformed::new(e.to_string())),
        }
    }

    fn to_ref(value: &T) -> &T {
        value
    }
}

/// Stores `T` as JSON text, through serde: longer than [`Postcard`], but other programs can read it, and fields can be
/// added if they have defaults. Needs the feature `json`. What JSON cannot give back, such as NaN or more than 127 levels, is an error of a write to
/// a table with indexes, and of the read of another one.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::{Json, TableDefinition};
/// const TAGS: TableDefinition<String, Json<Vec<String>>> = TableDefinition::new("tags");
/// let tags = TAGS.open(&db)?;
/// tags.put("whale", &vec!["blue".to_owned(), "big".to_owned()])?;
/// assert_eq!(tags.family().get("whale")?.as_deref(), Some(&br#"["blue","big"]"#[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "json")]
#[derive(Debug)]
pub struct Json<T>(std::marker::PhantomData<fn() -> T>);

#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned + 'static> Value for Json<T> {
    type Owned = T;
    type Ref<'a> = &'a T;

    fn name() -> String {
        "json".to_owned()
    }

    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), Malformed> {
        serde_json::to_writer(out, value).map_err(|e| Malformed::new(e.to_string()))
    }

    fn decode(bytes: &[u8]) -> Result<T, Malformed> {
        serde_json::from_slice(bytes).map_err(|e| Malformed::new(e.to_string()))
    }

    fn to_ref(value: &T) -> &T {
        value
    }
}
