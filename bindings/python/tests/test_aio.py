"""asyncio."""

import asyncio
import contextlib
import threading

import pytest

import tidesdb
import tidesdb.aio

MIB = 1 << 20


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


def test_a_write_that_fails_fails_alone(path):
    """The writes of all tasks were one batch: none was stored, and all raised the exception of one."""

    async def main():
        async with tidesdb.aio.open(path) as db:
            gone = await db.family_or_create("gone", merge_operator="add")
            await db.drop_family("gone")

            async def in_transaction(family, key):
                async with db.transaction() as tx:
                    await tx.put(key, b"v", family=family)

            writes = [
                db.put(b"a", b"v"),
                gone.put(b"k", b"v"),
                db.put_many({b"b": b"v"}),
                gone.put_many({b"k": b"v"}),
                gone.delete(b"k"),
                gone.delete_range(None, None),
                gone.merge(b"k", 1),
                db.merge(b"k", 1),  # there is no operator
                in_transaction(gone, b"k"),
                in_transaction(None, b"c"),
                db.put(b"d", b"v"),
            ]
            done = await asyncio.gather(*writes, return_exceptions=True)
            failed = [n for n, result in enumerate(done) if isinstance(result, BaseException)]
            assert failed == [1, 3, 4, 5, 6, 7, 8]
            assert all(isinstance(done[n], tidesdb.NotFound) for n in (1, 3, 4, 5, 6, 8)), done
            assert isinstance(done[7], tidesdb.InvalidArgument)
            assert [key async for key in db.keys()] == [b"a", b"b", b"c", b"d"]

    asyncio.run(main())


def test_writes_that_wait_need_only_their_own_memory(path):
    """They shared one batch, which reached its part of the limit: most of them raised `MemoryLimit`."""

    async def main():
        async with tidesdb.aio.open(path, memory_limit=32 << 20) as db:
            writes = [db.put(b"%04d" % n, bytes([n % 251]) * 20_000) for n in range(3000)]
            writes.append(db.put_many((b"x%d" % n, b"x" * MIB) for n in range(30)))  # alone more than fits
            writes.append(db.put(b"y", b"y"))
            done = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(result) for result in done] == [int] * 3000 + [tidesdb.MemoryLimit, int]
            assert await db.count() == 3001 and await db.get(b"0777") == bytes([777 % 251]) * 20_000

    asyncio.run(main())


def test_a_merge_operator_that_refuses_fails_its_own_task(path):
    def check(operand):
        if operand == b"exit":
            raise SystemExit("refused")
        assert operand != b"bad"

    operator = tidesdb.MergeOperator("cat", lambda older, newer: older + newer, check)

    async def main():
        async with tidesdb.aio.open(path, merge_operator=operator) as db:
            writes = [db.merge(b"k", operand) for operand in (b"1", b"bad", b"2", b"exit", b"3")]
            done = []
            for write in writes:
                try:
                    done.append(await write)
                except (SystemExit, tidesdb.InvalidArgument) as error:
                    done.append(type(error))
            assert done[1::2] == [tidesdb.InvalidArgument, SystemExit]
            assert await db.get(b"k") == b"123"

    asyncio.run(main())


