"""A task of asyncio is cancelled at each point where it waits."""

import asyncio

import pytest

import tidesdb
import tidesdb.aio


class At:
    """Awaits `coroutine` and cancels it while it waits for the `n`-th time: before what it waits for is there, or just after."""

    def __init__(self, coroutine, n, late):
        self.coroutine, self.n, self.late = coroutine, n, late

    def __await__(self):
        steps, waits = self.coroutine.__await__(), 0
        resume, value = steps.send, None
        while True:
            try:
                waited = resume(value)
            except StopIteration as end:
                return end.value
            waits += 1
            resume, value = steps.send, None
            if waits == self.n:
                if waited is not None and self.late:
                    while not waited.done():
                        yield
                elif waited is not None:
                    waited.cancel()
                if waited is not None:
                    waited._asyncio_future_blocking = False  # as a task does before it waits
                yield
                resume, value = steps.throw, asyncio.CancelledError()
                continue
            try:
                yield waited
            except BaseException as error:
                resume, value = steps.throw, error


async def at_each_wait(make, late):
    """Awaits `make()` again and again, cancelled at its first wait, its second, and so on. Yields after each."""
    for n in range(1, 100):
        try:
            await At(make(), n, late)
        except asyncio.CancelledError:
            yield True
        else:
            yield False
            return
    raise AssertionError("it waits without end")


ROWS = {b"%03d" % n: b"v%d" % n for n in range(100)}


async def batch(db):
    async with db.batch() as batch:
        batch.put(b"b", b"1")


async def transaction(db):
    async with db.transaction() as tx:
        await tx.get(b"001")
        await tx.put(b"t", b"1")
        await tx.merge(b"m", b"1")
        await tx.multi_get([b"001"])


async def rolled_back(db):
    try:
        async with db.transaction() as tx:
            await tx.get(b"001")
            await tx.put(b"never", b"1")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


async def walk(db):
    return [row async for row in db.items()]


async def close_rows(db):
    rows = db.items()
    await anext(rows)
    await rows.aclose()


CALLS = {
    "get": lambda db: db.get(b"001"),
    "multi_get": lambda db: db.multi_get([b"001", b"x"]),
    "contains": lambda db: db.contains(b"001"),
    "put": lambda db: awaited(db.put(b"k", b"v")),
    "put_many": lambda db: awaited(db.put_many({b"k": b"v"})),
    "delete": lambda db: awaited(db.delete(b"k")),
    "delete_range": lambda db: awaited(db.delete_range(b"k", b"l")),
    "merge": lambda db: awaited(db.merge(b"m", b"1")),
    "pop": lambda db: db.pop(b"k"),
    "first": lambda db: db.first(),
    "compare_and_swap": lambda db: db.compare_and_swap(b"k", None, b"v"),
    "count": lambda db: db.count(),
    "walk": walk,
    "fetch": lambda db: db.items().fetch(50),
    "aclose": close_rows,
    "batch": batch,
    "transaction": transaction,
    "rolled back": rolled_back,
    "transact": lambda db: db.transact(lambda tx: tx.put(b"t", b"2")),
    "sync": lambda db: db.sync(),
    "flush": lambda db: db.flush(),
    "stats": lambda db: db.stats(),
    "family_or_create": lambda db: db.family_or_create("f"),
}


