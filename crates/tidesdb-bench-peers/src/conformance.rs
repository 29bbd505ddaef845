//! Checks an adapter against a map: put, get, multi-get, delete, batches, seek, range, iteration, several sessions,
//! settling and reopening. Also checks transactions of every level, if the adapter has them.

use std::collections::BTreeMap;
use std::path::Path;

use tidesdb_bench::engine::{Config, Ended, Engine, Open, Result, Session, Transactions};
use tidesdb_bench::rivals;
use tidesdb_bench::rng::Rng;
use tidesdb_bench::spec::{Durability, Isolation, Spec, Workload};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Number of keys; small, so that keys are overwritten and deleted often.
const KEYS: u64 = 3000;
const STEPS: u64 = 400;

/// Runs the checks with every class of durability and with batches of one and of many operations. Returns a description
/// of what was checked.
///
/// # Errors
/// The first result that differs from the model, with the request; or an error of the engine.
pub fn run(open: Open, engine: &str, dir: &Path, seed: u64) -> Result<String> {
    let mut done = Vec::new();
    for durability in Durability::ALL {
        if rivals::named(engine).is_some_and(|rival| !rival.classes.contains(&durability)) {
            continue;
        }
        for batch in [1, 20] {
            let what = format!("durability {}, batch {batch}, seed {seed}", durability.name());
            let dir = dir.join(format!("{}-{batch}", durability.name()));
            // A small memtable, so that files are written and read as well.
            let spec = Spec { durability, batch, memtable: 1 << 20, cache: 1 << 20, ..Spec::default() };
            let config = Config { engine: engine.to_owned(), dir, spec };
            life(open, &config, seed).map_err(|failure| format!("{what}: {failure}"))?;
            done.push(what);
        }
    }
    if rivals::named(engine).is_none_or(|rival| rival.transactions) {
        for level in Isolation::ALL {
            let what = format!("transactions, {}, seed {seed}", level.name());
            let (workload, memtable) = (Workload::Transaction, 1 << 20);
            let spec = Spec { workload, isolation: Some(level), memtable, ..Spec::default() };
            let config = Config { engine: engine.to_owned(), dir: dir.join(level.short()), spec };
            life(open, &config, seed)
                .and_then(|()| transact(open, &config, level, seed))
                .map_err(|failure| format!("{what}: {failure}"))?;
            done.push(what);
        }
    }
    Ok(done.join("\n"))
}

/// Opens the database three times: writes and reads in the first two rounds, only iterates in the last.
fn life(open: Open, config: &Config, seed: u64) -> Result<()> {
    let (mut model, mut rng) = (Model::new(), Rng::new(seed, config.spec.batch));
    for round in 0..3 {
        let engine = open(config)?;
        (!engine.settings().is_empty()).then_some(()).ok_or("the adapter returned no settings")?;
        iterate(&*engine, &model).map_err(|what| format!("round {round}, after the open: {what}"))?;
        if round < 2 {
            work(&*engine, &mut model, &mut rng, config.spec.batch)
                .map_err(|what| format!("round {round}: {what}"))?;
            engine.settle()?;
            iterate(&*engine, &model).map_err(|what| format!("round {round}, settled: {what}"))?;
        }
        engine.sync()?;
        engine.close()?;
    }
    Ok(())
}

fn work(engine: &dyn Engine, model: &mut Model, rng: &mut Rng, batch: u64) -> Result<()> {
    let mut writer = engine.session()?;
    let mut reader = engine.session()?;
    for step in 0..STEPS {
        for _ in 0..batch.max(5) {
            write(&mut *writer, model, rng)?;
            if batch == 1 {
                writer.commit()?;
            }
        }
        writer.commit()?;
        let session = if step % 2 == 0 { &mut writer } else { &mut reader };
        session.refresh()?;
        for _ in 0..5 {
            read(&mut **session, model, rng).map_err(|what| format!("step {step}: {what}"))?;
        }
    }
    Ok(())
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("{:016}", rng.below(KEYS) * 7).into_bytes()
}

fn write(session: &mut dyn Session, model: &mut Model, rng: &mut Rng) -> Result<()> {
    let key = key(rng);
    if rng.below(4) == 0 {
        session.delete(&key)?;
        model.remove(&key);
        return Ok(());
    }
    // Occasionally a value that some engines store separately.
    let length = if rng.below(50) == 0 { 8192 } else { 8 + rng.below(200) };
    let value: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
    session.put(&key, &value)?;
    model.insert(key, value);
    Ok(())
}

