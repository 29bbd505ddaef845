"""`tidesdb.aio` has each call that may wait, and it does what the call does."""

import asyncio
import io
import math
import os
import threading

import pytest

import tidesdb
import tidesdb.aio as aio

# What does not wait, or is said in another way.
OF_FAMILY = {
    "estimate",  # these look at what is in memory: `sync_api` has them
    "family_stats",
    "id",
    "key_count_max",
    "options",
    "tree",
    "mapping",  # the interface of a mapping is not to be awaited
    "set_compaction_filter",
    "table_builder",  # `aio.table_builder`
    "update",  # put_many
    "value_reader",  # files: asyncio.to_thread
    "value_writer",
}
OF_DB = {
    "changed_settings",
    "families",
    "has_family",
    "health",
    "memory_limit",
    "metrics_text",
    "path",
    "recovery_report",
    "set_compaction_rate",
    "set_slow_operation",
    "set_slow_sync",
}
OF_TRANSACTION = {"bytes", "is_open", "isolation", "reads_tracked", "reset", "seq", "value_reader", "value_writer"}
PAIRS = [
    (tidesdb.Family, aio.AsyncFamily, OF_FAMILY),
    (tidesdb.Db, aio.AsyncDb, OF_DB),
    (tidesdb.Transaction, aio.AsyncTransaction, OF_TRANSACTION),
    (tidesdb.Snapshot, aio.AsyncSnapshot, {"close", "value_reader"}),
    (tidesdb.Batch, aio.AsyncBatch, {"bytes", "commit"}),
    (tidesdb.Cursor, aio.AsyncCursor, {"close", "seq", "version_seq"}),
    (tidesdb.SortedRows, aio.AsyncSortedRows, set()),
    (tidesdb.SortedWriter, aio.AsyncSortedRows, set()),
    (tidesdb.TableBuilder, aio.AsyncSortedRows, set()),
    (tidesdb.Reader, aio.AsyncReader, {"path"}),
    (tidesdb.Backups, aio.AsyncBackups, {"path"}),
    (tidesdb, aio, {"profile"}),
]


@pytest.mark.parametrize("of, awaited, left_out", PAIRS, ids=lambda one: getattr(one, "__name__", ""))
def test_each_call_that_may_wait_is_there(of, awaited, left_out):
    def names(one):
        return {name for name, call in vars(one).items() if not name.startswith("_") and not isinstance(call, type)}

    if of is tidesdb:
        has, wanted = set(aio.__all__), {name for name in tidesdb.__all__ if name[0].islower()}
    else:
        has = set().union(*(names(base) for base in awaited.__mro__))
        wanted = names(of)
    assert wanted - has == left_out
    assert all(call.__doc__ for name, call in vars(awaited).items() if callable(call) and not name.startswith("_"))


def run(body, path, **options):
    async def main():
        async with aio.open(path, **options) as db:
            return await asyncio.wait_for(body(db), 120)

    return asyncio.run(main())


def test_reads_and_writes(path):
    async def body(db):
        await db.put_many({b"%02d" % n: b"v%d" % n for n in range(20)})
        assert await db.multi_contains([b"01", b"99"]) == [True, False] and await db.get_part(b"01", 1) == b"1"
        assert await db.expiry(b"01") == math.inf and await db.replace(b"01", b"new") == b"v1"
        assert await db.setdefault(b"01", b"x") == b"new" and await db.modify(b"01", lambda value: value + b"!") == b"new!"
        assert await db.pop_last() == (b"19", b"v19") and await db.single_delete(b"18") > 0
        async with await db.cursor(b"03", b"06") as cursor:
            assert await cursor.first() and cursor.key == b"03" and await cursor.value() == b"v3"
            assert await cursor.next() and await cursor.item() == (b"04", b"v4") and await cursor.prev() and cursor.valid
            assert await cursor.last() and cursor.key == b"05" and await cursor.seek(b"04") and await cursor.seek_for_prev(b"99")
            assert cursor.expires == math.inf
            await cursor.refresh()
        assert (await db.explain(b"01"))["outcome"] == "found" and len((await db.explain_range(rows=2))["keys"]) == 2
        await db.compact(b"0", b"1")
        await db.change_options(value_threshold=1000)
        await db.change_options_until_close(value_threshold=2000)
        await db.clear()
        assert await db.count() == 0 and isinstance(await db.diagnose(), list) and (await db.verify())["ok"]
        await db.cancel_compactions()

    run(body, path)


