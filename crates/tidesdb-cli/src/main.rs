//! The `tidesdb` program.
fn main() {}
