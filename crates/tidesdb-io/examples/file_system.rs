//! Shows what a file system can do of that which the engine can use, and can do without.
//!
//! `cargo run -p tidesdb-io --example file_system [FOLDER]` (without a folder: where temporary files are)

use std::error::Error;
use std::io;
use std::path::PathBuf;

use tidesdb_io::{Disk as _, RealDisk};

const RESERVED: u64 = 8 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let temp = tempfile::tempdir_in(parent)?;
    let dir = RealDisk::new().open_dir(temp.path(), false)?;
    let show = |what: &str, done: io::Result<bool>| match done {
        Ok(done) => println!("{what}: {}", if done { "yes" } else { "no" }),
        Err(e) => println!("{what}: no, {e}"),
    };

    let held = dir.create_new("held", 0)?;
    drop(dir.create_new("other", 0)?);
    show("an open file can be replaced", dir.rename("other", "held").map(|()| true));
    dir.unlink("held")?;
    show(
        "the name of a removed file is free while the file is open",
        Ok(!dir.list()?.contains(&"held".into())),
    );
    drop(held);

    let before = dir.space()?.free;
    let file = dir.create_new("reserved", RESERVED)?;
    let taken = before.saturating_sub(dir.space()?.free);
    show("space of files is reserved", Ok(taken >= RESERVED / 2)); // others write at the same time
    show("files can have two names", dir.link("reserved", &*dir, "second").map(|()| true));
    show("the log can be written through a map", file.map_shared(4096).map(|map| map.is_some()));
    show("files can be read through a map", file.without_descriptor().map(|map| map.is_some()));
    show("reads can ask for what is in memory", file.read_cached_at(&mut [0], 0).map(|n| n.is_some()));
    Ok(())
}