def test_snapshots_and_transactions(path):
    async def body(db):
        other = await db.create_family("other")
        await db.rename_family("other", "renamed")
        await other.put(b"x", b"1")
        clone = await db.clone_family("renamed", "clone")
        assert await clone.get(b"x") == b"1"
        seq = await db.put(b"a", b"1")
        async with await db.snapshot() as snapshot, db.transaction() as tx:
            await db.put(b"b", b"2")
            assert snapshot.seq >= seq and await snapshot.count() == 1 and await snapshot.get(b"b", b"?") == b"?"
            assert await snapshot.multi_get([b"a", b"b"]) == [b"1", None] and await snapshot.contains(b"a")
            assert await snapshot.multi_contains([b"x"], family=other) == [True] and await snapshot.get(b"x", family="renamed") == b"1"
            assert await snapshot.get_part(b"a") == b"1" and await snapshot.expiry(b"a") == math.inf
            assert await snapshot.first() == await snapshot.last() == (b"a", b"1")
            assert [row async for row in snapshot.items()] == [(b"a", b"1")]
            assert [key async for key in snapshot.keys()] == [b"a"] and [value async for value in snapshot.values(family=other)] == [b"1"]
            assert (await snapshot.explain(b"b"))["outcome"] != "found" and (await snapshot.explain_range())["keys"] == [b"a"]
            async with await snapshot.cursor() as cursor:
                assert await cursor.last() and cursor.key == b"a"
            point = await tx.savepoint()
            await tx.put_many({b"t1": b"1", b"t2": b"2", b"t3": b"3"})
            assert await tx.count() >= 4 and await tx.contains(b"t1") and await tx.multi_contains([b"t2", b"t9"]) == [True, False]
            assert await tx.pop(b"t1") == b"1" and await tx.replace(b"t2", b"x") == b"2" and await tx.get_part(b"t2") == b"x"
            assert await tx.expiry(b"t2") == math.inf and await tx.last() == (b"t3", b"3") and await tx.first() == (b"a", b"1")
            async with await tx.cursor(prefix=b"t") as cursor:
                assert await cursor.first() and cursor.key == b"t2"
            assert [key async for key in tx.keys(prefix=b"t")] == [b"t2", b"t3"]
            assert [value async for value in tx.values(prefix=b"t")] == [b"x", b"3"]
            inner = await tx.savepoint()
            await tx.single_delete(b"t2")
            await tx.release(inner)
            await tx.delete_range(b"t3", None)
            await tx.delete_prefix(b"none")
            await tx.rollback_to(point)
            await tx.put(b"done", b"1")
        assert await db.contains(b"done") and not await db.contains(b"t2")
        first, second = db.batch(), db.batch()
        first.put(b"p", b"1")
        second.put(b"q", b"2")
        first.append(second)
        await db.commit(first)
        assert await db.multi_get([b"p", b"q"]) == [b"1", b"2"]
        with pytest.raises(tidesdb.Error):
            await db.snapshot_at(1 << 59)

    run(body, path)


def test_ingest_backups_and_readers(path, tmp_path):
    async def body(db):
        assert (await db.ingest_sorted((b"%03d" % n, b"v") for n in range(500)))["rows"] == 500
        async with await db.sorted_writer() as rows:
            await rows.put(b"a", b"1")
            await rows.put_many([(b"b", b"2")])
            await rows.put_file(b"c", io.BytesIO(b"3" * 100))
            await rows.delete(b"d")
            await rows.delete_range(b"000", b"100")
            with pytest.raises(TypeError):
                await rows.finish()
        assert await db.count() == 403
        with pytest.raises(LookupError):
            async with await db.sorted_writer() as rows:
                await rows.put(b"x", b"1")
                raise LookupError
        async with await aio.table_builder(tmp_path / "stem", merge_operator="add") as rows:
            await rows.merge(b"n", 7)
            with pytest.raises(TypeError):
                await rows.commit()
            tables = await rows.finish()
        counters = await db.create_family("counters", merge_operator="add")
        assert (await db.ingest({counters: tables}, transfer="move"))["rows"] == 1
        async with await aio.table_builder(tmp_path / "stem") as rows:
            await rows.put(b"k", b"v")
        assert not list(tmp_path.glob("stem*"))

        backups, seen = aio.AsyncBackups(tmp_path / "backups"), []
        made = await backups.create(db, prove=tmp_path / "scratch", progress=lambda *done: seen.append(done))
        assert made["proven"] and seen and await backups.list() == [made] and (await backups.verify(made["number"]))["ok"]
        await backups.restore(made["number"], tmp_path / "restored")
        assert (await backups.prove(made["number"], tmp_path / "scratch"))["proven"]
        await backups.create(db.sync_api)
        assert (await backups.prune(keep_last=1))["generations"] == []  # the other one was proven
        await backups.delete(made["number"])
        with pytest.raises(tidesdb.Exists):
            await backups.repair()
        await db.put_many((b"more%d" % n, bytes(1000)) for n in range(20_000))
        task = asyncio.create_task(backups.create(db, bytes_per_second=1 << 20))
        await asyncio.sleep(0.3)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while True:  # the thread ends with the next piece
            try:
                await backups.create(db, bytes_per_second=0)
                break
            except tidesdb.Busy:
                await asyncio.sleep(0.05)
        assert len(await backups.list()) == 2
        last = (await backups.list())[-1]["number"]
        seen.clear()  # one that is closed and not cancelled ends, too
        closed = backups.verify(last, bytes_per_second=1000, progress=lambda *done: seen.append(done))
        closed.send(None)
        await asyncio.sleep(0.5)
        closed.close()
        await asyncio.sleep(0.5)
        calls = len(seen)
        await asyncio.sleep(0.5)
        assert 0 < calls == len(seen)
        for call in (
            lambda: backups.verify(last, bytes_per_second=1 << 20),
            lambda: backups.restore(last, tmp_path / "stopped", bytes_per_second=1 << 20),
            lambda: backups.prove(last, tmp_path / "stopped", bytes_per_second=1 << 20),
        ):
            task = asyncio.create_task(call())
            await asyncio.sleep(0.3)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while list(tmp_path.glob("stopped/*")):  # as above
                await asyncio.sleep(0.05)
        await db.backup(tmp_path / "copy")

        async with await aio.open_reader(path) as reader:
            before = reader.view()
            await db.put(b"later", b"1")
            after = await reader.refresh()
            assert not await before.contains(b"later") and await after.get(b"later") == b"1" and reader.seq > 0
            while await aio.writer_figures(path) is None:
                await asyncio.sleep(0.02)
            assert (await reader.writer_figures())["process"] == os.getpid()
            await before.close()
            await after.close()
        assert reader.closed
        assert len(await aio.writer_history(path)) == 2

    run(body, path)


