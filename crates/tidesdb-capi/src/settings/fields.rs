//! The settings that are stored as text, each with its key: one table for reading and writing.

use std::ffi::{c_char, c_int};
use std::str::FromStr;

use crate::abi::FamilyConfig;
use crate::pointer::{bytes_of, put_text};

/// Names of enumeration values; the index is the value.
const COMPRESSIONS: [&str; 5] = ["NONE", "SNAPPY", "LZ4", "ZSTD", "LZ4_FAST"];
const SYNC_MODES: [&str; 3] = ["NONE", "FULL", "INTERVAL"];
const ISOLATIONS: [&str; 5] =
    ["READ_UNCOMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SNAPSHOT", "SERIALIZABLE"];

/// A field by its type.
pub(super) enum Field<'a> {
    Size(&'a mut usize),
    Long(&'a mut u64),
    Int(&'a mut c_int),
    Double(&'a mut f64),
    Float(&'a mut f32),
    /// Any bytes except 0.
    Text(&'a mut [c_char]),
    /// An enumeration, written by name.
    Named(&'a mut c_int, &'static [&'static str]),
    /// An enumeration, written as a number.
    Numbered(&'a mut c_int, &'static [&'static str]),
}

/// A value as text.
#[derive(Debug, PartialEq)]
pub(super) enum Shown {
    /// The text itself.
    Plain(String),
    /// The text in hexadecimal, because a line of the file cannot hold it.
    Hex(String),
}

impl Field<'_> {
    /// Returns the value as text.
    pub(super) fn show(&self) -> Shown {
        match self {
            Self::Text(text) => show_text(bytes_of(text.split_last().map_or(&[], |(_, rest)| rest))),
            other => Shown::Plain(other.show_number()),
        }
    }

    fn show_number(&self) -> String {
        match self {
            Self::Size(n) => n.to_string(),
            Self::Long(n) => n.to_string(),
            Self::Int(n) | Self::Numbered(n, _) => n.to_string(),
            Self::Double(x) => x.to_string(),
            Self::Float(x) => x.to_string(),
            Self::Text(_) => String::new(),
            Self::Named(n, names) => {
                let name = usize::try_from(**n).ok().and_then(|i| names.get(i));
                name.map_or_else(|| n.to_string(), |name| (*name).to_owned())
            }
        }
    }

    /// Sets the value from text. Returns `None` if the text is not a valid value.
    pub(super) fn read(&mut self, text: &str) -> Option<()> {
        match self {
            Self::Size(n) => **n = parse(text)?,
            Self::Long(n) => **n = parse(text)?,
            Self::Int(n) => **n = truth(text).or_else(|| parse(text))?,
            Self::Double(x) => **x = parse(text)?,
            Self::Float(x) => **x = parse(text)?,
            Self::Text(array) if text.len() < array.len() => put_text(array, text),
            Self::Text(_) => return None,
            Self::Named(n, names) | Self::Numbered(n, names) => {
                let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
                **n = named.and_then(|i| c_int::try_from(i).ok()).or_else(|| parse(text))?;
            }
        }
        Some(())
    }

    /// Sets the value from hexadecimal digits. Returns `None` if they are invalid or the field cannot hold the
    /// text.
    pub(super) fn read_hex(&mut self, text: &str) -> Option<()> {
        let Self::Text(array) = self else { return None };
        let bytes = unhex(text)?;
        let fits = !bytes.is_empty() && bytes.len() < array.len() && !bytes.contains(&0);
        fits.then(|| put_text(array, bytes))
    }
}

/// Chooses the form: readers of the file trim lines and may end a line at a control character, so such texts
/// are written in hex.
fn show_text(bytes: Vec<u8>) -> Shown {
    match String::from_utf8(bytes) {
        Ok(text) if is_plain(&text) => Shown::Plain(text),
        Ok(text) => Shown::Hex(hex(text.as_bytes())),
        Err(e) => Shown::Hex(hex(e.as_bytes())),
    }
}

/// Returns whether a line of the file can hold the text.
pub(super) fn is_plain(text: &str) -> bool {
    text.trim() == text && !text.chars().any(char::is_control)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes pairs of hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: &u8| char::from(*c).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

fn parse<N: FromStr>(text: &str) -> Option<N> {
    text.trim().parse().ok()
}

fn truth(text: &str) -> Option<c_int> {
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("true") || is("yes") { Some(1) } else { (is("false") || is("no")).then_some(0) }
}

/// Returns all stored fields, in the order of the structure.
pub(super) fn fields(config: &mut FamilyConfig) -> [(&'static str, Field<'_>); 26] {
    use Field::{Double, Float, Int, Long, Named, Numbered, Size, Text};
    let c = config;
    [
        ("write_buffer_size", Size(&mut c.write_buffer_size)),
        ("level_size_ratio", Size(&mut c.level_size_ratio)),
        ("min_levels", Int(&mut c.min_levels)),
        ("dividing_level_offset", Int(&mut c.dividing_level_offset)),
        ("value_threshold", Size(&mut c.klog_value_threshold)),
        ("compression_algorithm", Named(&mut c.compression_algorithm, &COMPRESSIONS)),
        ("enable_bloom_filter", Int(&mut c.enable_bloom_filter)),
        ("bloom_fpr", Double(&mut c.bloom_fpr)),
        ("enable_block_indexes", Int(&mut c.enable_block_indexes)),
        ("index_sample_ratio", Int(&mut c.index_sample_ratio)),
        ("block_index_prefix_len", Int(&mut c.block_index_prefix_len)),
        ("sync_mode", Numbered(&mut c.sync_mode, &SYNC_MODES)),
        ("sync_interval_us", Long(&mut c.sync_interval_us)),
        ("comparator_name", Text(&mut c.comparator_name)),
        ("comparator_ctx_str", Text(&mut c.comparator_ctx_str)),
        ("skip_list_max_level", Int(&mut c.skip_list_max_level)),
        ("skip_list_probability", Float(&mut c.skip_list_probability)),
        ("default_isolation_level", Numbered(&mut c.default_isolation_level, &ISOLATIONS)),
        ("min_disk_space", Long(&mut c.min_disk_space)),
        ("l1_file_count_trigger", Int(&mut c.l1_file_count_trigger)),
        ("l0_queue_stall_threshold", Int(&mut c.l0_queue_stall_threshold)),
        ("tombstone_density_trigger", Double(&mut c.tombstone_density_trigger)),
        ("tombstone_density_min_entries", Long(&mut c.tombstone_density_min_entries)),
        ("use_btree", Int(&mut c.use_btree)),
        ("object_lazy_compaction", Int(&mut c.object_lazy_compaction)),
        ("object_prefetch_compaction", Int(&mut c.object_prefetch_compaction)),
    ]
}
