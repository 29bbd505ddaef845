//! Large values beside small ones: values of any length are stored in value logs, written and read piece by piece, and found by every reader.

mod long_value_faults;
mod long_values;
mod stored_scans;
mod stream_faults;
pub(crate) mod streams;
mod value_races;
mod value_readers;
