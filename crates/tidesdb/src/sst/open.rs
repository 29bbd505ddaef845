//! Finds the sections of a table file from its end, and checks what they say against the description.

use std::io::ErrorKind;

use tidesdb_io::{Access, Dir, FileExt};

use super::filter::FilterShape;
use super::index::TopIndex;
use super::layout::{FOOTER_BYTES, Footer, UNNUMBERED, open_section};
use super::{TableMeta, file::TableFile};
use crate::codec::Decoder;
use crate::{Error, Result};

/// Bytes read first, from the end of the file: footer, properties and, for most tables, the top level.
const TAIL_BYTES: u64 = 4 << 10;
/// Longest properties of a table that was built outside of a database: with all its range deletes.
pub const PROPS_BYTES_MAX: usize = 64 << 20;
/// Estimated memory of a block in a resident index, without its fence: location, fence head and fence end.
const BLOCK_INDEX_BYTES: u64 = 24;

/// Where a table file has its sections.
pub(super) struct Sections {
    pub(super) footer: Footer,
    pub(super) top: TopIndex,
    pub(super) filter: FilterShape,
}

impl Sections {
    /// Reads footer, properties and top level.
    pub(super) fn read(file: &TableFile, bytewise: bool) -> Result<Self> {
        let len = file.meta().file_bytes;
        let tail_at = len.saturating_sub(TAIL_BYTES);
        let tail = file.read_range(tail_at..len)?;
        let footer = read_footer(file, &tail)?;
        let end = match footer.index_at.checked_sub(tail_at) {
            Some(skip) => tail[skip as usize..].to_vec(),
            None => file.read_range(footer.index_at..len)?,
        };
        let (top, props) = end.split_at((footer.props_at - footer.index_at) as usize);
        check_props(file, &footer, &props[..props.len() - FOOTER_BYTES])?;
        let mut d = file.section(footer.index_at, top, "top level")?;
        let filter = FilterShape::read(&mut d, footer.index_at - footer.filter_at)?;
        let at = footer.filter_at + filter.disk_bytes();
        let top = TopIndex::read(&mut d, at, &footer, (bytewise, file.meta().compression))?;
        d.finish()?;
        Ok(Self { footer, top, filter })
    }

    /// Estimates the memory of a resident index and filter. Fences that share long prefixes with their neighbours take
    /// more.
    pub(super) fn resident_estimate(&self) -> u64 {
        let index = self.footer.index_at - self.footer.filter_at - self.filter.disk_bytes();
        self.filter.bytes() + index + u64::from(self.footer.blocks) * BLOCK_INDEX_BYTES
    }
}

/// Reads what the table `name` of `dir`, which was built outside of a database, states of itself. It is checked when it is opened.
///
/// # Errors
/// `Corrupt` if it is damaged, or no such table; `FormatTooNew`; `Io`.
pub fn describe(dir: &dyn Dir, name: &str) -> Result<TableMeta> {
    let file = dir.open(name, Access::Random).map_err(|e| Error::io("open", name, e))?;
    let len = file.len().map_err(|e| Error::io("stat", name, e))?;
    let read = |at: u64, buf: &mut [u8]| {
        file.read_exact_at(buf, at).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => Error::corrupt(name, at, "unexpected end of file"),
            _ => Error::io_at("read", name, at, e),
        })
    };
    let Some(footer_at) = len.checked_sub(FOOTER_BYTES as u64) else {
        return Err(Error::corrupt(name, 0, "file shorter than a footer"));
    };
    let mut bytes = [0; FOOTER_BYTES];
    read(footer_at, &mut bytes)?;
    let salt = *bytes.first_chunk().expect("a footer begins with the salt");
    let footer = Footer::decode(&bytes, &salt, name, footer_at)?;
    let props = usize::try_from(footer_at - footer.props_at).ok().filter(|bytes| *bytes <= PROPS_BYTES_MAX);
    let Some(props) = props else {
        return Err(Error::corrupt(name, footer.props_at, "properties longer than a table can have"));
    };
    let mut section = vec![0; props];
    read(footer.props_at, &mut section)?;
    let body = open_section(&salt, footer.props_at, &section, name, "properties")?;
    let mut d = Decoder::new(body, name, footer.props_at);
    let meta = TableMeta::decode_props(&mut d)?;
    d.finish()?;
    let is_built = meta.built.is_some() && meta.taken.is_none();
    if footer.id != UNNUMBERED || !is_built || (meta.min_seq, meta.max_seq, meta.purged_to) != (0, 0, 0) {
        let what = "the table belongs to a database: only tables that a TableBuilder wrote can be taken";
        return Err(Error::corrupt(name, footer.props_at, what));
    }
    Ok(TableMeta { id: UNNUMBERED, salt, file_bytes: len, ..meta })
}

/// Decodes the footer at the end of `tail` and checks that it belongs to the described table.
fn read_footer(file: &TableFile, tail: &[u8]) -> Result<Footer> {
    let meta = file.meta();
    let Some(at) = meta.file_bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Err(file.corrupt(0, "file shorter than a footer"));
    };
    let bytes = tail.last_chunk().ok_or_else(|| file.ends_early(at))?;
    let footer = Footer::decode(bytes, &meta.salt, file.name(), at)?;
    // A table that was built outside of the database has no number of its own.
    let id = if meta.taken.is_some() || meta.built.is_some() { UNNUMBERED } else { meta.id };
    if footer.id == id { Ok(footer) } else { Err(file.corrupt(at, "the file contains another table")) }
}

/// Checks that the properties in the file match the description.
fn check_props(file: &TableFile, footer: &Footer, section: &[u8]) -> Result<()> {
    let (meta, at) = (file.meta(), footer.props_at);
    let mut d = file.section(at, section, "properties")?;
    let found = TableMeta::decode_props(&mut d)?;
    d.finish()?;
    let found = TableMeta { id: meta.id, salt: footer.salt, file_bytes: meta.file_bytes, ..found };
    match found.taken_as(meta).difference(meta) {
        None => Ok(()),
        Some(what) => Err(file.corrupt(at, &format!("the {what} of the table differ from the manifest"))),
    }
}
