//! Strings and byte strings. Inside a key they end in [`END`], and the two smallest bytes are escaped, so that no
//! string is the beginning of another and the order is kept.

use super::Key;
use crate::error::Malformed;

/// Ends a string inside a key; smaller than every byte of an escaped string.
const END: u8 = 0;
/// Begins an escaped byte.
const ESCAPE: u8 = 1;

impl Key for String {
    type Ref<'a> = &'a str;

    fn name() -> String {
        "String".to_owned()
    }

    fn encode(key: &str, last: bool, out: &mut Vec<u8>) {
        write(key.as_bytes(), last, out);
    }

    fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed> {
        Self::from_utf8(read(bytes, last)?).map_err(|_| Malformed::new("it is not UTF-8"))
    }

    fn to_ref(&self) -> &str {
        self
    }
}

impl Key for Vec<u8> {
    type Ref<'a> = &'a [u8];

    fn name() -> String {
        "bytes".to_owned()
    }

    fn encode(key: &[u8], last: bool, out: &mut Vec<u8>) {
        write(key, last, out);
    }

    fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed> {
        read(bytes, last)
    }

    fn to_ref(&self) -> &[u8] {
        self
    }
}

fn write(text: &[u8], last: bool, out: &mut Vec<u8>) {
    if last {
        out.extend_from_slice(text);
        return;
    }
    escape(text, out);
    out.push(END);
}

/// Appends the bytes of a string inside a key, without its end.
pub(super) fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte <= ESCAPE {
            out.extend([ESCAPE, byte + 1]);
        } else {
            out.push(byte);
        }
    }
}

fn read(bytes: &mut &[u8], last: bool) -> Result<Vec<u8>, Malformed> {
    if last {
        return Ok(std::mem::take(bytes).to_vec());
    }
    let end = bytes.iter().position(|b| *b == END).ok_or(Malformed::new("a string has no end"))?;
    let (escaped, rest) = (&bytes[..end], &bytes[end + 1..]);
    let mut text = Vec::with_capacity(end);
    let mut at = escaped.iter();
    while let Some(&byte) = at.next() {
        text.push(match (byte, at.as_slice()) {
            (ESCAPE, [escaped @ 1..=2, ..]) => {
                at.next();
                escaped - 1
            }
            (ESCAPE, _) => return Err(Malformed::new("a string has an unknown escape")),
            _ => byte,
        });
    }
    *bytes = rest;
    Ok(text)
}