fn read(session: &mut dyn Session, model: &Model, rng: &mut Rng) -> Result<()> {
    let at = key(rng);
    let shown = String::from_utf8_lossy(&at).into_owned();
    let (mut value, mut first, mut rows) = (None, None, Vec::new());
    let found = session.get(&at, &mut |v| value = Some(v.to_vec()))?;
    same(found, value.as_ref() == model.get(&at) && found == value.is_some(), || format!("get {shown}"))?;
    let keys: Vec<Vec<u8>> = (0..1 + rng.below(40)).map(|_| key(rng)).collect();
    let mut values = vec![None; keys.len()];
    let n = session.multi_get(&keys, &mut |place, v| values[place] = Some(v.to_vec()))?;
    let wanted: Vec<_> = keys.iter().map(|k| model.get(k).cloned()).collect();
    let there = wanted.iter().flatten().count() as u64;
    same(n, values == wanted && n == there, || format!("{} keys at once, {there} exist", keys.len()))?;
    let valid = session.seek(&at, &mut |k| first = Some(k.to_vec()))?;
    let wanted = model.range(at.clone()..).next().map(|(k, _)| k);
    same(&first, first.as_ref() == wanted && valid == first.is_some(), || {
        format!("seek {shown}, expected {wanted:?}")
    })?;
    let limit = 1 + rng.below(20);
    let n = session.range(&at, limit, &mut |k, v| rows.push((k.to_vec(), v.to_vec())))?;
    let wanted: Vec<_> =
        model.range(at..).take(limit as usize).map(|(k, v)| (k.clone(), v.clone())).collect();
    same(n, rows == wanted && n == rows.len() as u64, || format!("{limit} rows from {shown}"))
}

fn same(got: impl std::fmt::Debug, right: bool, asked: impl FnOnce() -> String) -> Result<()> {
    if right { Ok(()) } else { Err(format!("{}: wrong result {got:?}", asked())) }
}

fn iterate(engine: &dyn Engine, model: &Model) -> Result<()> {
    let mut session = engine.session()?;
    let mut rows = Vec::new();
    let n = session.iterate(&mut |k, v| rows.push((k.to_vec(), v.to_vec())))?;
    let right = n == rows.len() as u64 && rows.iter().map(|(k, v)| (k, v)).eq(model.iter());
    same(n, right, || format!("all rows, expected {}", model.len()))
}

/// Checks commits, rollbacks and conflicts with the data in the database.
fn transact(open: Open, config: &Config, level: Isolation, seed: u64) -> Result<()> {
    let engine = open(config)?;
    let (mut model, mut rng) = (Model::new(), Rng::new(seed, 7));
    engine.session()?.iterate(&mut |k, v| drop(model.insert(k.to_vec(), v.to_vec())))?;
    let mut session = engine.session()?;
    for step in 0..STEPS {
        let before = model.clone();
        let tx = transactions(&mut *session)?;
        tx.begin(level)?;
        for _ in 0..20 {
            step_in(tx, &mut model, &mut rng).map_err(|what| format!("transaction {step}: {what}"))?;
        }
        if rng.below(4) == 0 {
            tx.rollback()?;
            model = before;
        } else {
            let ended = tx.commit()?;
            same(ended, ended == Ended::Committed, || format!("transaction {step}, no conflict"))?;
        }
    }
    drop(session);
    iterate(&*engine, &model)?;
    conflict(&*engine, level)?;
    engine.close()
}

/// Lets two sessions increment the same counter.
fn conflict(engine: &dyn Engine, level: Isolation) -> Result<()> {
    let mut sessions = [engine.session()?, engine.session()?];
    let key = b"a counter of two";
    for _ in 0..50 {
        let first = transactions(&mut *sessions[0])?;
        first.begin(level)?;
        first.put(key, b"0")?;
        same((), first.commit()? == Ended::Committed, || "the first put".to_owned())?;
        for session in &mut sessions {
            let tx = transactions(&mut **session)?;
            tx.begin(level)?;
            let mut shown = Vec::new();
            tx.get(key, &mut |value| shown = value.to_vec())?;
            same(&shown, shown == b"0", || "a get before both commits".to_owned())?;
        }
        let mut ended = Vec::new();
        for session in &mut sessions {
            let tx = transactions(&mut **session)?;
            tx.put(key, b"1")?;
            ended.push(tx.commit()?);
        }
        let refused = ended.iter().filter(|e| **e == Ended::Conflict).count();
        same(ended, refused == usize::from(level.keeps_updates()), || "two updates of a key".to_owned())?;
    }
    Ok(())
}

fn transactions(session: &mut dyn Session) -> Result<&mut dyn Transactions> {
    session.transactions().ok_or_else(|| "the adapter has no transactions".to_owned())
}

/// Makes one call in a transaction, which must see its own writes.
fn step_in(tx: &mut dyn Transactions, model: &mut Model, rng: &mut Rng) -> Result<()> {
    let at = key(rng);
    match rng.below(4) {
        0 => {
            tx.delete(&at)?;
            model.remove(&at);
        }
        1 => {
            let value: Vec<u8> = (0..8 + rng.below(200)).map(|_| rng.below(256) as u8).collect();
            tx.put(&at, &value)?;
            model.insert(at, value);
        }
        _ => {
            let mut value = None;
            let found = tx.get(&at, &mut |v| value = Some(v.to_vec()))?;
            let right = value.as_ref() == model.get(&at) && found == value.is_some();
            same(found, right, || format!("get {}", String::from_utf8_lossy(&at)))?;
        }
    }
    Ok(())
}
