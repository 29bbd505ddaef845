//! Settings of one column family. They are stored with the family; the comparator is stored by name.
//!
//! The table `family_options!` below is the only place in the engine that defines them, and `version/tests/codec.rs` has its bytes. Generated
//! from it: [`FamilyOptions`] with its defaults, the domain checks, the fields on disk ([`FamilyOptions::write`]), and [`LiveOptions`], which
//! open families use. To add a setting, add one line there and use the setting. It takes the id after the largest, because ids are never
//! reused.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::setting::{Setting, SettingInfo, outside};
use crate::codec::{Compression, Decoder, FieldClass, FieldWriter, UnknownFields, read_fields};
use crate::types::{Comparator, EXPIRY_MAX, MergeOperator};
use crate::{Error, Result};

/// Longest stored name of a key order in bytes.
pub(crate) const COMPARATOR_NAME_BYTES_MAX: usize = 255;
/// Maximum number of filter bits per key.
const FILTER_BITS_MAX: u64 = 32;
/// Longest stored name of a merge operator in bytes.
const OPERATOR_NAME_BYTES_MAX: usize = 255;
/// Field id of the key order's name on disk.
const COMPARATOR_FIELD: u64 = 1;
/// Field id of the merge operator's name, which is required: a version without merge operators would take operands for
/// damage. Written only if there is an operator.
const OPERATOR_FIELD: u64 = 16;

/// The settings that the caller has named: a bit for each field id.
#[derive(Clone, Copy)]
pub(crate) struct Named(u64);

impl Named {
    const ALL: Self = Self(u64::MAX);

    fn add(&mut self, id: u64) {
        self.0 |= 1 << id;
    }

    fn has(self, id: u64) -> bool {
        self.0 & (1 << id) != 0
    }
}

/// Options with the same settings look the same.
impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// The default of a setting as a number.
macro_rules! default_word {
    (Duration, $default:expr) => {
        $default.as_millis() as u64
    };
    ($kind:ident, $default:expr) => {
        $default as u64
    };
}

