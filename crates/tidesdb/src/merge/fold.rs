//! [`Chain`]: the operands of one key that a merge of tables combines; rules 10 and 11 of [`super::retain`].

use std::collections::VecDeque;

use crate::types::{Kind, MergeOperator, Operands, SeqNo};

/// A chain is combined at this many bytes or operands, so that the memory it takes is limited.
const CHAIN_BYTES_MAX: usize = 1 << 20;
const CHAIN_OPERANDS_MAX: usize = 4096;

/// Adjacent operands of one key with no reader between them, and what is to be written for them.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// `None` if the family has no operator.
    operator: Option<MergeOperator>,
    operands: Operands,
    /// Sequence number of each operand, newest first.
    numbers: Vec<SeqNo>,
    /// Sequence number of the oldest version that was combined or collected.
    oldest: SeqNo,
    /// Versions that were combined with a newer one.
    folded: u64,
    out: VecDeque<(SeqNo, Kind, Vec<u8>)>,
    /// The value that was written last.
    value: Vec<u8>,
}

impl Chain {
    pub(super) fn new(operator: Option<MergeOperator>) -> Self {
        Self { operator, ..Self::default() }
    }

    /// Returns whether the family has an operator.
    pub(super) fn has_operator(&self) -> bool {
        self.operator.is_some()
    }

    /// Starts a chain with the newest operand.
    pub(super) fn begin(&mut self, seq: SeqNo, operand: &[u8]) {
        self.operands.clear();
        self.numbers.clear();
        self.folded = 0;
        self.push(seq, operand);
    }

    /// Adds the next older operand.
    pub(super) fn push(&mut self, seq: SeqNo, operand: &[u8]) {
        self.operands.push(operand);
        self.numbers.push(seq);
        self.oldest = seq;
    }

    /// Sequence number of the newest operand.
    pub(super) fn newest(&self) -> SeqNo {
        self.numbers.first().copied().unwrap_or(0)
    }

    /// Sequence number of the oldest operand collected.
    pub(super) fn oldest(&self) -> SeqNo {
        self.oldest
    }

    /// Returns whether the operands must be combined before more are added.
    pub(super) fn is_long(&self) -> bool {
        self.operands.bytes() > CHAIN_BYTES_MAX || self.numbers.len() > CHAIN_OPERANDS_MAX
    }

    /// Returns the operands combined with `base`; `None` if the operator failed.
    fn fold(&self, base: Option<&[u8]>) -> Option<Vec<u8>> {
        self.operands.fold(self.operator.as_ref()?, base).ok()
    }

    /// Combines the operands into one. Returns false if that failed, or if the result is so long that nothing should be
    /// added to it.
    pub(super) fn compact(&mut self) -> bool {
        let Some(value) = self.fold(None) else { return false };
        self.folded += self.numbers.len() as u64 - 1;
        self.numbers.truncate(1);
        self.operands.clear();
        self.operands.push(&value);
        value.len() <= CHAIN_BYTES_MAX
    }

    /// Ends the chain: it becomes a put of its operands combined with `base`. Returns false if the operator failed.
    pub(super) fn end_with(&mut self, base: Option<&[u8]>) -> bool {
        let Some(value) = self.fold(base) else { return false };
        self.folded += self.numbers.len() as u64 - 1 + u64::from(base.is_some());
        self.out.push_back((self.newest(), Kind::Put, value));
        true
    }

    /// Ends the chain without its base: its operands stay operands, combined if possible.
    pub(super) fn end_open(&mut self) {
        if self.numbers.len() > 1 {
            self.compact();
        }
        let each = self.numbers.iter().zip(self.operands.iter());
        self.out.extend(each.map(|(seq, operand)| (*seq, Kind::Merge, operand.to_vec())));
    }

    /// Number of versions that were combined with a newer one.
    pub(super) fn folded(&self) -> u64 {
        self.folded
    }

    /// Number of entries to write.
    pub(super) fn entries(&self) -> usize {
        self.out.len()
    }

    /// Removes the next entry to write: its number, kind and value.
    pub(super) fn pop(&mut self) -> Option<(SeqNo, Kind)> {
        let (seq, kind, value) = self.out.pop_front()?;
        self.value = value;
        Some((seq, kind))
    }

    /// Frees the memory of the operands, and of the entry removed last.
    pub(super) fn free(&mut self) {
        self.operands = Operands::default();
        self.value = Vec::new();
    }

    /// The value of the entry removed last.
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }
}
