//! Open a database, write, read, scan, delete.
//!
//! `cargo run -p tidesdb-engine --example quick_start [FOLDER]` (without a folder: a temporary one)

use std::error::Error;
use std::path::PathBuf;

use tidesdb::Db;

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or(temp.path().join("fruit.db"), PathBuf::from);

    let db = Db::open(&folder)?; // created if it does not exist

    db.put(b"banana", b"7")?; // durable when it returns
    db.put(b"apple", b"3")?;
    db.put(b"cherry", b"40")?;

    if let Some(count) = db.get(b"apple")? {
        println!("apple: {}", String::from_utf8_lossy(&count));
    }
    println!("durian: {:?}", db.get(b"durian")?.map(|v| v.len()));

    println!("\nfrom a to c, in order:");
    for entry in db.range("a".."c")? {
        let (key, value) = entry?;
        println!("  {} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }

    db.delete(b"banana")?;
    println!("\nbackwards, without the banana:");
    for entry in db.iter()?.rev() {
        let (key, _) = entry?;
        println!("  {}", String::from_utf8_lossy(&key));
    }

    db.close()?; // an ordinary drop also closes, but cannot report errors
    Ok(())
}