async def awaited(future):
    return await future


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_the_database_goes_on_after_a_cancelled_call(path, call, late, recwarn):
    async def main():
        async with tidesdb.aio.open(path, merge_operator=("append", "")) as db:
            await db.put_many(ROWS)
            waits = [cancelled async for cancelled in at_each_wait(lambda: CALLS[call](db), late)]
            assert waits[-1] is False and len(waits) > 1
            assert await db.put(b"after", b"1") > 0 and await db.get(b"after") == b"1"
            await db.transact(lambda tx: tx.put(b"after", b"2"))
            assert dict(await db.items(b"000", b"999").fetch(1000)) == ROWS
            assert await db.get(b"never") is None
        assert db.closed
        # Nothing of a cancelled call has kept the database open or locked.
        with tidesdb.open(path, merge_operator=("append", "")) as again:
            assert again[b"after"] == b"2"

    asyncio.run(main())


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_cancelled_commit_is_made(path, late):
    """A transaction whose commit was cancelled was neither committed nor rolled back."""

    async def main():
        async with tidesdb.aio.open(path) as db:
            number = 0

            async def write():
                nonlocal number
                number += 1
                tx = transactions[number] = db.transaction()
                async with tx:
                    await tx.put(b"%d" % number, b"v")

            transactions = {}
            async for _ in at_each_wait(write, late):
                pass
            assert len(transactions) > 1
            await db.sync()
            assert await db.count() == len(transactions)
            assert not any(tx._open.is_open for tx in transactions.values())

    asyncio.run(main())


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [lambda rows: anext(rows, None), lambda rows: rows.fetch(7)], ids=["next", "fetch"])
def test_an_iterator_yields_each_row_once_when_steps_are_cancelled(path, step, late):
    """Rows that a thread had fetched for a cancelled step were dropped: 136 of 200."""

    async def main():
        async with tidesdb.aio.open(path) as db:
            await db.put_many(ROWS)
            rows, seen, cancelled = db.items(), [], 0
            while True:
                for n in (1, 1, 2, None):  # cancelled more than once, then not
                    try:
                        got = await (step(rows) if n is None else At(step(rows), n, late))
                    except asyncio.CancelledError:
                        cancelled += 1
                        continue
                    seen += got if isinstance(got, list) else [got] if got else []
                    if not got:
                        break
                if not got:
                    break
            assert seen == list(ROWS.items()) and cancelled > 1

    asyncio.run(main())


def test_an_iterator_with_a_timeout_for_each_step_yields_all_rows(path):
    async def main():
        async with tidesdb.aio.open(path) as db:
            await db.put_many(ROWS)
            rows, seen = db.items(), []
            while len(seen) < len(ROWS):
                try:
                    seen.append(await asyncio.wait_for(anext(rows), 0.00001))
                except asyncio.TimeoutError:
                    await asyncio.sleep(0.001)
            assert seen == list(ROWS.items())

    asyncio.run(main())


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_close_goes_on_and_a_second_one_waits_for_it(path, late):
    async def main():
        for n in range(1, 100):
            db = await tidesdb.aio.open(path, sync="none")
            await db.put_many(ROWS)
            last = db.put(b"last", b"%d" % n)
            try:
                await At(db.close(), n, late)
            except asyncio.CancelledError:
                await db.close()
            else:
                assert n > 1
                return
            assert await last > 0
            with tidesdb.open(path) as again:  # not locked
                assert again[b"last"] == b"%d" % n and again.recovery_report()["clean"]
        raise AssertionError("it waits without end")

    asyncio.run(main())


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_cancelled_open_leaves_nothing_open(path, late):
    async def open_once():
        async with tidesdb.aio.open(path) as db:
            await db.put(b"k", b"v")

    async def main():
        async for _ in at_each_wait(open_once, late):
            while True:
                try:
                    tidesdb.open(path).close()
                    break
                except tidesdb.Locked:  # the thread closes it
                    await asyncio.sleep(0.001)

    asyncio.run(main())


def test_writes_go_on_when_every_other_task_is_cancelled(path):
    """The task that committed was one of them: nothing was committed any more, and `close` did not return."""

    async def main():
        async with tidesdb.aio.open(path) as db:
            for rounds in range(3):
                first = db.put(b"a", b"%d" % rounds)
                for _ in range(rounds):
                    await asyncio.sleep(0)
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                assert await first > 0
                assert await db.put(b"b", b"2") > 0

    asyncio.run(main())
    with tidesdb.open(path) as db:
        assert list(db) == [b"a", b"b"]


def test_what_was_handed_over_is_committed_when_the_loop_has_ended(path):
    db = None

    async def main():
        nonlocal db
        db = await tidesdb.aio.open(path)
        for n in range(3000):
            db.put(b"%04d" % n, b"v")

    async def close():
        await db.close()

    asyncio.run(main())
    asyncio.run(close())
    with tidesdb.open(path) as again:
        assert again.count() == 3000
