"""Calls that are made again and again take no more memory."""

import gc
import io
import os
import sys
from pathlib import Path

import pytest

import tidesdb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# So many calls, of those that make much, and of those that make files; the second half may add so many bytes. An object of Python has 50 at least.
CALLS, LARGE_CALLS, FILE_CALLS, GROWTH = 20_000, 2000, 400, 400 << 10


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def calls(db, folder):
    """Cheap calls, and those that make much."""
    union = tidesdb.MergeOperator("union", lambda older, newer: older + newer)
    tags = db.create_family("tags", merge_operator=union)
    tags.put(b"k", b"a")
    tags.merge(b"k", b"b")
    snapshot, tx, mapping = db.snapshot(), db.transaction(), db.mapping()

    def cursor(of):
        with of.cursor(b"1", b"2", keys_only=True) as cursor:
            cursor.first()
            cursor.key, cursor.expires, cursor.seq, cursor.version_seq  # noqa: B018

    def rows():
        with db.items(b"10") as rows:
            next(rows)
            (b"11", b"v") in rows, b"none" in rows  # noqa: B018

    def batch():
        one, two = db.batch(), db.batch()
        one.put(b"k", bytearray(100))
        two.put(b"l", b"v" * 1000)
        one.append(two)
        one.append(one)

    def transaction():
        tx = db.transaction()
        tx.replace(b"10", b"w")
        tx.pop(b"11", None)
        tx.release(tx.savepoint())
        tx.reset()
        tx.rollback()

    def failures():
        for call in (
            lambda: db.put(b"k", b"v", ttl=0),
            lambda: db.get_part(1),
            lambda: db.family("none"),
            lambda: mapping[b"none"],
            lambda: db.ingest({"none": []}),
            lambda: tidesdb.writer_figures(folder / "none"),
        ):
            try:
                call()
            except (tidesdb.Error, TypeError, KeyError):
                pass

    cheap = {
        "reads": lambda: (db.contains(b"10"), db.multi_contains([b"10", bytearray(b"x")]), db.expiry(b"10"), db.get_part(b"10", 1)),
        "snapshot": lambda: (snapshot.count(), snapshot.multi_contains([b"10"]), snapshot.get_part(b"10"), snapshot.expiry(b"x")),
        "transaction": transaction,
        "cursors": lambda: (cursor(db), cursor(snapshot)),
        "cursor of a transaction": lambda: (cursor(tx), tx.reset()),
        "rows": rows,
        "batch": batch,
        "profile": lambda: tidesdb.profile(lambda: db.get(b"10")),
        "merges": lambda: (tags[b"k"], (b"k", b"ab") in tags.items(), tidesdb.MergeOperator("x", max)),
    }
    large = {
        "mapping": lambda: (len(mapping), b"10" in mapping.keys(), mapping == {}, list(reversed(mapping.items()))),
        "explain": lambda: db.explain(b"10"),
        "explain_range": lambda: db.explain_range(b"10", b"12"),
        "figures": lambda: (db.diagnose(), db.changed_settings(), db.has_family("x"), db.key_count_max(), db.options()),
        "failures": failures,
    }
    return cheap, large


def rarer(db, folder):
    """Calls that make files."""

    def builder():
        with tidesdb.TableBuilder(folder / "stem") as rows:
            rows.put_file(b"a", io.BytesIO(b"x" * 3000))

    def writer():
        with db.sorted_writer() as rows:
            rows.put_many({b"a": b"1"})
            rows.discard()

    return {"builder": builder, "writer": writer, "backups": lambda: tidesdb.Backups(folder / "backups").list(), "figures": lambda: tidesdb.writer_figures(db.path)}


def grown(call, number):
    for _ in range(number // 2):
        call()
    before = resident()
    for _ in range(number // 2):
        call()
    return resident() - before


@pytest.fixture
def made(path):
    with tidesdb.open(path, sync="none", memory_limit=64 << 20) as db:
        db.update({b"%d" % n: b"v" for n in range(10, 30)})
        yield db


def test_calls_that_are_repeated_take_no_more_memory(made, tmp_path):
    cheap, large = calls(made, tmp_path)
    leaks = {}
    for some, number in ((cheap, CALLS), (large, LARGE_CALLS), (rarer(made, tmp_path), FILE_CALLS)):
        for name, call in some.items():
            if (growth := grown(call, number)) > GROWTH and (growth := grown(call, number)) > GROWTH:
                leaks[name] = growth
    assert not leaks
