//! Tagged fields: the encoding of on-disk bodies that can grow.
//!
//! A body is a sequence of `id * 2 + required varint | length varint | bytes`, with ids ascending from 1, up to the end
//! of the body. A reader that finds an unknown *required* field refuses the file with `FormatTooNew`. It keeps unknown
//! optional fields unchanged and writes them back ([`UnknownFields`]), so a newer version still finds them after an
//! older version has rewritten the body. A missing field takes its default.

use std::sync::Arc;

use super::{Decoder, put_bytes, put_varint};
use crate::{Error, Result};

/// Largest field id.
const FIELD_ID_MAX: u64 = 1 << 16;

/// What a reader does with a field it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldClass {
    /// The reader keeps the field and ignores it.
    Optional,
    /// The reader refuses the body.
    Required,
}

/// Optional fields that a newer version wrote, in their encoded form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields(Option<Arc<[u8]>>);

impl UnknownFields {
    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Writes the fields of a body in ascending id order. Unknown fields have larger ids than known ones, because ids are
/// assigned in ascending order.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    out: &'a mut Vec<u8>,
    last: u64,
}

impl<'a> FieldWriter<'a> {
    /// Starts a body at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, last: 0 }
    }

    /// Appends a field. Ids must be passed in ascending order.
    pub fn bytes(&mut self, id: u64, class: FieldClass, bytes: &[u8]) {
        debug_assert!(id > self.last && id <= FIELD_ID_MAX, "field ids must ascend");
        self.last = id;
        put_varint(self.out, id << 1 | u64::from(class == FieldClass::Required));
        put_bytes(self.out, bytes);
    }

    /// Appends a field whose value is a varint.
    pub fn number(&mut self, id: u64, class: FieldClass, n: u64) {
        let mut bytes = Vec::with_capacity(super::VARINT_BYTES_MAX);
        put_varint(&mut bytes, n);
        self.bytes(id, class, &bytes);
    }

    /// Appends the unknown fields that a reader kept, and ends the body.
    pub fn finish(self, unknown: &UnknownFields) {
        self.out.extend_from_slice(unknown.0.as_deref().unwrap_or_default());
    }
}

/// Reads the remaining fields of `d`. `known` decodes the field with the given id, and returns false for an id it does
/// not know. It gets a decoder of that field alone and must read it to the end.
///
/// # Errors
/// `Corrupt` if the bytes are not valid fields; `FormatTooNew` for an unknown required field; any error that `known`
/// returns.
pub fn read_fields(
    d: &mut Decoder<'_>,
    mut known: impl FnMut(u64, &mut Decoder<'_>) -> Result<bool>,
) -> Result<UnknownFields> {
    let (mut last, mut unknown) = (0, Vec::new());
    while d.remaining() > 0 {
        let head = d.varint()?;
        let (id, required) = (head >> 1, head & 1 == 1);
        if id <= last || id > FIELD_ID_MAX {
            return Err(d.corrupt("fields out of order"));
        }
        last = id;
        let mut field = d.sub()?;
        if known(id, &mut field)? {
            field.finish()?;
        } else if required {
            let (found, supported) = (FIELDS_FORMAT + 1, FIELDS_FORMAT);
            return Err(Error::FormatTooNew { file: d.file().into(), found, supported });
        } else {
            put_varint(&mut unknown, head);
            put_bytes(&mut unknown, field.rest());
        }
    }
    Ok(UnknownFields((!unknown.is_empty()).then(|| unknown.into())))
}

/// Format number reported in errors about unknown required fields.
const FIELDS_FORMAT: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    type Known = Vec<(u64, Vec<u8>)>;

    fn read(bytes: &[u8], known: u64) -> Result<(Known, UnknownFields)> {
        let mut found = Vec::new();
        let mut d = Decoder::new(bytes, "file", 0);
        let unknown = read_fields(&mut d, |id, field| {
            if id > known {
                return Ok(false);
            }
            found.push((id, field.rest().to_vec()));
            Ok(true)
        })?;
        Ok((found, unknown))
    }

    fn body() -> Vec<u8> {
        let mut out = Vec::new();
        let mut fields = FieldWriter::new(&mut out);
        fields.bytes(1, FieldClass::Required, b"one");
        fields.number(3, FieldClass::Optional, 300);
        fields.bytes(9, FieldClass::Optional, b"");
        fields.finish(&UnknownFields::default());
        out
    }

    #[test]
    fn unknown_optional_fields_survive_a_rewrite() {
        let (found, unknown) = read(&body(), 1).unwrap();
        assert_eq!(found, [(1, b"one".to_vec())]);
        let mut again = Vec::new();
        let mut fields = FieldWriter::new(&mut again);
        fields.bytes(1, FieldClass::Required, b"one");
        fields.finish(&unknown);
        assert_eq!(again, body());
        assert!(read(&body(), 9).unwrap().1.is_empty());
    }

    #[test]
    fn an_unknown_required_field_returns_format_too_new() {
        assert!(matches!(read(&body(), 0), Err(Error::FormatTooNew { .. })));
    }

    #[test]
    fn truncated_or_unordered_fields_are_corrupt() {
        let body = body();
        let ends = [0, 5, 9, body.len()];
        for cut in 0..=body.len() {
            assert_eq!(read(&body[..cut], 9).is_ok(), ends.contains(&cut), "cut at {cut}");
        }
        let twice = [&body[..5], &body[..5]].concat();
        assert!(matches!(read(&twice, 9), Err(Error::Corrupt { .. })));
        assert!(matches!(read(&[0, 0], 9), Err(Error::Corrupt { .. })));
        let mut far = Vec::new();
        put_varint(&mut far, (FIELD_ID_MAX + 1) << 1);
        far.push(0);
        assert!(matches!(read(&far, 9), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn unread_bytes_in_a_field_are_corrupt() {
        let mut d = Decoder::new(&[2, 2, 7, 7], "file", 0);
        let read = read_fields(&mut d, |_, field| field.u8().map(|_| true));
        assert!(matches!(read, Err(Error::Corrupt { offset: 3, .. })), "{read:?}");
    }
}
