//! A bounds-checked reader of bytes that came from disk. Every call may fail; none panics.

use std::ops::RangeInclusive;

use crate::{Error, Result};

/// Reads fields from the front of a byte slice, and names the file and offset when one is missing.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    pos: usize,
    file: &'a str,
    base: u64,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder of `bytes`, which start at byte `base` of `file`.
    pub fn new(bytes: &'a [u8], file: &'a str, base: u64) -> Self {
        Self { bytes, pos: 0, file, base }
    }

    /// Bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// Bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Returns the error for damage at the current position.
    #[cold]
    pub fn corrupt(&self, what: &str) -> Error {
        Error::corrupt(self.file, self.base + self.pos as u64, what)
    }

    /// Reads the next `n` bytes.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes remain.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.pos.checked_add(n).and_then(|end| self.bytes.get(self.pos..end)) {
            Some(out) => {
                self.pos += n;
                Ok(out)
            }
            None => Err(self.corrupt("unexpected end of data")),
        }
    }

    /// Reads the next `N` bytes as an array.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes remain.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// `Corrupt` if no byte remains.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a 16-bit integer.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes remain.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads a 32-bit integer.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes remain.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a 64-bit integer.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes remain.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a varint in its shortest form. Longer forms are refused, so every value has exactly one encoding.
    ///
    /// # Errors
    /// `Corrupt` if the varint is cut off, too large, or not in its shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        match self.bytes.get(self.pos) {
            Some(&byte) if byte < 0x80 => {
                self.pos += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    /// Reads a varint of more than one byte. Not part of its caller, so that the caller stays short.
    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64> {
        let mut n = u64::from(self.u8()? & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.corrupt("number too large"));
            }
            n |= bits << shift;
            if byte < 0x80 {
                return if byte == 0 { Err(self.corrupt("number not in shortest form")) } else { Ok(n) };
            }
            shift += 7;
            if shift > 63 {
                return Err(self.corrupt("number too long"));
            }
        }
    }

    /// Reads a varint that must fit a `usize` and be at most `max`.
    ///
    /// # Errors
    /// `Corrupt` if the varint is cut off, not in its shortest form, or above `max`.
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize> {
        let n = self.varint()?;
        match usize::try_from(n) {
            Ok(n) if n <= max => Ok(n),
            _ => Err(self.corrupt("length above its limit")),
        }
    }

    /// Reads a varint that must be in `domain`; `what` names it in the error message.
    ///
    /// # Errors
    /// `Corrupt` if the varint is cut off, not in its shortest form, or outside `domain`.
    #[inline]
    pub fn number(&mut self, domain: RangeInclusive<u64>, what: &str) -> Result<u64> {
        let n = self.varint()?;
        if domain.contains(&n) { Ok(n) } else { Err(self.outside(what, n, &domain)) }
    }

    #[cold]
    fn outside(&self, what: &str, n: u64, domain: &RangeInclusive<u64>) -> Error {
        let (low, high) = (domain.start(), domain.end());
        self.corrupt(&format!("{what} is {n}, outside {low} to {high}"))
    }

    /// Reads a length of at most `max`, then that many bytes.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes remain, or the length is above `max`.
    #[inline]
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8]> {
        let n = self.length(max)?;
        self.take(n)
    }

    /// Reads a length and returns a decoder of that many bytes.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes remain.
    pub fn sub(&mut self) -> Result<Self> {
        let n = self.length(self.remaining())?;
        let base = self.base + self.pos as u64;
        Ok(Self { bytes: self.take(n)?, pos: 0, file: self.file, base })
    }

    /// Reads all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        self.pos = self.bytes.len();
        rest
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &'a str {
        self.file
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// `Corrupt` if bytes remain.
    pub fn finish(&self) -> Result<()> {
        if self.remaining() == 0 { Ok(()) } else { Err(self.corrupt("unexpected bytes at the end")) }
    }
}
