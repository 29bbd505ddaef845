//! Disk space that comes back: the space of deleted and overwritten rows is freed while the database is open. A full disk loses nothing.

mod disk;
mod idle_threads;
mod small;
mod space;
mod value_space;
