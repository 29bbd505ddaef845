//! Deletes that do not slow down scans: one small write deletes a range. Every read hides deleted and expired rows.

mod clock;
mod deletes;
mod expiry;
mod long_bounds;
mod own_ranges;
mod ranges;