def test_a_batch_takes_families_by_name_and_handle(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            users = await db.family_or_create("users", merge_operator="add")
            async with db.batch() as batch:
                batch.put(b"a", b"1")
                batch[b"b"] = b"2"
                batch.put_many({b"c": b"3", b"d": b"4"}, family="users")
                batch.put(b"e", b"5", family=users.sync_api)
                batch.merge(b"n", 7, family=users)
                batch.delete_range(b"d", b"e", family=users)
                del batch[b"b"]
                batch.single_delete(b"x")
                batch.delete_prefix(b"zz")
                assert len(batch) == 9 and batch
                with pytest.raises(tidesdb.NotFound):
                    batch.put(b"k", b"v", family="nobody")
                with pytest.raises(tidesdb.InvalidArgument):
                    batch.put(b"", b"v")
            assert len(batch) == 0
            assert [key async for key in db.keys()] == [b"a"]
            assert [key async for key in users.keys()] == [b"c", b"e", b"n"]
            batch = db.batch()
            batch.put(b"f", b"6")
            assert await db.commit(batch) > 0
            own = db.sync_api.batch()
            own.put(b"g", b"7")
            assert await db.commit(own) > 0 and await db.count() == 3

    asyncio.run(main())


def test_an_iterator_ends_with_aclose(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            await db.put_many({b"%03d" % n: b"v" for n in range(500)})
            async with contextlib.aclosing(db.keys()) as rows:
                assert await anext(rows) == b"000" and await rows.fetch(2) == [b"001", b"002"]
            assert await rows.fetch(1) == []
            with pytest.raises(StopAsyncIteration):
                await anext(rows)
            await rows.aclose()
            rows = db.keys()
            step = asyncio.ensure_future(anext(rows))
            await asyncio.sleep(0)
            await rows.aclose()  # while a thread fetches
            with pytest.raises(StopAsyncIteration):
                await step
            assert rows._rows is None

    asyncio.run(main())


def test_a_failed_step_is_reported_once_and_loses_no_row(path):
    refused = set()

    def merge(older, newer):
        if newer in refused:
            raise ValueError("refused")
        return older + newer

    operator = tidesdb.MergeOperator("cat", merge)

    async def main():
        async with tidesdb.aio.open(path, merge_operator=operator) as db:
            rows = [b"%03d" % n for n in range(300)]
            await db.put_many({row: b"v" for row in rows})
            await asyncio.gather(*(db.merge(row, row) for row in rows))
            refused.update({b"100", b"200"})
            found, failures, it = [], 0, db.items()
            while True:
                try:
                    found.append((await anext(it))[0])
                except tidesdb.MergeFailed:
                    failures += 1
                except StopAsyncIteration:
                    break
            assert failures == 2 and found == [row for row in rows if row not in refused]

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


@pytest.mark.parametrize("is_own", [False, True])
def test_a_batch_whose_commit_fails_is_kept(path, is_own):
    async def main():
        async with tidesdb.aio.open(path) as db:
            users = await db.create_family("users")
            batch = db.sync_api.batch() if is_own else db.batch()
            batch.put(b"k", b"v")
            batch.put(b"u", b"v", family=users.sync_api if is_own else users)
            await db.drop_family("users")
            with pytest.raises(tidesdb.NotFound):
                await db.commit(batch)
            assert len(batch) == 2
            batch.put(b"l", b"v")
            with pytest.raises(tidesdb.NotFound):
                await db.commit(batch)
            assert len(batch) == 3 and await db.count() == 0
            batch.clear()
            batch.put(b"k", b"v")
            assert await db.commit(batch) > 0 and len(batch) == 0 and await db.get(b"k") == b"v"

    asyncio.run(main())


def test_a_batch_of_another_database_fails_alone(path):
    async def main():
        async with tidesdb.aio.open(path) as db, tidesdb.aio.open(path.parent / "other") as other:
            for alien in (other.batch(), other.sync_api.batch()):
                alien.put(b"k", b"v")
                before = [db.put(b"a%d" % n, b"1") for n in range(20)]
                after = [db.put(b"b%d" % n, b"1") for n in range(20)]
                results = await asyncio.gather(*before, db.commit(alien), *after, return_exceptions=True)
                assert isinstance(results.pop(20), tidesdb.InvalidArgument)
                assert all(isinstance(seq, int) for seq in results)
                with pytest.raises(tidesdb.InvalidArgument):
                    await db.commit(alien)
            assert await other.count() == 0 and await db.count() == 40

    asyncio.run(main())


def test_a_batch_may_be_durable_where_others_are_not(path):
    async def main():
        async with tidesdb.aio.open(path, sync="none") as db:
            batch = db.sync_api.batch(sync="full")
            batch.put(b"paid", b"1")
            seq = await db.commit(batch)
            assert (await db.stats())["durable_end"] > seq

    asyncio.run(main())


def test_a_sync_each_second_is_none_for_each_write(path):
    async def main():
        async with tidesdb.aio.open(path, sync=1) as db:
            waited = 0
            for n in range(50):
                seq = await db.put(b"%d" % n, b"v")
                waited += (await db.stats())["durable_end"] > seq
            assert waited < 50

    asyncio.run(main())


def test_a_sync_and_a_close_do_not_wait_for_writes_that_come_later(path, monkeypatch):
    groups = threading.Semaphore(0)
    write_group = tidesdb._engine.write_group

    def held(*args):
        assert groups.acquire(timeout=60)
        return write_group(*args)

    monkeypatch.setattr(tidesdb._engine, "write_group", held)

    async def main():
        db = await tidesdb.aio.open(path)
        first = db.put(b"a", b"1")
        syncing = asyncio.create_task(db.sync())
        await asyncio.sleep(0.1)
        second = db.put(b"b", b"1")  # in a group of its own
        groups.release()
        assert await first < await asyncio.wait_for(syncing, 20)
        closing = asyncio.create_task(db.close())
        await asyncio.sleep(0.1)
        with pytest.raises(tidesdb.Closed):
            await asyncio.wait_for(db.put(b"c", b"1"), 5)
        groups.release()
        await asyncio.wait_for(closing, 20)
        assert await second > 0

    asyncio.run(main())


def test_batches_that_come_back_are_in_order(path, monkeypatch):
    refused, write_group = True, tidesdb._engine.write_group

    def busy(database, writes, sync):
        return [tidesdb.Busy("later") for _ in writes] if refused else write_group(database, writes, sync)

    monkeypatch.setattr(tidesdb._engine, "write_group", busy)

    async def main():
        nonlocal refused
        async with tidesdb.aio.open(path) as db:
            batch = db.batch()
            handed = []
            for value in (b"1", b"2"):
                batch.put(b"k", value)
                handed.append(db.commit(batch))
            batch.put(b"l", b"3")
            results = await asyncio.gather(*handed, return_exceptions=True)
            assert [type(result) for result in results] == [tidesdb.Busy] * 2 and len(batch) == 3
            with pytest.raises(tidesdb.Busy):
                await db.commit(batch)
            # What is discarded meanwhile does not come back.
            other = db.batch()
            other.put(b"x", b"1")
            discarded = db.commit(other)
            other.clear()
            other.put(b"y", b"1")
            with pytest.raises(tidesdb.Busy):
                await discarded
            refused = False
            assert await db.commit(batch) > 0 and await db.commit(other) > 0
            assert [row async for row in db.items()] == [(b"k", b"2"), (b"l", b"3"), (b"y", b"1")]

    asyncio.run(main())
