// Tests the npm package `tidesdb`, as published in the registry, with the C library of this repository: typical use from
// JavaScript, then random operations compared with a model in memory. Arguments: a directory, seconds, a seed.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { TidesDB, IsolationLevel, SyncMode, ErrorCode, CompressionAlgorithm, LogLevel } = require('tidesdb');

const [home, seconds, seed] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const bytes = (text) => Buffer.from(text);
const quiet = (name, more = {}) => ({ dbPath: path.join(home, name), logLevel: LogLevel.None, ...more });

function withTransaction(db, isolation, body) {
  const txn = db.beginTransactionWithIsolation(isolation);
  try {
    return body(txn);
  } finally {
    txn.free();
  }
}

function write(db, body) {
  withTransaction(db, IsolationLevel.ReadCommitted, (txn) => {
    body(txn);
    txn.commit();
  });
}

function read(db, cf, key) {
  return withTransaction(db, IsolationLevel.ReadCommitted, (txn) => {
    try {
      return txn.get(cf, bytes(key)).toString();
    } catch (error) {
      assert.equal(error.code, ErrorCode.ErrNotFound, String(error));
      return undefined;
    }
  });
}

function rows(db, cf) {
  return withTransaction(db, IsolationLevel.Snapshot, (txn) => {
    const found = [];
    const iter = txn.newIterator(cf);
    for (iter.seekToFirst(); iter.isValid();) {
      found.push(`${iter.key()}=${iter.value()}`);
      try {
        iter.next();
      } catch (error) {
        assert.equal(error.code, ErrorCode.ErrNotFound, String(error));
        break;
      }
    }
    iter.free();
    return found;
  });
}

function family(db, name, config) {
  db.createColumnFamily(name, config);
  return db.getColumnFamily(name);
}

// Puts, deletes, savepoints, a rolled back transaction, a value in a value log, an expired value.
function tour(db) {
  const cf = family(db, 'fruit', { syncMode: SyncMode.Full });
  write(db, (txn) => {
    txn.put(cf, bytes('apple'), bytes('red'), -1);
    txn.put(cf, bytes('banana'), bytes('yellow'), -1);
    txn.savepoint('before');
    txn.put(cf, bytes('lost'), bytes('x'), -1);
    txn.rollbackToSavepoint('before');
    txn.put(cf, bytes('old'), bytes('x'), 1);
    txn.put(cf, bytes('large'), Buffer.alloc(100000, 'v'), -1);
  });
  withTransaction(db, IsolationLevel.ReadCommitted, (txn) => {
    txn.put(cf, bytes('never'), bytes('x'), -1);
    txn.rollback();
  });
  assert.equal(read(db, cf, 'apple'), 'red');
  assert.equal(read(db, cf, 'large').length, 100000);
  for (const key of ['lost', 'old', 'never']) assert.equal(read(db, cf, key), undefined, key);
  write(db, (txn) => txn.delete(cf, bytes('large')));
  assert.deepEqual(rows(db, cf), ['apple=red', 'banana=yellow']);
  return cf;
}

// Two transactions write the same key: the second commit fails.
function conflict(db, cf) {
  withTransaction(db, IsolationLevel.Snapshot, (first) => withTransaction(db, IsolationLevel.Snapshot, (second) => {
    first.put(cf, bytes('apple'), bytes('green'), -1);
    second.put(cf, bytes('apple'), bytes('brown'), -1);
    first.commit();
    assert.throws(() => second.commit(), (error) => error.code === ErrorCode.ErrConflict);
    second.rollback();
  }));
  assert.equal(read(db, cf, 'apple'), 'green');
}

function hook(db, cf) {
  const told = [];
  cf.setCommitHook((ops) => {
    for (const op of ops) told.push(`${op.isDelete ? '-' : '+'}${op.key}`);
    return 0;
  });
  write(db, (txn) => {
    txn.put(cf, bytes('k'), bytes('1'), -1);
    txn.put(cf, bytes('k'), bytes('2'), -1);
    txn.delete(cf, bytes('k'));
  });
  cf.clearCommitHook();
  assert.deepEqual(told, ['+k', '+k', '-k']);
}

function figures(db, cf) {
  const [stats, all] = [cf.getStats(), db.getDbStats()];
  assert.ok(stats.numLevels >= 1 && stats.levelNumSSTables.length === stats.numLevels);
  assert.equal(all.numColumnFamilies, 1); // listColumnFamilies() of this package always returns []
  assert.equal(all.unifiedMemtableEnabled, true);
  assert.equal(db.getCacheStats().enabled, true);
}

// Pseudo-random numbers below n, determined by the seed.
function randomly(state) {
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
}

// Runs one transaction of random operations on both the store and the model.
function step(db, families, model, below) {
  const after = model.map((map) => new Map(map));
  const txn = db.beginTransactionWithIsolation(below(5));
  let [at, key] = [0, 'key0'];
  for (let i = below(20); i >= 0; i--) {
    // One operation of four writes the same key again: the last one counts.
    if (below(4) !== 0) [at, key] = [below(families.length), `key${below(500)}`];
    const value = 'v'.repeat(below(below(10) === 0 ? 3000 : 50)) + below(1000);
    if (below(4) === 0) {
      txn.delete(families[at], bytes(key));
      after[at].delete(key);
    } else {
      txn.put(families[at], bytes(key), bytes(value), -1);
      after[at].set(key, value);
    }
  }
  const kept = below(5) !== 0;
  if (kept) txn.commit();
  else txn.rollback();
  txn.free();
  return kept ? after : model;
}

function check(db, families, model) {
  families.forEach((cf, at) => {
    const want = [...model[at]].map(([key, value]) => `${key}=${value}`).sort();
    assert.deepEqual(rows(db, cf).sort(), want);
  });
}

function soak() {
  const below = randomly(seed);
  const names = ['a', 'b', 'c'];
  let db = TidesDB.open(quiet('soak'));
  const config = { writeBufferSize: 65536, compressionAlgorithm: CompressionAlgorithm.ZstdCompression };
  names.forEach((name) => family(db, name, config));
  let families = names.map((name) => db.getColumnFamily(name));
  let model = names.map(() => new Map());
  let steps = 0;
  for (const end = Date.now() + seconds * 1000; Date.now() < end; steps++) {
    model = step(db, families, model, below);
    if (below(100) === 0) families[below(3)].flushMemtable();
    if (below(400) === 0) families[below(3)].compact();
    if (below(300) === 0) check(db, families, model);
    if (below(500) === 0) {
      db.close();
      db = TidesDB.open(quiet('soak'));
      families = names.map((name) => db.getColumnFamily(name));
    }
  }
  check(db, families, model);
  db.close();
  return steps;
}

fs.mkdirSync(home, { recursive: true });
const db = TidesDB.open(quiet('tour', { unifiedMemtable: true, unifiedMemtableSyncMode: SyncMode.Full }));
const cf = tour(db);
conflict(db, cf);
hook(db, cf);
figures(db, cf);
db.backup(path.join(home, 'copy'));
db.close();
const copy = TidesDB.open(quiet('copy'));
assert.deepEqual(rows(copy, copy.getColumnFamily('fruit')), ['apple=green', 'banana=yellow']);
copy.close();
console.log(`npm: ${soak()} random transactions, seed ${seed}`);
