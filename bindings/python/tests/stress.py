"""Random calls from several threads, with closes and reopens at random moments: no crash, no wrong exception, no wrong value.

    python tests/stress.py --minutes 10 [--seed N] [--threads N]

Each thread writes keys of its own, so that it knows what it must read; scans, snapshots, transactions and iterators are shared. After each
reopen what was acknowledged must be there. A second process is run for each group of rounds, so that a crash is seen as one.
"""

import argparse
import asyncio
import collections
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import tidesdb
import tidesdb.aio

# What a call may raise beside `Closed`, which every call may raise.
EXPECTED = (tidesdb.Closed, tidesdb.Busy, tidesdb.Conflict)


class Stage:
    """What the threads of one round share."""

    def __init__(self, db, seed):
        self.db, self.seed = db, seed
        self.shared = collections.deque(maxlen=8)  # iterators, cursors, snapshots, transactions, files of any thread
        self.calls = collections.Counter()
        self.failures = []
        self.kept = {}  # what each thread knows


class Worker(threading.Thread):
    def __init__(self, stage, me, model):
        super().__init__()
        self.stage, self.me, self.model = stage, me, model
        self.unsure = {}  # a key whose last write failed in between may have either value
        self.random = random.Random(f"{stage.seed} {me}")

    def run(self):
        db = self.stage.db
        moves = [getattr(self, name) for name in dir(self) if name.startswith("do_")]
        try:
            while True:
                move = self.random.choice(moves)
                try:
                    move(db)
                except EXPECTED as error:
                    if isinstance(error, tidesdb.Closed) and db.closed:
                        return
                self.stage.calls[move.__name__] += 1
        except BaseException as error:
            self.stage.failures.append((self.me, error))
            raise

    def key(self):
        return b"%d-%03d" % (self.me, self.random.randrange(200))

    def value(self):
        size = self.random.choice((0, 1, 10, 100, 1000, 20_000, 300_000) if self.random.random() < 0.1 else (0, 8, 100))
        return self.random.randbytes(min(size, 32)) * (size // 32 + 1)

    def write(self, rows, call):
        """Makes a write of these keys; what they hold is not known if it fails."""
        for key, value in rows.items():
            self.unsure[key] = (*self.allowed(key), value)
        call()
        for key, value in rows.items():
            self.keep(key, value)
            del self.unsure[key]

    def keep(self, key, value):
        if value is None:
            self.model.pop(key, None)
        else:
            self.model[key] = value

    def allowed(self, key):
        return self.unsure.get(key) or (self.model.get(key),)

    def check(self, key, value):
        allowed = self.allowed(key)
        assert value in allowed, (key, value and len(value), [a and len(a) for a in allowed])
        if key in self.unsure and not self.stage.db.closed:
            del self.unsure[key]
            self.keep(key, value)

    def do_put(self, db):
        key, value = self.key(), self.value()
        kind = self.random.choice((bytes, bytearray, memoryview))
        self.write({key: value}, lambda: db.put(key, kind(value), sync=self.random.choice((None, "none"))))

    def do_delete(self, db):
        key = self.key()
        self.write({key: None}, lambda: db.delete(key))

    def do_get(self, db):
        key = self.key()
        self.check(key, db.get(key))

    def do_multi_get(self, db):
        keys = [self.key() for _ in range(20)]
        for key, value in zip(keys, db.multi_get(keys), strict=True):
            self.check(key, value)

    def do_put_many(self, db):
        rows = {self.key(): self.value() for _ in range(self.random.randrange(30))}
        self.write(rows, lambda: db.put_many(rows))

    def do_batch(self, db):
        rows = {self.key(): self.random.choice((None, self.value())) for _ in range(10)}

        def call():
            with db.batch() as batch:
                for key, value in rows.items():
                    if value is None:
                        batch.delete(key)
                    else:
                        batch[key] = value

        self.write(rows, call)

    def do_append(self, db):
        rows = {self.key(): self.value() for _ in range(10)}

        def call():
            batches = [db.batch(), db.batch()]
            for n, (key, value) in enumerate(rows.items()):
                batches[n * 2 // len(rows)][key] = value
            batches[0].append(batches[1])
            batches[0].commit()

        self.write(rows, call)

    def do_ingest(self, db):
        rows = dict(sorted((self.key(), self.value()) for _ in range(20)))
        self.write(rows, lambda: db.ingest_sorted(rows))

    def do_sorted_writer(self, db):
        rows = {key: self.random.choice((None, self.value())) for key in sorted({self.key() for _ in range(10)})}

        def call():
            with db.sorted_writer() as writer:
                for key, value in rows.items():
                    if value is None:
                        writer.delete(key)
                    elif value and self.random.random() < 0.3:
                        writer.put_file(key, io.BytesIO(value))
                    else:
                        writer.put(key, value)

        self.write(rows, call)

    def do_mapping(self, db):
        mapping, key, value = db.mapping(), self.key(), self.value()
        self.write({key: value}, lambda: mapping.update([(key, value)]))
        self.check(key, mapping.get(key))
        assert key in mapping.keys() and mapping

    def do_views(self, db):
        key = self.key()
        with db.snapshot() as snapshot:
            reads = self.random.choice((db, snapshot, db.transaction("snapshot")))
            if key not in self.unsure:
                assert reads.contains(key) == (key in self.model) == reads.multi_contains([key])[0]
                assert (reads.expiry(key) is not None) == (key in self.model)
                with reads.keys(prefix=b"%d-" % self.me, reverse=self.random.random() < 0.5) as rows:
                    next(rows, None)
                    try:
                        assert (key in rows) == (key in self.model)
                    except ValueError:
                        pass  # they had ended
            with reads.cursor(prefix=b"%d-" % self.me, keys_only=self.random.random() < 0.5) as cursor:
                if cursor.seek(key):
                    assert cursor.key >= key and cursor.expires and cursor.seq >= cursor.version_seq
            reads.count(key, None)
            if not isinstance(reads, tidesdb.Transaction):
                reads.explain(key)
                reads.explain_range(rows=5)

    def do_transact(self, db):
        key, value = self.key(), self.value()

        def body(tx):
            assert tx.get(key) in self.allowed(key)
            count = int(tx.get(b"count", b"0"))
            tx[b"count"] = b"%d" % (count + 1)
            tx[key] = value

        self.write({key: value}, lambda: db.transact(body))

    def do_scan(self, db):
        prefix = b"%d-" % self.me
        rows = dict(db.items(prefix=prefix, reverse=self.random.random() < 0.5))
        for key in set(rows) | set(self.model):
            self.check(key, rows.get(key))

    def do_range_of_all(self, db):
        rows = db.items(reverse=self.random.random() < 0.5)
        rows.fetch(self.random.randrange(1, 3000))

    def do_snapshot(self, db):
        with db.snapshot() as snapshot:
            model = dict(self.model)
            unsure = set(self.unsure)
            for _ in range(5):
                key = self.key()
                value = snapshot.get(key)
                assert key in unsure or value == model.get(key)

    def do_stream(self, db):
        key, value = self.key(), self.value() * self.random.randrange(1, 20)

        def call():
            with db.value_writer(key) as file:
                for at in range(0, len(value), 4096):
                    file.write(value[at : at + 4096])

        self.write({key: value}, call)
        reader = db.value_reader(key)
        assert reader is not None and reader.read() == value

    def do_share(self, db):
        kind = self.random.randrange(6)
        made = (
            db.items,
            db.cursor,
            db.snapshot,
            lambda: db.transaction("snapshot"),
            lambda: db.value_writer(b"shared"),
            db.sorted_writer,
        )
        self.stage.shared.append(made[kind]())

    def do_use_shared(self, db):
        if not self.stage.shared:
            return
        try:
            one = self.random.choice(self.stage.shared)
        except (IndexError, RuntimeError):
            return
        try:
            if isinstance(one, tidesdb.Rows):
                one.fetch(3)
            elif isinstance(one, tidesdb.Cursor):
                self.random.choice((one.first, one.last, one.next, one.prev, lambda: one.seek(self.key())))()
                one.key, one.value  # noqa: B018
                if self.random.random() < 0.1:
                    one.close()
            elif isinstance(one, tidesdb.Snapshot):
                one.get(self.key())
                if self.random.random() < 0.1:
                    one.close()
            elif isinstance(one, tidesdb.Transaction):
                one.put(b"shared", b"x")
                list(one.keys(prefix=b"shared"))
                with one.cursor(prefix=b"shared") as cursor:
                    cursor.first()
                if self.random.random() < 0.2:
                    one.commit()
            elif isinstance(one, tidesdb.SortedRows):
                one.put(b"shared %020d" % time.monotonic_ns(), b"x")
                if self.random.random() < 0.2:
                    self.random.choice((one.commit, one.discard))()
            else:
                one.write(b"x" * self.random.randrange(1, 5000))
                if self.random.random() < 0.2:
                    one.close()
        except (tidesdb.InvalidArgument, tidesdb.Closed, ValueError):
            if db.closed:
                raise tidesdb.Closed from None

    def do_family(self, db):
        name = f"family {self.random.randrange(3)}"
        try:
            family = db.family_or_create(name, merge_operator=CAT)
            family.merge(b"k", b"%d," % self.me)
            family.get(b"k")
            if self.random.random() < 0.05:
                db.drop_family(name)
        except (tidesdb.NotFound, tidesdb.Exists):
            pass

    def do_rare(self, db):
        if self.random.random() < 0.1:
            self.random.choice((db.flush, db.compact, db.sync, db.stats, db.verify, db.metrics_text, db.diagnose, lambda: db.flush(wait=False)))()


CAT = tidesdb.MergeOperator("cat", lambda older, newer: (older + newer)[-1000:])


def round_(path, seed, threads, models):
    chance = random.Random(f"{seed} round")
    db = tidesdb.open(path, merge_operators=[CAT], sync=chance.choice(("full", "none", 0.01)), write_buffer_bytes=chance.choice((64 << 10, 4 << 20)), memory_limit=256 << 20)
    stage = Stage(db, seed)
    workers = [Worker(stage, me, models[me]) for me in range(threads)]
    for worker in workers:
        worker.start()
    time.sleep(chance.uniform(0.05, 3))
    db.close()
    for worker in workers:
        worker.join()
    if stage.failures:
        raise SystemExit(f"seed {seed}: {stage.failures[0]!r}")
    with tidesdb.open(path, merge_operators=[CAT]) as db:
        assert db.verify()["ok"]
        for worker in workers:
            for key in set(worker.model) | set(worker.unsure):
                value, allowed = db.get(key), worker.allowed(key)
                assert value in allowed, (seed, key)
                worker.keep(key, value)
    if chance.random() < 0.3:
        asyncio.run(tasks(path, chance))
    return sum(stage.calls.values())


async def tasks(path, chance):
    """Tasks that put and get until the database is closed beside them."""
    db = await tidesdb.aio.open(path, merge_operators=[CAT])

    async def work(me):
        try:
            for n in range(1000):
                await db.put(b"aio %d" % me, b"%d" % n)
                assert await db.get(b"aio %d" % me) == b"%d" % n
        except (tidesdb.Closed, RuntimeError):
            pass

    running = [asyncio.ensure_future(work(me)) for me in range(20)]
    for task in chance.sample(running, 5):
        await asyncio.sleep(chance.uniform(0, 0.05))
        task.cancel()
    await db.close()
    for done in await asyncio.gather(*running, return_exceptions=True):
        assert done is None or isinstance(done, asyncio.CancelledError), done


def child(options):
    folder = tempfile.mkdtemp(prefix="tidesdb-stress-")
    try:
        models = [{} for _ in range(options.threads)]
        end, calls, rounds = time.monotonic() + options.seconds, 0, 0
        while time.monotonic() < end:
            calls += round_(os.path.join(folder, "db"), options.seed + rounds, options.threads, models)
            rounds += 1
        print(f"{calls} calls, {rounds} rounds", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seconds is not None:
        return child(options)
    end, seed, calls, rounds = time.monotonic() + 60 * options.minutes, options.seed, 0, 0
    while (left := end - time.monotonic()) > 0:
        again = ["--seed", str(seed), "--threads", str(options.threads), "--seconds", str(min(left, 60))]
        command = [sys.executable, "-X", "faulthandler", __file__, *again]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"failed ({done.returncode}): {' '.join(command)}")
        words = done.stdout.split()
        calls, rounds, seed = calls + int(words[0]), rounds + int(words[2]), seed + 1000
    print(f"{calls} calls from {options.threads} threads, {rounds} closes beside them: no crash, no wrong value")
    return None


if __name__ == "__main__":
    main()