class Slow:
    """Pairs whose walk stops after the second one until it may go on."""

    def __init__(self):
        self.is_there, self.may_go = threading.Event(), threading.Event()

    def __iter__(self):
        yield from ((b"a", b"1"), (b"b", b"2"))
        self.is_there.set()
        self.may_go.wait(60)
        yield b"c", b"3"


async def adding_in_part(rows):
    """Begins a `put_many`, which has added a part when this returns: what it walks, and its task."""
    slow = Slow()
    adding = asyncio.create_task(rows.put_many(slow))
    await asyncio.to_thread(slow.is_there.wait, 60)
    return slow, adding


def test_rows_of_a_call_that_was_cancelled_are_not_committed_in_part(path, tmp_path):
    async def body(db):
        rows = await db.sorted_writer()
        slow, adding = await adding_in_part(rows)
        with pytest.raises(tidesdb.Busy):  # another task is at it
            await rows.commit()
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        for call in (rows.commit, lambda: rows.put(b"d", b"4"), lambda: rows.delete_range(b"a", b"b")):
            with pytest.raises(tidesdb.Closed, match="discard"):
                await call()
        slow.may_go.set()
        await rows.discard()
        assert await db.count() == 0

        with pytest.raises(tidesdb.Closed, match="discard"):  # the block swallows the exception, and ends as if all were well
            async with await db.sorted_writer() as rows:
                slow, adding = await adding_in_part(rows)
                adding.cancel()
                await asyncio.wait([adding])
                slow.may_go.set()
        with pytest.raises(LookupError):
            async with await db.sorted_writer() as rows:
                slow, adding = await adding_in_part(rows)
                adding.cancel()
                slow.may_go.set()
                await asyncio.wait([adding])
                raise LookupError
        async with await aio.table_builder(tmp_path / "stem") as rows:
            slow, adding = await adding_in_part(rows)
            adding.cancel()
            slow.may_go.set()
            await asyncio.wait([adding])
            with pytest.raises(tidesdb.Closed, match="discard"):
                await rows.finish()
            await rows.discard()
        assert await db.count() == 0 and not list(tmp_path.glob("stem*"))
        async with await db.sorted_writer() as rows:
            await rows.put(b"a", b"1")
        assert await db.count() == 1

    run(body, path)


def test_after_the_close(path):
    async def main():
        db = await aio.open(path)
        await db.put(b"a", b"1")
        snapshot, cursor, rows = await db.snapshot(), await db.cursor(), await db.sorted_writer()
        await db.close()
        for call in (snapshot.count, cursor.first, lambda: rows.put(b"b", b"1"), rows.commit, db.snapshot, lambda: db.ingest_sorted([])):
            with pytest.raises(tidesdb.Closed):
                await call()
        await snapshot.aclose()
        await cursor.aclose()
        await rows.discard()

    asyncio.run(main())
