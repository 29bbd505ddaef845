"""TidesDB from Python beside rocksdict, lmdb and plyvel: the same rows, the same durability, interleaved, medians.

    python bench/bench.py [--rows N] [--rounds N] [--write PAGE --commit HASH] [--only ENGINE,...]

Each round opens an empty folder for each engine in turn, in another order each time, and times each operation. The time of an operation includes
everything that a Python program does for it: making keys is outside, calling and receiving `bytes` inside.
"""

import argparse
import contextlib
import datetime
import gc
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
from importlib import metadata

VALUE = 100


class Store:
    """What a store does whose `db` has calls with the usual names."""

    def put_all(self, rows):
        put = self.db.put
        for key, value in rows:
            put(key, value)

    def get_all(self, keys):
        get = self.db.get
        for key in keys:
            get(key)

    def delete_all(self, keys):
        delete = self.db.delete
        for key in keys:
            delete(key)

    def settle(self):
        self.db.flush()

    def close(self):
        self.db.close()


class TidesDb(Store):
    name = "TidesDB"

    def __init__(self, path, sync):
        import tidesdb

        self.db = tidesdb.open(path, sync="full" if sync else "none")

    def batch(self, rows):
        with self.db.batch() as batch:
            put = batch.put
            for key, value in rows:
                put(key, value)

    def bulk(self, rows):
        self.db.put_many(rows)

    def multi_get(self, keys):
        self.db.multi_get(keys)

    def scan(self, reverse=False):
        n = 0
        for _key, _value in self.db.items(reverse=reverse):
            n += 1
        return n

    def keys(self):
        n = 0
        for _key in self.db.keys():
            n += 1
        return n

    def ranges(self, keys, rows):
        items = self.db.items
        for key in keys:
            items(key).fetch(rows)


class RocksDict(Store):
    name = "rocksdict"

    def __init__(self, path, sync):
        import rocksdict

        self.lib = rocksdict
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(64 << 20)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(64 << 20))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.db = rocksdict.Rdict(str(path), options)
        write = rocksdict.WriteOptions()
        write.sync = sync
        self.write = write
        self.db.set_write_options(write)

    def batch(self, rows):
        batch = self.lib.WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in rows:
            put(key, value)
        self.db.write(batch, self.write)

    bulk = batch

    def multi_get(self, keys):
        self.db.get(keys)

    def scan(self, reverse=False):
        n = 0
        for _key, _value in self.db.items(backwards=reverse):
            n += 1
        return n

    def keys(self):
        n = 0
        for _key in self.db.keys():
            n += 1
        return n

    def ranges(self, keys, rows):
        items = self.db.items
        for key in keys:
            left, out = rows, []
            for row in items(from_key=key):
                out.append(row)
                left -= 1
                if not left:
                    break


class Lmdb:
    name = "lmdb"

    def __init__(self, path, sync):
        import lmdb

        self.env = lmdb.open(str(path), map_size=8 << 30, sync=sync, metasync=sync, writemap=False)

    def put_all(self, rows):
        for key, value in rows:
            with self.env.begin(write=True) as txn:
                txn.put(key, value)

    def batch(self, rows):
        with self.env.begin(write=True) as txn:
            put = txn.put
            for key, value in rows:
                put(key, value)

    def bulk(self, rows):
        with self.env.begin(write=True) as txn:
            txn.cursor().putmulti(rows)

    def get_all(self, keys):
        with self.env.begin() as txn:
            get = txn.get
            for key in keys:
                get(key)

    def multi_get(self, keys):
        with self.env.begin() as txn:
            txn.cursor().getmulti(keys)

    def delete_all(self, keys):
        for key in keys:
            with self.env.begin(write=True) as txn:
                txn.delete(key)

    def scan(self, reverse=False):
        n = 0
        with self.env.begin() as txn:
            cursor = txn.cursor()
            if reverse:
                cursor.last()
            for _key, _value in cursor.iterprev() if reverse else cursor:
                n += 1
        return n

    def keys(self):
        n = 0
        with self.env.begin() as txn:
            for _key in txn.cursor().iternext(values=False):
                n += 1
        return n

    def ranges(self, keys, rows):
        with self.env.begin() as txn:
            cursor = txn.cursor()
            for key in keys:
                if cursor.set_range(key):
                    left, out = rows, []
                    for row in cursor:
                        out.append(row)
                        left -= 1
                        if not left:
                            break

    def settle(self):
        self.env.sync(True)

    def close(self):
        self.env.close()


