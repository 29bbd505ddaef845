//! Loading, looking up, scanning.

use tidesdb::{Db, SyncMode, WriteBatch, WriteOptions};

use super::count;
use super::guide::Guide;
use super::unicode::{self, characters, key, pretty};
use crate::failure::Outcome;
use crate::host;
use crate::progress::Progress;
use crate::range::Range;
use crate::text::{grouped, rates, size};

/// The spouting whale.
pub(super) const WHALE: u32 = 0x1F433;
const BATCH_ROWS: usize = 1000;
const LOOKUPS: usize = 20_000;

/// Loads all characters, makes them durable, and flushes them to a table.
pub(super) fn load(db: &Db, guide: &mut Guide<'_, '_>) -> Outcome<()> {
    guide.title("Load")?;
    let started = host::now();
    let progress = Progress::new(Some(characters().map(|c| c.fields.len() as u64).sum()));
    let family = db.default_family();
    let quick = WriteOptions::default().sync(SyncMode::None);
    let mut batch = WriteBatch::new();
    let (mut rows, mut bytes) = (0u64, 0u64);
    for character in characters() {
        batch.put(family, key(character.code).as_bytes(), character.fields.as_bytes())?;
        rows += 1;
        bytes += character.fields.len() as u64;
        if batch.len() == BATCH_ROWS {
            db.write_with(&mut batch, &quick)?;
            progress.update(rows, bytes);
        }
    }
    db.write_with(&mut batch, &quick)?;
    drop(progress);
    let written = started.elapsed().as_secs_f64();
    db.sync()?;
    let synced = started.elapsed().as_secs_f64() - written;
    guide.say(format!("{} characters, {} in {}", grouped(rows), size(bytes), rates(rows, bytes, written)))?;
    guide
        .say(format!("in batches of {BATCH_ROWS}, then one sync for all of them: {:.1} ms", synced * 1e3))?;
    db.flush()?;
    let stats = family.stats();
    let table_bytes: u64 = stats.level_bytes.iter().sum();
    guide.say(format!("written to a table on disk, sorted and compressed: {}", size(table_bytes)))?;
    guide.promise(count(family)? == rows, "every row is there")
}

/// Looks up one character, then many at random.
pub(super) fn look_up(db: &Db, guide: &mut Guide<'_, '_>) -> Outcome<()> {
    guide.title("Look up")?;
    let whale = key(WHALE);
    let found = db.get(whale.as_bytes())?;
    let found = found.as_deref().unwrap_or_default();
    guide.say(format!("get {whale}"))?;
    guide.show(pretty(whale.as_bytes(), found))?;
    guide.promise(unicode::name(found) == "SPOUTING WHALE", "the whale is found")?;
    guide.promise(!db.contains(b"U+110000")?, "a key that was never written is not found")?;

    let all: Vec<_> = characters().map(|c| (key(c.code), c.fields)).collect();
    let mut nanos = Vec::with_capacity(LOOKUPS);
    let mut wrong = 0;
    let mut draw = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..LOOKUPS {
        // Marsaglia's xorshift: the same sequence in every tour.
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        let (key, fields) = &all[(draw % all.len() as u64) as usize];
        let started = host::now();
        let same = db.get_map(key.as_bytes(), |value| value == fields.as_bytes())?;
        nanos.push(started.elapsed().as_nanos() as u64);
        wrong += u32::from(same != Some(true));
    }
    nanos.sort_unstable();
    let at = |percent: usize| nanos[nanos.len() * percent / 100] as f64 / 1e3;
    let text = format!("{} random lookups, each equal to the file", grouped(LOOKUPS as u64));
    guide.promise(wrong == 0, format!("{text}: half within {:.1} us, 99 % within {:.1} us", at(50), at(99)))
}

/// Scans a block, a prefix, and everything.
pub(super) fn scan(db: &Db, guide: &mut Guide<'_, '_>) -> Outcome<()> {
    guide.title("Scan")?;
    guide.say("range U+000370 .. U+000400, the letters of the Greek block:")?;
    let mut letters = String::new();
    for row in db.range(key(0x370)..key(0x400))? {
        let (key, fields) = row?;
        if unicode::category(&fields).first() == Some(&b'L') {
            letters.extend(unicode::code(&key).and_then(char::from_u32));
        }
    }
    guide.show(&letters)?;
    guide.promise(letters.contains('\u{3B1}') && letters.contains('\u{3C9}'), "from alpha to omega")?;

    guide.say("the last of prefix U+01F40, backwards:")?;
    let backwards: Vec<_> = db.prefix(b"U+01F40")?.rev().collect::<Result<_, _>>()?;
    for (key, fields) in backwards.iter().take(5) {
        guide.show(pretty(key, fields))?;
    }
    guide.promise(
        backwards.len() == 16 && backwards.is_sorted_by(|a, b| *a.0 > *b.0),
        "sixteen animals, in order",
    )?;

    let started = host::now();
    let mut expected = characters();
    let rows = Range::default().walk(db.default_family(), true, |k, v, _| {
        let same = expected.next().is_some_and(|c| key(c.code).as_bytes() == k && c.fields.as_bytes() == v);
        Ok(same)
    })?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    let whole = expected.next().is_none();
    guide.promise(whole, format!("all {} rows, in order, equal to the file: {took:.1} ms", grouped(rows)))
}
