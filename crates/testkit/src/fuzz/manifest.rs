//! Manifests with valid checksums and arbitrary contents.
//!
//! The input of a fuzz target is a short form from which the file is built, so that the mutator does not spend time on
//! zeros:
//!
//! ```text
//! segment bytes u64 | number u64 | page u8 | mask u64 x 3 | edits, each: length u32, payload
//! ```
//!
//! `page` 1 to 4 selects a mark page; its count, end and file length are XORed with the masks before it is sealed.

use tidesdb::internals::codec::{Salt, bound_crc};
use tidesdb::internals::version::{Change, MANIFEST_FORMAT, VersionEdit};

use super::bytes::{put, u32_at, u64_at};

const PAGE: usize = 4096;
const RECORDS_AT: usize = 5 * PAGE;
const RECORD_HEADER: usize = 20;
const FRONT: usize = 8 + 8 + 1 + 24;
/// Zero bytes after the last record.
const RESERVE: usize = 2 * PAGE;

/// A parsed manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Salt of the file.
    pub salt: Salt,
    /// Identity of the database.
    pub uuid: [u8; 16],
    /// Size of a log segment in bytes.
    pub segment_bytes: u64,
    /// Number of the manifest.
    pub number: u64,
    /// Mark page that the masks change; 0 means none.
    pub page: u8,
    /// Masks that are XORed into count, end and file length of that mark.
    pub masks: [u64; 3],
    /// Payloads of the records.
    pub edits: Vec<Vec<u8>>,
}

impl Manifest {
    /// Parses a file; `None` if it is not a manifest.
    pub fn of_file(file: &[u8]) -> Option<Self> {
        let mut this = Self {
            salt: file.get(16..32)?.try_into().ok()?,
            uuid: file.get(32..48)?.try_into().ok()?,
            segment_bytes: u64_at(file, 48)?,
            number: u64_at(file, 56)?,
            page: 0,
            masks: [0; 3],
            edits: Vec::new(),
        };
        let mut at = RECORDS_AT;
        while u64_at(file, at + 8)? == this.edits.len() as u64 + 1 {
            let end = at + RECORD_HEADER + u32_at(file, at + 4)? as usize;
            this.edits.push(file.get(at + RECORD_HEADER..end)?.to_vec());
            at = end.next_multiple_of(PAGE);
        }
        Some(this)
    }

    /// Returns the short form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.segment_bytes.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(self.page);
        self.masks.iter().for_each(|mask| out.extend_from_slice(&mask.to_le_bytes()));
        for edit in &self.edits {
            out.extend_from_slice(&(edit.len() as u32).to_le_bytes());
            out.extend_from_slice(edit);
        }
        out
    }

    /// Parses the short form; salt and identity are taken from `self`. Any bytes are valid.
    pub fn with(&self, short: &[u8]) -> Self {
        let mut front = short.to_vec();
        front.resize(FRONT.max(short.len()), 0);
        let word = |at| u64_at(&front, at).unwrap_or(0);
        let mut edits = Vec::new();
        let mut rest = &front[FRONT..];
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let (edit, tail) = tail.split_at(tail.len().min(u32::from_le_bytes(*length) as usize));
            edits.push(edit.to_vec());
            rest = tail;
        }
        Self {
            segment_bytes: word(0),
            number: word(8),
            page: front[16],
            masks: [word(17), word(25), word(33)],
            edits,
            ..self.clone()
        }
    }

    /// Adds a record with these changes.
    pub fn push(&mut self, changes: impl IntoIterator<Item = Change>) {
        let mut payload = Vec::new();
        changes.into_iter().collect::<VersionEdit>().encode(&mut payload);
        self.edits.push(payload);
    }

    /// Builds the file, with all checksums valid.
    pub fn to_file(&self) -> Vec<u8> {
        let mut file = vec![0; RECORDS_AT];
        put(&mut file, 0, b"TDBMANI\n");
        put(&mut file, 8, &MANIFEST_FORMAT.to_le_bytes());
        put(&mut file, 12, &[1, 0, 0, 0]);
        put(&mut file, 16, &self.salt);
        put(&mut file, 32, &self.uuid);
        put(&mut file, 48, &self.segment_bytes.to_le_bytes());
        put(&mut file, 56, &self.number.to_le_bytes());
        let crc = bound_crc(&self.salt, 0, &[&file[..92]]);
        put(&mut file, 92, &crc.to_le_bytes());
        let mut chain = bound_crc(&self.salt, self.number, &[&self.uuid]);
        let mut marks = Vec::new();
        for (i, edit) in self.edits.iter().enumerate() {
            let (at, number) = (file.len(), i as u64 + 1);
            let mut body = (edit.len() as u32).to_le_bytes().to_vec();
            body.extend_from_slice(&number.to_le_bytes());
            body.extend_from_slice(&chain.to_le_bytes());
            body.extend_from_slice(edit);
            chain = bound_crc(&self.salt, at as u64, &[&body]);
            file.extend_from_slice(&chain.to_le_bytes());
            file.extend_from_slice(&body);
            marks.push((number, file.len() as u64, chain));
            file.resize(file.len().next_multiple_of(PAGE), 0);
        }
        file.resize(file.len() + RESERVE, 0);
        self.put_marks(&mut file, &marks);
        file
    }

    fn put_marks(&self, file: &mut [u8], marks: &[(u64, u64, u32)]) {
        let Some(last) = marks.last() else { return };
        // The previous record's mark is in the other two pages; a single record's mark is in all four.
        let before = marks.iter().nth_back(1).unwrap_or(last);
        let file_bytes = file.len() as u64;
        for mark in [before, last] {
            for page in 1..5usize {
                if marks.len() > 1 && page as u64 % 2 != (1 + mark.0 % 2) % 2 {
                    continue;
                }
                let at = page * PAGE;
                let masks = if page == usize::from(self.page) { self.masks } else { [0; 3] };
                put(file, at, b"TDBMARK\n");
                put(file, at + 8, &(mark.0 ^ masks[0]).to_le_bytes());
                put(file, at + 16, &(mark.1 ^ masks[1]).to_le_bytes());
                put(file, at + 24, &(file_bytes ^ masks[2]).to_le_bytes());
                put(file, at + 32, &mark.2.to_le_bytes());
                let crc = bound_crc(&self.salt, at as u64, &[&file[at..at + 60]]);
                put(file, at + 60, &crc.to_le_bytes());
            }
        }
    }

    /// Returns the content of the `CURRENT` file that names the manifest.
    pub fn current(&self) -> Vec<u8> {
        let mut out = b"TDBCURR\n\x01\0\0\0\0\0\0\0".to_vec();
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.uuid);
        out.resize(60, 0);
        let crc = bound_crc(&[0; 16], 0, &[&out]);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Returns the file name.
    pub fn name(&self) -> String {
        format!("{:06}.manifest", self.number)
    }
}
