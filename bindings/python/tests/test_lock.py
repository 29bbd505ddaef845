"""Other threads run Python while a long value is copied or written.

The interpreter never takes the lock away from a thread in these tests, so another thread runs only if the call lets go of it.
"""

import asyncio
import sys
import threading
import time

import pytest

import tidesdb
import tidesdb.aio

MIB = 1 << 20
# Long enough to be written while other threads run, and to be on the disk before the commit.
LONG = bytes(range(256)) * (64 * MIB // 256)


class Beside:
    """Another thread, which notes what `look` returns each time that it runs."""

    def __init__(self, look=lambda: None):
        self.look, self.seen, self.is_over = look, [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.is_over.is_set():
            self.seen.append(self.look())
            time.sleep(0.0002)

    def __enter__(self):
        self.thread.start()
        while not self.seen:
            time.sleep(0.001)
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


# Calls on a batch or a transaction that only change memory: another thread that runs during one of them was let in by it.
IN_MEMORY = {
    "put": lambda one, value: one.put(b"k", value),
    "put ttl": lambda one, value: one.put(b"k", value, ttl=60),
    "[k]": lambda one, value: one.__setitem__(b"k", value),
    "put_many of a list": lambda one, value: one.put_many([(b"k", value), (b"l", b"")]),
    "put_many of a dict": lambda one, value: one.put_many({b"k": value}),
    "put_many of short rows": lambda one, value: one.put_many({b"%06d" % n: value[:64] for n in range(50_000)}),
}


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("call", IN_MEMORY)
@pytest.mark.parametrize("make", ["batch", "transaction"])
def test_a_call_in_memory_lets_another_thread_run(db, no_switches, make, call, kind):
    value = kind(LONG[: 7 * MIB])
    with Beside() as beside:
        for _ in range(30):
            one = getattr(db, make)()
            before = len(beside.seen)
            IN_MEMORY[call](one, value)
            if len(beside.seen) > before:
                return
    pytest.fail("no other thread ran")


WRITES = {
    "put": lambda db, value: db.put(b"k", value),
    "db[k]": lambda db, value: db.__setitem__(b"k", value),
    "put ttl": lambda db, value: db.put(b"k", value, ttl=60),
    "put sync": lambda db, value: db.put(b"k", value, sync="none"),
    "put_many": lambda db, value: db.put_many({b"k": value}),
    "update": lambda db, value: db.update([(b"k", value)]),
    "replace": lambda db, value: db.replace(b"k", value),
    "setdefault": lambda db, value: db.setdefault(b"k", value),
    "value_writer": lambda db, value: write_file(db, value),
}


def write_file(db, value):
    with db.value_writer(b"k") as file:
        file.write(value)


def stored(path):
    """Bytes of the value logs."""
    return sum(file.stat().st_blocks for file in path.rglob("*.vlog")) * 512


@pytest.mark.skipif(sys.platform == "win32", reason="no st_blocks")
@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("call", WRITES)
def test_another_thread_sees_a_long_value_grow(path, no_switches, call, kind):
    """It could run before and after, while the value had all of its length or none."""
    with tidesdb.open(path, compression=None) as db, Beside(lambda: stored(path)) as beside:
        WRITES[call](db, kind(LONG))
        assert db[b"k"] == LONG
    assert len({size for size in beside.seen if 0 < size < len(LONG)}) > 3


ASYNC = {
    "put": lambda db, value: db.put(b"k", value),
    "put ttl": lambda db, value: db.put(b"k", value, ttl=60),
    "put_many": lambda db, value: db.put_many({b"k": value}),
    "batch": lambda db, value: in_batch(db, value),
    "tx.put": lambda db, value: in_transaction(db, value),
}


async def in_batch(db, value):
    async with db.batch() as batch:
        batch.put(b"k", value)


async def in_transaction(db, value):
    async with db.transaction() as tx:
        await tx.put(b"k", value)


@pytest.mark.skipif(sys.platform == "win32", reason="no st_blocks")
@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("call", ASYNC)
def test_the_event_loop_sees_a_long_value_grow(path, no_switches, call, kind):
    async def main():
        seen = set()
        async with tidesdb.aio.open(path, compression=None) as db:
            value = kind(LONG)
            done = asyncio.ensure_future(ASYNC[call](db, value))
            while not done.done():
                seen.add(stored(path))
                await asyncio.sleep(0.0002)
            await done
            assert await db.get(b"k") == LONG
        return seen

    assert len({size for size in asyncio.run(main()) if 0 < size < len(LONG)}) > 3


def test_a_bytearray_cannot_be_resized_while_it_is_written(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            value = bytearray(LONG)
            done = db.put(b"k", value)
            with pytest.raises(BufferError):
                value.clear()
            await done
            value.clear()
            assert await db.get(b"k") == LONG

    asyncio.run(main())
