"""asyncio."""

import asyncio

import pytest

import tidesdb
import tidesdb.aio


def test_the_calls(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            assert await db.put(b"a", b"1") > 0
            await asyncio.gather(db.put(b"b", b"2"), db.put_many({b"c": b"3", b"d": b"4"}), db.delete(b"x"))
            assert await db.get(b"a") == b"1" and await db.get(b"x") is None and await db.get(b"x", b"?") == b"?"
            assert await db.multi_get([b"a", b"x"]) == [b"1", None] and await db.contains(b"a")
            assert [row async for row in db.items(b"b", b"d")] == [(b"b", b"2"), (b"c", b"3")]
            assert [key async for key in db.keys(reverse=True)] == [b"d", b"c", b"b", b"a"]
            assert await db.values().fetch(2) == [b"1", b"2"]
            assert await db.first() == (b"a", b"1") and await db.last() == (b"d", b"4") and await db.count() == 4
            await db.delete_range(b"c", None)
            assert await db.pop(b"b") == b"2" and await db.pop_first() == (b"a", b"1")
            users = await db.family_or_create("users", merge_operator="add")
            await asyncio.gather(*(users.merge(b"n", 1) for _ in range(100)))
            assert int.from_bytes(await users.get(b"n"), "little") == 100
            assert (await db.family("users")).name == "users"
            assert (await db.stats())["families"]["users"]
            await db.sync()
            await db.flush()
            await db.compact()
            await db.checkpoint(path.parent / "copy")
        assert db.closed

    asyncio.run(main())
    with tidesdb.open(path) as db:
        assert db.recovery_report()["clean"]


def test_many_tasks_share_syncs(path):
    async def main():
        db = await tidesdb.aio.open(path)
        before = (await db.stats())["times"]["syncs"]["count"]
        await asyncio.gather(*(db.put(b"%05d" % n, b"v") for n in range(5000)))
        assert (await db.stats())["times"]["syncs"]["count"] - before < 100
        assert await db.count() == 5000

        async def one(n):
            await db.put(b"x%05d" % n, b"v")
            assert await db.get(b"x%05d" % n) == b"v"

        await asyncio.gather(*(one(n) for n in range(1000)))
        stats = (await db.stats())["times"]
        assert stats["syncs"]["count"] - before < 300
        await db.close()
        await db.close()

    asyncio.run(main())


def test_a_commit_is_durable_when_its_await_returns(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            for _ in range(20):
                seqs = await asyncio.gather(*(db.put(b"k", b"v") for _ in range(10)))
                assert db.sync_api.stats()["durable_end"] > max(seqs)
                async with db.batch() as batch:
                    batch.put(b"x", b"y")
                stats = db.sync_api.stats()
                assert stats["durable_end"] > stats["visible_seq"]
                async with db.transaction() as tx:
                    await tx.put(b"x", b"z")
                stats = db.sync_api.stats()
                assert stats["durable_end"] > stats["visible_seq"]

    asyncio.run(main())


def test_the_order_is_that_of_the_calls(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            for n in range(50):
                waiting = [db.put(b"k", b"1"), db.put_many({b"k": b"2"}), db.put(b"k", b"3"), db.delete(b"k")]
                waiting.append(db.put(b"k", b"%d" % n))
                seqs = await asyncio.gather(*waiting)
                assert seqs == sorted(seqs) and await db.get(b"k") == b"%d" % n

    asyncio.run(main())


def test_a_wrong_argument_fails_its_own_call_only(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            good = db.put(b"a", b"1")
            with pytest.raises(tidesdb.InvalidArgument):
                db.put(b"x" * 100_000, b"")
            await good
            reads = await asyncio.gather(db.get(b"a"), db.get("text"), db.get(b"a"), return_exceptions=True)
            assert reads[0] == reads[2] == b"1" and isinstance(reads[1], TypeError)
            with pytest.raises(ZeroDivisionError):
                async with db.batch() as batch:
                    batch.put(b"b", b"")
                    raise ZeroDivisionError
            assert await db.get(b"b") is None

    asyncio.run(main())


def test_a_cancelled_task_does_not_harm_others(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            tasks = [asyncio.ensure_future(db.put(b"%d" % n, b"v")) for n in range(100)]
            reads = [asyncio.ensure_future(db.get(b"%d" % n)) for n in range(100)]
            await asyncio.sleep(0)
            for task in tasks[::2] + reads[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, *reads, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in done[::2])
            assert not any(isinstance(one, BaseException) for one in done[1::2])
            await db.sync()
            assert await db.count() == 100  # handed over by the call

    asyncio.run(main())


def test_transactions(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            await db.put(b"n", b"0")

            async def add(tx):
                value = int(await tx.get(b"n"))
                await asyncio.sleep(0)
                await tx.put(b"n", b"%d" % (value + 1))
                return value

            results = await asyncio.gather(*(db.transact(add) for _ in range(20)))
            assert sorted(results) == list(range(20)) and await db.get(b"n") == b"20"
            with pytest.raises(tidesdb.Conflict):
                async with db.transaction() as tx:
                    await tx.get(b"n")
                    await db.put(b"n", b"x")
                    await tx.put(b"m", b"y")
            with pytest.raises(ZeroDivisionError):
                async with db.transaction() as tx:
                    await tx.put(b"m", b"y")
                    assert [row async for row in tx.items(prefix=b"m")] == [(b"m", b"y")]
                    raise ZeroDivisionError
            assert await db.get(b"m") is None

    asyncio.run(main())


def test_after_close(path):
    async def main():
        db = await tidesdb.aio.open(path)
        rows = db.keys()
        last = db.put(b"a", b"1")
        await db.close()
        assert await last > 0  # what was handed over is committed
        for call in (lambda: db.put(b"a", b""), lambda: db.get(b"a"), lambda: db.sync(), lambda: rows.fetch(1)):
            with pytest.raises((tidesdb.Closed, RuntimeError)):
                await call()

    asyncio.run(main())


def test_a_failed_open_raises(tmp_path):
    async def main():
        with pytest.raises(tidesdb.NotFound):
            async with tidesdb.aio.open(tmp_path / "db", create_if_missing=False):
                pass

    asyncio.run(main())


def test_the_loop_runs_while_the_engine_works(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            await db.put_many((b"%06d" % n, b"x" * 100) for n in range(100_000))
            ticks, done = 0, asyncio.ensure_future(db.compact())
            while not done.done():
                ticks += 1
                await asyncio.sleep(0.001)
            assert ticks > 3

    asyncio.run(main())