class Plyvel(Store):
    name = "plyvel"

    def __init__(self, path, sync):
        import plyvel

        self.sync = sync
        self.db = plyvel.DB(
            str(path),
            create_if_missing=True,
            write_buffer_size=64 << 20,
            lru_cache_size=64 << 20,
            bloom_filter_bits=10,
            compression="snappy",
        )

    def put_all(self, rows):
        put, sync = self.db.put, self.sync
        for key, value in rows:
            put(key, value, sync=sync)

    def batch(self, rows):
        with self.db.write_batch(sync=self.sync) as batch:
            put = batch.put
            for key, value in rows:
                put(key, value)

    bulk = batch

    def multi_get(self, keys):
        get = self.db.get
        return [get(key) for key in keys]

    def delete_all(self, keys):
        delete, sync = self.db.delete, self.sync
        for key in keys:
            delete(key, sync=sync)

    def scan(self, reverse=False):
        n = 0
        for _key, _value in self.db.iterator(reverse=reverse):
            n += 1
        return n

    def keys(self):
        n = 0
        for _key in self.db.iterator(include_value=False):
            n += 1
        return n

    def ranges(self, keys, rows):
        iterator = self.db.iterator
        for key in keys:
            left, out = rows, []
            for row in iterator(start=key):
                out.append(row)
                left -= 1
                if not left:
                    break

    def settle(self):
        pass  # it has no call for it


ENGINES = [TidesDb, RocksDict, Lmdb, Plyvel]


