//! No silent damage: each damaged byte is found, and its file is named. A call that fails leaves a batch or
//! transaction as it was, and a panic in a user's function leaves the documented state.

mod close_reads;
mod failed_calls;
mod panics;
mod verify;
