//! A quick open after a kill: reads begin after the replay of the log. No thread starts before there is work for it, and an open that fails
//! says what is missing.

mod lazy_threads;
mod long_commits;
mod missing_comparators;
mod open_names;
mod opening;
mod recovery;
