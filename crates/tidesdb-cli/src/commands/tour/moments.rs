//! Several families in one commit; old data through a snapshot; a copy through a checkpoint.

use std::path::Path;

use tidesdb::{Db, Family, FamilyOptions, SyncMode, WriteBatch, WriteOptions};

use super::guide::Guide;
use super::rows::WHALE;
use super::unicode::{self, key};
use super::{BY_NAME, count};
use crate::failure::Outcome;
use crate::host;
use crate::range::Range;
use crate::text::{count as counted, grouped};

/// Returns the key in the index: the name, then the character, so that characters with the same name do not collide.
fn index_key(name: &str, key: &[u8]) -> Vec<u8> {
    [name.as_bytes(), &[0], key].concat()
}

/// Creates a second family that maps names to characters, and keeps it consistent by batches over both families.
pub(super) fn index(db: &Db, guide: &mut Guide<'_, '_>) -> Outcome<Family> {
    guide.title("Index")?;
    let characters = db.default_family();
    let names = db.create_family(BY_NAME, FamilyOptions::default())?;
    let quick = WriteOptions::default().sync(SyncMode::None);
    let started = host::now();
    let mut batch = WriteBatch::new();
    let rows = Range::default().walk(characters, true, |key, fields, _| {
        batch.put(&names, &index_key(&unicode::name(fields), key), key)?;
        if batch.len() == 1000 {
            db.write_with(&mut batch, &quick)?;
        }
        Ok(true)
    })?;
    db.write_with(&mut batch, &quick)?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    guide
        .say(format!("a second family `{BY_NAME}` with {} names, created in {took:.0} ms", grouped(rows)))?;
    guide.say("prefix GREEK SMALL LETTER O:")?;
    for row in names.prefix(b"GREEK SMALL LETTER O")?.take(3) {
        let (_, key) = row?;
        let fields = characters.get(&key)?;
        guide.show(unicode::pretty(&key, fields.as_deref().unwrap_or_default()))?;
    }

    let before = db.snapshot();
    let (key, name) = (key(0xE000 + 1), "TIDE COMING IN");
    let index_key = index_key(name, key.as_bytes());
    batch.put(characters, key.as_bytes(), format!("{name};So;0").as_bytes())?;
    batch.put(&names, &index_key, key.as_bytes())?;
    db.write(&mut batch)?;
    guide.say(format!("one batch over both families: {name} at {key}"))?;
    let neither = !before.contains(characters, key.as_bytes())? && !before.contains(&names, &index_key)?;
    let both = db.contains(key.as_bytes())? && names.contains(&index_key)?;
    guide.promise(neither && both, "before the commit neither family has it, afterwards both do")?;
    guide.promise(count(&names)? == rows + 1, "the index has every character")?;
    Ok(names)
}

/// Deletes a block by mistake, and reads it from a snapshot.
pub(super) fn snapshot(db: &Db, names: &Family, guide: &mut Guide<'_, '_>) -> Outcome<()> {
    guide.title("Snapshot")?;
    let characters = db.default_family();
    let block = b"U+01F4";
    let before = db.snapshot();
    let rows = before.prefix(characters, block)?.count();
    let mut batch = WriteBatch::new();
    for row in db.prefix(block)? {
        let (key, fields) = row?;
        batch.delete(characters, &key)?;
        batch.delete(names, &index_key(&unicode::name(&fields), &key))?;
    }
    db.write(&mut batch)?;
    let whale = key(WHALE);
    guide
        .say(format!("{} deleted by mistake: the block of the whale", counted(rows as u64, "row", "rows")))?;
    guide
        .promise(!db.contains(whale.as_bytes())? && db.prefix(block)?.next().is_none(), "they are deleted")?;
    let old = before.get(characters, whale.as_bytes())?;
    guide.say("the snapshot from before still shows them:")?;
    guide.show(unicode::pretty(whale.as_bytes(), old.as_deref().unwrap_or_default()))?;
    let mut seen = 0;
    for row in before.prefix(characters, block)? {
        let (key, fields) = row?;
        batch.put(characters, &key, &fields)?;
        batch.put(names, &index_key(&unicode::name(&fields), &key), &key)?;
        seen += 1;
    }
    guide.promise(seen == rows && old.is_some(), "all of them, unchanged by later writes")?;
    db.write(&mut batch)?;
    guide.promise(db.get(whale.as_bytes())? == old, "and restored from there in one batch")
}

/// Makes a copy, opens it, and shows that the two databases are independent.
pub(super) fn checkpoint(db: &Db, path: &Path, guide: &mut Guide<'_, '_>) -> Outcome<()> {
    guide.title("Checkpoint")?;
    let rows = count(db.default_family())?;
    let started = host::now();
    db.checkpoint(path)?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    guide.say(format!("a consistent copy by hard links, while the database is open: {took:.1} ms"))?;
    let started = host::now();
    let copy = Db::open(path)?;
    let opened = started.elapsed().as_secs_f64() * 1e3;
    guide.say(format!("opened as an independent database in {opened:.1} ms"))?;
    let same = count(copy.default_family())? == rows && count(&copy.family(BY_NAME)?)? == rows;
    guide.promise(same, format!("it has all {} rows of both families", grouped(rows)))?;
    copy.delete(key(WHALE).as_bytes())?;
    guide
        .promise(db.contains(key(WHALE).as_bytes())?, "a delete in the copy does not affect the original")?;
    Ok(copy.close()?)
}