def pieces(rows, size):
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def operations(options):
    """The name of each operation, how many rows it handles, and a function that does it."""
    chance = random.Random(7)
    n = options.rows
    ordered = [b"key%013d" % (i * 7) for i in range(n)]
    shuffled = ordered[:]
    chance.shuffle(shuffled)
    values = [chance.randbytes(VALUE // 2) + b"v" * (VALUE // 2) for _ in range(1000)]
    rows = [(key, values[i % 1000]) for i, key in enumerate(shuffled)]
    few = max(n // 100, 100)
    reads = chance.choices(ordered, k=n)
    absent = [b"key%013d" % (i * 7 + 3) for i in range(n)]
    chance.shuffle(absent)
    starts = chance.choices(ordered, k=n // 20)
    batches, lists = pieces(rows, 1000), pieces(reads, 1000)
    each = lambda call, parts: [call(part) for part in parts]  # noqa: E731
    return [
        ("durable put, one by one", few, True, lambda e: e.put_all(rows[:few])),
        ("durable batches of 1000", n // 10, True, lambda e: each(e.batch, pieces(rows[: n // 10], 1000))),
        ("batches of 1000, put by put", n, False, lambda e: each(e.batch, batches)),
        ("gets, just written", n, False, lambda e: e.get_all(reads)),
        ("overwrite: batches of 1000, one call each", n, False, lambda e: each(e.bulk, batches)),
        ("overwrite: put, one by one", n // 2, False, lambda e: e.put_all(rows[: n // 2])),
        (None, 0, False, lambda e: e.settle()),
        ("scan, the first after a flush", n, False, lambda e: e.scan()),
        ("scan", n, False, lambda e: e.scan()),
        ("scan backwards", n, False, lambda e: e.scan(reverse=True)),
        ("scan of keys", n, False, lambda e: e.keys()),
        ("ranges of 100 rows", n // 20 * 100, False, lambda e: e.ranges(starts, 100)),
        ("gets, after a flush", n, False, lambda e: e.get_all(reads)),
        ("gets of 1000 keys in one call", n, False, lambda e: each(e.multi_get, lists)),
        ("gets of absent keys", n, False, lambda e: e.get_all(absent)),
        ("delete, one by one", n // 4, False, lambda e: e.delete_all(shuffled[: n // 4])),
    ]


def measure(engines, options):
    """Seconds of each operation, by engine and round."""
    todo = operations(options)
    times = {(engine.name, name): [] for engine in engines for name, *_ in todo if name}
    for round_ in range(options.rounds):
        order = engines[round_ % len(engines) :] + engines[: round_ % len(engines)]
        for engine in order:
            for sync in (True, False):
                folder = tempfile.mkdtemp(prefix="bench-", dir=options.dir)
                try:
                    with contextlib.closing(engine(os.path.join(folder, "db"), sync)) as store:
                        for name, rows, durable, call in todo:
                            if durable != sync:
                                continue
                            gc.collect()
                            gc.disable()
                            begin = time.perf_counter()
                            call(store)
                            took = time.perf_counter() - begin
                            gc.enable()
                            if name:
                                times[engine.name, name].append(took)
                finally:
                    shutil.rmtree(folder)
        print(f"round {round_ + 1} of {options.rounds}", flush=True)
    return todo, times


def rate(rows, seconds):
    per_second = rows / seconds
    for unit, scale in (("M", 1e6), ("K", 1e3)):
        if per_second >= scale:
            return f"{per_second / scale:.3g} {unit}"
    return f"{per_second:.3g}"


def table(todo, times, engines):
    """The rows of the page, those that were lost first."""
    lines = []
    for name, rows, *_ in todo:
        if not name:
            continue
        middle = {engine.name: statistics.median(times[engine.name, name]) for engine in engines}
        others = {other: took / middle["TidesDB"] for other, took in middle.items() if other != "TidesDB"}
        least = min(others.values(), default=1.0)
        cells = [rate(rows, middle["TidesDB"])]
        cells += [f"{rate(rows, middle[other])}, {ratio:.2f}x" for other, ratio in others.items()]
        mark = " **loss**" if least < 1 else ""
        lines.append((least >= 1, f"| {name} | {' | '.join(cells)} | {least:.2f}x{mark} |"))
    return [line for _, line in sorted(lines, key=lambda line: line[0])]


def page(todo, times, engines, options):
    head = [engine.name for engine in engines]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in head[1:])
    rows = table(todo, times, engines)
    lost = sum("**loss**" in row for row in rows)
    today = datetime.date.today()
    return "\n".join(
        [
            "# Python",
            "",
            f"TidesDB from Python beside other stores from Python: {len(rows) - lost} of {len(rows)} rows are faster than with each of the others. The rates are",
            "rows per second, as a Python program sees them; the ratio is that of the times, the other store by TidesDB, and the last column has the least.",
            "",
            f"* Command: `cargo xtask wheel --bench -- --rows {options.rows} --rounds {options.rounds}`, as the wheel for release",
            f"* Scale: {options.rows:,} rows, keys of 16 bytes, values of {VALUE} bytes that compress to half; everything fits in memory",
            f"* Date: {today.day} {today:%B %Y}, medians of {options.rounds} rounds, the engines in turn",
            f"* Commit: `{options.commit}`; {versions}; Python {platform.python_version()}",
            f"* Machine: {options.machine}",
            "",
            "| | " + " | ".join(head) + " | least |",
            "| --- |" + " --- |" * (len(head) + 1),
            *rows,
            "",
            "The settings are equal where the stores have them: write buffers and block caches of 64 MiB, filters of 10 bits for each key, LZ4 (Snappy in",
            "plyvel; lmdb has neither). `durable` rows sync each commit, in each store; the other rows never do. lmdb gets within one read transaction, so",
            "it copies each value out of its map and calls nothing else.",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="a folder on the disk to measure")
    parser.add_argument("--only", default="", help="engines beside TidesDB, with commas; all if empty")
    parser.add_argument("--write", help="the page to write")
    parser.add_argument("--commit", default="?")
    parser.add_argument("--machine", default=f"{os.cpu_count()} processors, {platform.system()} {platform.release()}")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    engines = [engine for engine in ENGINES if not only or engine.name in only or engine is TidesDb]
    todo, times = measure(engines, options)
    text = page(todo, times, engines, options)
    print(text)
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