macro_rules! family_options {
    ($($id:literal $name:ident: $kind:ident = $default:expr, $domain:expr, $help:literal;)*) => {
        /// Settings of a family. Each has a method of its name that sets it; numbers outside a domain are refused by the call that
        /// takes the options.
        ///
        /// ```
        /// use tidesdb::{Compression, FamilyOptions};
        /// let opts = FamilyOptions::default().compression(Compression::Zstd).value_threshold(4096);
        /// assert_eq!(opts.write_buffer_bytes, 64 << 20);
        /// ```
        ///
        /// Calls that take options use the settings that the program has *named*: by a method, by [`FamilyOptions::set`], or by a value other
        /// than the default in a field. Every other setting keeps what it has in a family that exists, and is the default in a new one. So
        /// `FamilyOptions::default()` changes nothing. [`Family::current_options`](crate::Family::current_options) names all settings.
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let db = tidesdb::Db::open(dir.path())?;
        /// use tidesdb::FamilyOptions;
        /// let films = db.family_or_create("films", FamilyOptions::default().value_threshold(100).min_levels(2))?;
        /// let films = db.family_or_create("films", FamilyOptions::default().min_levels(3))?;
        /// let now = films.current_options();
        /// assert_eq!((now.value_threshold, now.min_levels), (100, 3));
        /// films.change_options(FamilyOptions::default().value_threshold(512))?; // the default, named
        /// assert_eq!(films.current_options().value_threshold, 512);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// Rows of a family may expire by themselves:
        ///
        /// ```
        /// use std::time::Duration;
        /// use tidesdb::FamilyOptions;
        /// # let dir = tempfile::tempdir()?;
        /// # let db = tidesdb::Db::open(dir.path())?;
        /// let an_hour = FamilyOptions::default().default_ttl(Duration::from_secs(3600));
        /// let sessions = db.family_or_create("sessions", an_hour)?;
        /// sessions.put("ann", "...")?; // expires in an hour
        /// sessions.put_with_ttl("ben", "...", Duration::from_millis(250))?; // in a quarter of a second
        /// sessions.put_expiring("root", "...", None)?; // never
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub struct FamilyOptions {
            /// Order of the keys. Fixed for the life of the family. Default: bytewise.
            pub comparator: Comparator,
            /// Combines the operands of [`WriteBatch::merge`](crate::WriteBatch::merge). A family without one can get one; then it is
            /// fixed. Default: none.
            pub merge_operator: Option<MergeOperator>,
            $(#[doc = $help] pub $name: $kind,)*
            /// Settings stored by a newer version; this version keeps them unchanged.
            pub(crate) unknown: UnknownFields,
            pub(crate) named: Named,
        }

        impl Default for FamilyOptions {
            fn default() -> Self {
                Self {
                    comparator: Comparator::bytewise(),
                    merge_operator: None,
                    $($name: $default,)*
                    unknown: UnknownFields::default(),
                    named: Named(0),
                }
            }
        }

        impl FamilyOptions {
            $(#[doc = concat!("Sets `", stringify!($name), "`. ", $help)]
            #[must_use]
            pub fn $name(mut self, $name: $kind) -> Self {
                self.$name = $name;
                self.named.add($id);
                self
            })*

            /// All settings except the key order, by ascending id.
            pub const TABLE: &[SettingInfo] = &[
                $(SettingInfo {
                    name: stringify!($name),
                    help: $help,
                    default: default_word!($kind, $default),
                    domain: ($domain.0, $domain.1),
                },)*
            ];

            /// The value of the setting `name` as a number, if such a setting exists.
            pub fn get(&self, name: &str) -> Option<u64> {
                match name {
                    $(stringify!($name) => Some(self.$name.to_word()),)*
                    _ => None,
                }
            }

            /// Sets the setting `name` to a number.
            ///
            /// ```
            /// use tidesdb::FamilyOptions;
            /// let mut options = FamilyOptions::default();
            /// options.set("table_bytes", 64 << 20)?;
            /// assert_eq!(options.table_bytes, 64 << 20);
            /// for info in FamilyOptions::TABLE {
            ///     println!("{}={} ({})", info.name, options.get(info.name).unwrap_or(info.default), info.help);
            /// }
            /// assert!(options.set("filter_bits_per_key", 33).is_err());
            /// # Ok::<(), tidesdb::Error>(())
            /// ```
            ///
            /// # Errors
            /// `InvalidArgument` if no such setting exists, or the number is outside its domain.
            pub fn set(&mut self, name: &str, word: u64) -> Result<()> {
                match name {
                    $(stringify!($name) => {
                        self.$name = checked(name, word, $domain).map_err(Error::invalid)?;
                        self.named.add($id);
                    })*
                    _ => return Err(Error::invalid(format!("no setting of a family is called {name}"))),
                }
                Ok(())
            }

            /// Returns the settings of a family that has those of `stored`: the ones that are named here, and the others of `stored`.
            pub(crate) fn over(self, stored: Self) -> Self {
                let (mut all, default) = (stored, Self::default());
                if self.named.has(COMPARATOR_FIELD) || self.comparator.name() != default.comparator.name() {
                    all.comparator = self.comparator;
                }
                if self.named.has(OPERATOR_FIELD) || self.merge_operator.is_some() {
                    all.merge_operator = self.merge_operator;
                }
                $(if self.named.has($id) || self.$name != default.$name {
                    all.$name = self.$name;
                })*
                all.named = Named::ALL;
                all
            }

            /// Describes the first setting that is outside its domain, if any.
            pub(crate) fn outside(&self) -> Option<String> {
                let mut outside = [$(outside(stringify!($name), self.$name.to_word(), $domain.0..=$domain.1),)*];
                let name = self.merge_operator.as_ref().map_or(1, |operator| operator.name().len());
                let reserved = self.merge_operator.as_ref().is_some_and(MergeOperator::takes_reserved_name);
                let bad_name = (name == 0 || name > OPERATOR_NAME_BYTES_MAX || reserved).then(|| {
                    format!("the name of a merge operator has 1 to {OPERATOR_NAME_BYTES_MAX} bytes and does not begin with \"tidesdb.\"")
                });
                outside.iter_mut().find_map(Option::take).or(bad_name)
            }

            /// Appends the settings as fields; they extend to the end of the body.
            pub(crate) fn write(&self, out: &mut Vec<u8>) {
                let mut fields = FieldWriter::new(out);
                fields.bytes(COMPARATOR_FIELD, FieldClass::Required, self.comparator.name().as_bytes());
                $(if $id < OPERATOR_FIELD {
                    fields.number($id, FieldClass::Optional, self.$name.to_word());
                })*
                if let Some(operator) = &self.merge_operator {
                    fields.bytes(OPERATOR_FIELD, FieldClass::Required, operator.name().as_bytes());
                }
                $(if $id > OPERATOR_FIELD {
                    fields.number($id, FieldClass::Optional, self.$name.to_word());
                })*
                fields.finish(&self.unknown);
            }

            /// Reads what [`FamilyOptions::write`] wrote. A key order that is not built in keeps its name and compares
            /// bytewise.
            pub(crate) fn read(d: &mut Decoder<'_>) -> Result<Self> {
                let (mut options, mut order) = (Self::default(), None);
                options.unknown = read_fields(d, |id, field| {
                    match id {
                        COMPARATOR_FIELD => {
                            let name = stored_name(field, 0..=COMPARATOR_NAME_BYTES_MAX, "name of a key order")?;
                            order = Some(Comparator::of_stored_name(name));
                        }
                        OPERATOR_FIELD => {
                            let name = stored_name(field, 1..=OPERATOR_NAME_BYTES_MAX, "name of a merge operator")?;
                            options.merge_operator = Some(MergeOperator::of_stored_name(name));
                        }
                        $($id => {
                            let word = field.varint()?;
                            options.$name =
                                checked(stringify!($name), word, $domain).map_err(|what| field.corrupt(&what))?;
                        })*
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?;
                options.comparator = order.ok_or_else(|| d.corrupt("settings without a key order"))?;
                options.named = Named::ALL;
                Ok(options)
            }
        }

        /// Settings of an open family. The key order never changes, and the merge operator does not once there is
        /// one. Each other setting is an atomic of its own; a caller that needs a setting twice must keep its value.
        #[derive(Debug)]
        pub struct LiveOptions {
            /// Order of the keys.
            pub comparator: Comparator,
            merge_operator: OnceLock<MergeOperator>,
            unknown: UnknownFields,
            $($name: AtomicU64,)*
        }

        impl LiveOptions {
            /// Puts `options` in force.
            pub fn new(options: FamilyOptions) -> Self {
                Self {
                    $($name: options.$name.to_word().into(),)*
                    comparator: options.comparator,
                    merge_operator: options.merge_operator.map_or_else(OnceLock::new, OnceLock::from),
                    unknown: options.unknown,
                }
            }

            /// The current settings.
            pub fn now(&self) -> FamilyOptions {
                FamilyOptions {
                    comparator: self.comparator.clone(),
                    merge_operator: self.merge_operator().cloned(),
                    $($name: self.$name(),)*
                    unknown: self.unknown.clone(),
                    named: Named::ALL,
                }
            }

            /// Returns whether `options`, which may be put in force, has the same settings, key order apart.
            pub fn are(&self, options: &FamilyOptions) -> bool {
                // Another thread may have added another operator since these options were checked.
                let operator = check_operator_change("", self.merge_operator(), options.merge_operator.as_ref());
                operator.is_ok()
                    && !self.adds_operator(options)
                    $(&& options.$name.to_word() == self.$name.load(Relaxed))*
            }

            /// Returns whether `options` has a merge operator and the family has none.
            pub fn adds_operator(&self, options: &FamilyOptions) -> bool {
                self.merge_operator().is_none() && options.merge_operator.is_some()
            }

            /// Checks that `family` has the key order `wanted`: with another one, scans would return rows in an order that the
            /// caller does not expect.
            ///
            /// # Errors
            /// `InvalidArgument`, naming both.
            pub fn check_order(&self, family: &str, wanted: &Comparator) -> Result<()> {
                match (self.comparator.name(), wanted.name()) {
                    (is, wanted) if is == wanted => Ok(()),
                    (is, wanted) => Err(Error::invalid(format!(
                        "family {family:?} has the key order {is:?}, not {wanted:?}; it is fixed when the family is created"
                    ))),
                }
            }

            /// Checks that `options` may be put in force for `family`.
            ///
            /// # Errors
            /// `InvalidArgument` if they change the key order, or a setting is outside its domain; `NotBuiltIn` if this build lacks the
            /// compression.
            pub fn check_change(&self, family: &str, options: &FamilyOptions) -> Result<()> {
                self.check_order(family, &options.comparator)?;
                check_operator_change(family, self.merge_operator(), options.merge_operator.as_ref())?;
                options.compression.require()?;
                options.outside().map_or(Ok(()), |what| Err(Error::invalid(what)))
            }

            /// The merge operator of the family.
            #[inline]
            pub fn merge_operator(&self) -> Option<&MergeOperator> {
                self.merge_operator.get()
            }

            /// Puts the settings of `options` in force. A merge operator that is new must be stored already.
            pub fn change(&self, options: &FamilyOptions) {
                if let Some(operator) = &options.merge_operator {
                    self.merge_operator.get_or_init(|| operator.clone());
                }
                $(self.$name.store(options.$name.to_word(), Relaxed);)*
            }

            $(#[doc = $help]
            #[inline]
            pub fn $name(&self) -> $kind {
                // Only valid words are stored, so the default is never used.
                <$kind>::from_word(self.$name.load(Relaxed)).unwrap_or($default)
            })*
        }
    };
}

family_options! {
    2 write_buffer_bytes: usize = 64 << 20, (1, u64::MAX),
        "Size of the memtable at which it is flushed, in bytes. Default 64 MiB.";
    3 value_threshold: usize = 512, (0, u64::MAX),
        "Values of at least this many bytes go to the value log. Default 512.";
    4 compression: Compression = if Compression::Lz4.is_built_in() { Compression::Lz4 } else { Compression::None }, (0, Compression::Lz4Fast as u64),
        "Compression of blocks and of values in the value log. Default LZ4 if it is built in. As a number: 0 none, 1 Snappy, 2 LZ4, 3 Zstandard, 4 LZ4 fast.";
    5 filter_bits_per_key: u32 = 10, (0, FILTER_BITS_MAX),
        "Bits of bloom filter for each key, at most 32; 0 = no filter. Default 10 (about 1 % false positives).";
    6 table_bytes: u64 = 128 << 20, (1, u64::MAX),
        "Target size of a table of the largest level, in bytes. Default 128 MiB.";
    7 l1_tables_trigger: usize = 4, (1, u64::MAX),
        "Number of tables in level 1 that starts a compaction, at least 1. Default 4.";
    9 vlog_file_bytes: u64 = 256 << 20, (0, u64::MAX),
        "Largest size of a value log file at which a new one is started, in bytes; a family with few values starts them earlier. Default 256 MiB.";
    10 level_size_ratio: u64 = 6, (1, 1 << 20),
        "Size ratio of neighbouring levels; below 2 counts as 2. Smaller: less is rewritten, more levels, more space. Default 6.";
    11 min_levels: u32 = 1, (0, 64),
        "Least number of levels. Default 1: as few as the data needs.";
    12 dividing_level_offset: u32 = 1, (0, 64),
        "Levels between the tiered level, which Spooky calls the dividing level, and the largest; merges go in partitions from the tiered level on. Default 1.";
    13 tombstone_density_permille: u32 = 500, (0, 1000),
        "Thousandths of tombstones from which a table is compacted to the bottom; 0 = never. Default 500.";
    14 tombstone_density_min_entries: u64 = 1024, (0, u64::MAX),
        "Tables with fewer entries are never compacted for their tombstones. Default 1024.";
    15 value_garbage_percent: u32 = 25, (0, 100),
        "Percentage of garbage in value logs from which live values are moved so that files can be removed; 0 = never. Default 25.";
    17 default_ttl: Duration = Duration::ZERO, (0, EXPIRY_MAX),
        "Time after which a row that is put without a TTL expires, in milliseconds, rounded up; 0 = never. Default 0.";
    18 tiered_runs_max: u64 = 24, (1, 64),
        "Most sorted runs of the tiered level in one place. More: less is rewritten, but seeks take a position in each run, and gets look at a filter in each. Default 24.";
}

/// Converts `word` to the setting `name`, or says why it cannot.
fn checked<T: Setting>(name: &str, word: u64, (low, high): (u64, u64)) -> std::result::Result<T, String> {
    if let Some(what) = outside(name, word, low..=high) {
        return Err(what);
    }
    T::from_word(word).ok_or_else(|| format!("{name} is {word}, which has no meaning"))
}

/// Reads a name of so many bytes.
fn stored_name<'a>(field: &mut Decoder<'a>, bytes: RangeInclusive<usize>, what: &str) -> Result<&'a str> {
    let name = std::str::from_utf8(field.rest()).ok().filter(|name| bytes.contains(&name.len()));
    name.ok_or_else(|| field.corrupt(what))
}

/// Checks that `family` may change from one merge operator to another. A family without one has no operands, so it may get one. Any
/// other change would give stored operands another meaning.
///
/// # Errors
/// `InvalidArgument`, naming both.
pub(crate) fn check_operator_change(
    family: &str,
    is: Option<&MergeOperator>,
    wanted: Option<&MergeOperator>,
) -> Result<()> {
    let Some(is) = is.map(MergeOperator::name) else { return Ok(()) };
    match wanted.map(MergeOperator::name) {
        Some(wanted) if wanted == is => Ok(()),
        Some(wanted) => Err(Error::invalid(format!(
            "family {family:?} has the merge operator {is:?}, not {wanted:?}; it cannot be replaced, because stored operands belong to it"
        ))),
        None => Err(Error::invalid(format!(
            "family {family:?} has the merge operator {is:?}, not none; it cannot be removed, because stored operands belong to it"
        ))),
    }
}

impl FamilyOptions {
    /// Sets the key order.
    #[must_use]
    pub fn comparator(mut self, comparator: Comparator) -> Self {
        self.comparator = comparator;
        self.named.add(COMPARATOR_FIELD);
        self
    }

    /// Sets the merge operator.
    #[must_use]
    pub fn merge_operator(mut self, operator: MergeOperator) -> Self {
        self.merge_operator = Some(operator);
        self.named.add(OPERATOR_FIELD);
        self
    }
}

impl LiveOptions {
    /// The default TTL in milliseconds; 0 = none.
    #[inline]
    pub fn default_ttl_millis(&self) -> u64 {
        self.default_ttl.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<FamilyOptions> {
        FamilyOptions::read(&mut Decoder::new(bytes, "file", 0))
    }

    /// Each setting, set to a number other than its default, survives a round trip, and no other field changes.
    #[test]
    fn each_setting_round_trips_alone() {
        for info in FamilyOptions::TABLE {
            let mut options = FamilyOptions::default();
            let other = if info.default == 1 { info.domain.0 } else { 1 };
            options.set(info.name, other).unwrap();
            let mut bytes = Vec::new();
            options.write(&mut bytes);
            let again = read(&bytes).unwrap();
            for each in FamilyOptions::TABLE {
                let wanted = if each.name == info.name { other } else { each.default };
                assert_eq!(again.get(each.name), Some(wanted), "{} after {}", each.name, info.name);
            }
        }
    }

    /// A version without merge operators refuses a family that has one. A family without one has no such field.
    #[test]
    fn the_merge_operator_is_a_required_field() {
        let ids = |options: &FamilyOptions| {
            let (mut bytes, mut ids) = (Vec::new(), Vec::new());
            options.write(&mut bytes);
            let older = read_fields(&mut Decoder::new(&bytes, "file", 0), |id, field| {
                ids.push(id);
                field.rest();
                Ok(id < OPERATOR_FIELD)
            });
            (ids, older.map(drop))
        };
        let (plain, older) = ids(&FamilyOptions::default());
        assert!(!plain.contains(&OPERATOR_FIELD) && older.is_ok());
        let options = FamilyOptions::default().merge_operator(MergeOperator::custom("mine", |_, _| Ok(())));
        assert!(matches!(ids(&options).1, Err(Error::FormatTooNew { .. })));
        let mut bytes = Vec::new();
        options.write(&mut bytes);
        let again = read(&bytes).unwrap().merge_operator.unwrap();
        assert!(again.name() == "mine" && again.is_unresolved());
    }

    /// Regression: if two threads added different operators at once, the second one took its own options for those in force.
    #[test]
    fn options_with_another_merge_operator_are_other_options() {
        let with =
            |separator: &str| FamilyOptions::default().merge_operator(MergeOperator::append(separator));
        let live = LiveOptions::new(with(","));
        assert!(live.are(&with(",")));
        assert!(!live.are(&with(";")) && !live.are(&FamilyOptions::default()));
        assert!(!LiveOptions::new(FamilyOptions::default()).are(&with(",")));
    }

    #[test]
    fn numbers_outside_a_domain_are_refused_by_set_and_read() {
        let mut options = FamilyOptions::default();
        for (name, bad) in [("filter_bits_per_key", 33), ("table_bytes", 0), ("compression", 99)] {
            assert!(matches!(options.set(name, bad), Err(Error::InvalidArgument { .. })), "{name}");
            let mut bytes = Vec::new();
            let id = FamilyOptions::TABLE.iter().position(|info| info.name == name).unwrap() as u64 + 2;
            FieldWriter::new(&mut bytes).number(id, FieldClass::Optional, bad);
            assert!(matches!(read(&bytes), Err(Error::Corrupt { .. })), "{name}");
        }
        assert!(matches!(options.set("colour", 1), Err(Error::InvalidArgument { .. })));
        options.table_bytes = 0;
        assert!(LiveOptions::new(FamilyOptions::default()).check_change("f", &options).is_err());
    }

    /// Found on 32 bits: a family that was made with addresses of 64 bits, and whose values are never separated, was refused as damaged.
    #[test]
    fn a_setting_beyond_the_addresses_is_the_largest() {
        for (word, again) in
            [(1 << 33, if usize::BITS < 64 { u64::MAX } else { 1 << 33 }), (u64::MAX, u64::MAX)]
        {
            let mut bytes = Vec::new();
            let mut fields = FieldWriter::new(&mut bytes);
            fields.bytes(COMPARATOR_FIELD, FieldClass::Required, b"bytewise");
            fields.number(3, FieldClass::Optional, word);
            let options = read(&bytes).unwrap();
            assert_eq!(options.value_threshold, usize::try_from(word).unwrap_or(usize::MAX));
            assert_eq!(options.get("value_threshold"), Some(again), "what is stored again");
        }
    }

    /// The domain of `compression` used to end at 255, which no algorithm has.
    #[test]
    fn domains_end_where_values_end() {
        for info in FamilyOptions::TABLE {
            let set = |word| FamilyOptions::default().set(info.name, word);
            assert!(set(info.domain.0).is_ok() && set(info.domain.1).is_ok(), "{}", info.name);
            assert!(info.domain.0.checked_sub(1).is_none_or(|word| set(word).is_err()), "{}", info.name);
            assert!(info.domain.1.checked_add(1).is_none_or(|word| set(word).is_err()), "{}", info.name);
        }
    }

    #[test]
    fn settings_of_a_newer_version_survive_a_round_trip() {
        let mut bytes = Vec::new();
        FamilyOptions::default().write(&mut bytes);
        let newer = [&*bytes, &[200 << 1 & 0x7f | 0x80, 3, 1, 42]].concat();
        let options = read(&newer).unwrap();
        let mut again = Vec::new();
        LiveOptions::new(options).now().write(&mut again);
        assert_eq!(again, newer);
    }

    #[test]
    fn a_default_ttl_is_stored_in_milliseconds() {
        let stored = |ttl| {
            let mut bytes = Vec::new();
            FamilyOptions::default().default_ttl(ttl).write(&mut bytes);
            read(&bytes).map(|options| options.default_ttl)
        };
        assert_eq!(stored(Duration::from_millis(250)).unwrap(), Duration::from_millis(250));
        assert_eq!(stored(Duration::from_nanos(1)).unwrap(), Duration::from_millis(1), "rounded up");
        assert!(matches!(stored(Duration::MAX), Err(Error::Corrupt { .. })));
        let live = LiveOptions::new(FamilyOptions::default());
        let change = |ttl| live.check_change("f", &FamilyOptions::default().default_ttl(ttl));
        assert!(change(Duration::from_millis(EXPIRY_MAX)).is_ok());
        assert!(matches!(change(Duration::MAX), Err(Error::InvalidArgument { .. })));
    }

    /// A setting is named by its method, by `set`, or by a value other than the default; the others keep what they are.
    #[test]
    fn only_named_settings_replace_stored_ones() {
        let other = |info: &SettingInfo| if info.default == 1 { info.domain.0 } else { 1 };
        let mut stored =
            FamilyOptions::default().comparator(Comparator::u64_le()).merge_operator(MergeOperator::add());
        for info in FamilyOptions::TABLE {
            stored.set(info.name, other(info)).unwrap();
        }
        let all = |options: &FamilyOptions| -> Vec<_> {
            FamilyOptions::TABLE.iter().map(|info| options.get(info.name)).collect()
        };
        let kept = FamilyOptions::default().over(stored.clone());
        assert_eq!(all(&kept), all(&stored));
        assert_eq!((kept.comparator.name(), kept.merge_operator.unwrap().name()), ("u64", "tidesdb.add"));
        for info in FamilyOptions::TABLE {
            let mut named = FamilyOptions::default();
            named.set(info.name, info.default).unwrap();
            let changed = named.over(stored.clone());
            for each in FamilyOptions::TABLE {
                let wanted = if each.name == info.name { each.default } else { other(each) };
                assert_eq!(changed.get(each.name), Some(wanted), "{} after {}", each.name, info.name);
            }
        }
        let assigned = FamilyOptions { table_bytes: 77, ..FamilyOptions::default() };
        assert_eq!(assigned.over(stored.clone()).table_bytes, 77);
        let by_method = FamilyOptions::default().table_bytes(128 << 20).comparator(Comparator::bytewise());
        let named = by_method.over(stored.clone());
        assert_eq!((named.table_bytes, named.comparator.name()), (128 << 20, "bytewise"));
        let now = LiveOptions::new(FamilyOptions::default()).now().over(stored);
        assert_eq!(all(&now), all(&FamilyOptions::default()), "settings in force are all named");
    }

    #[test]
    fn every_setting_can_change() {
        let live = LiveOptions::new(FamilyOptions::default());
        for info in FamilyOptions::TABLE {
            let mut options = FamilyOptions::default();
            options.set(info.name, if info.default == 1 { info.domain.0 } else { 1 }).unwrap();
            live.check_change("f", &options).unwrap();
            live.change(&options);
            assert_eq!(live.now().get(info.name), options.get(info.name), "{}", info.name);
        }
    }
}
