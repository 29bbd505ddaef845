//! Tests of the log: golden bytes, the sequencer, the group-committed log
//! and the reader's damage rules.
