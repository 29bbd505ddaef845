"""TidesDB for asyncio.

    import asyncio
    import tidesdb.aio

    async def main():
        async with tidesdb.aio.open("shop.db") as db:
            await db.put(b"apple", b"3")
            print(await db.get(b"apple"))
            async for key, value in db.items():
                print(key, value)

    asyncio.run(main())

The engine works in a few threads, so that the event loop never waits for the disk. Calls of many tasks share what they cost:

* Writes that wait at the same time share one sync. A write is durable when its `await` returns, if the database syncs each commit, which is the
  default. Other tasks may read it shortly before.
* Reads that tasks begin in the same round of the event loop are one call of the engine.

A write is handed over by the call, not by its `await`, and in the order of the calls. So cancelling a task does not undo its write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from os import PathLike
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Generator, Generic, Iterable, TypeVar

import tidesdb

from . import _tidesdb

if TYPE_CHECKING:
    from types import TracebackType

    from . import Buffer, Expires, Items, Sync, Ttl

__all__ = ["AsyncBatch", "AsyncDb", "AsyncFamily", "AsyncRows", "AsyncTransaction", "open"]

_T = TypeVar("_T")
_R = TypeVar("_R")

# Rows that an iterator fetches at first, and at most.
_ROWS = 16
_ROWS_MAX = 1024


def open(path: str | PathLike[str], *, threads: int = 4, **options: Any) -> _Opening:
    """Opens the database in the folder `path`: `async with open(path) as db`, or `db = await open(path)`.

    `threads` is the number of threads for reads and for transactions; the other options are those of `tidesdb.open`.
    """
    return _Opening(path, threads, options)


class _Opening:
    def __init__(self, path: str | PathLike[str], threads: int, options: dict[str, Any]) -> None:
        self._path, self._threads, self._options = path, threads, options
        self._db: AsyncDb | None = None

    async def _open(self) -> AsyncDb:
        engine = _Engine(self._threads, self._options.get("sync", "full") in ("full", True))
        try:
            db = await engine.run(lambda: tidesdb.open(self._path, **self._options))
        except BaseException:
            engine.shutdown()
            raise
        return AsyncDb(db, engine)

    def __await__(self) -> Generator[Any, None, AsyncDb]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncDb:
        self._db = await self._open()
        return self._db

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._db is not None
        await self._db.close()


class _Group:
    """Writes that were made one by one, and are committed as one batch."""

    __slots__ = ("batch", "waiting")

    def __init__(self, batch: tidesdb.Batch) -> None:
        self.batch = batch
        self.waiting: list[asyncio.Future[int]] = []


class _Engine:
    """The threads of a database, and what waits for them."""

    def __init__(self, threads: int, sync: bool) -> None:
        self._sync = sync
        self._readers: Executor = ThreadPoolExecutor(threads, "tidesdb-read")
        self._committer: Executor = ThreadPoolExecutor(1, "tidesdb-commit")
        # What is to be committed, in the order of the calls. A future with each.
        self._groups: list[_Group] = []
        # Whether the last group takes more single writes.
        self._is_open = False
        self._committing: asyncio.Task[None] | None = None

    async def run(self, call: Callable[[], _T]) -> _T:
        """Runs `call` in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    def single(self, db: tidesdb.Db) -> _Group:
        """The group that takes the next single write."""
        if self._is_open:
            return self._groups[-1]
        group = _Group(db.batch())
        self._groups.append(group)
        self._is_open = True
        return group

    def whole(self, batch: tidesdb.Batch) -> _Group:
        """A group of its own for `batch`."""
        group = _Group(batch)
        self._groups.append(group)
        self._is_open = False
        return group

    def wait(self, group: _Group) -> asyncio.Future[int]:
        """A future for the commit of `group`; begins to commit unless that goes on already."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        group.waiting.append(future)
        if self._committing is None:
            self._committing = loop.create_task(self._commit())
        return future

    async def _commit(self) -> None:
        try:
            while self._groups:
                await asyncio.sleep(0)  # lets the tasks that are ready add their writes
                groups, self._groups, self._is_open = self._groups, [], False
                batches = [group.batch for group in groups]
                loop = asyncio.get_running_loop()
                results: list[int | BaseException]
                try:
                    write = _tidesdb.write_group
                    results = await loop.run_in_executor(self._committer, write, batches, self._sync)
                except BaseException as error:
                    results = [error] * len(groups)
                for group, result in zip(groups, results, strict=True):
                    for future in group.waiting:
                        _settle(future, result)
        finally:
            self._committing = None

    async def drain(self) -> None:
        """Waits until everything that was handed over is committed."""
        while self._committing is not None:
            await asyncio.wait([self._committing])

    def shutdown(self) -> None:
        """Ends the threads once they have nothing to do."""
        self._readers.shutdown(wait=False)
        self._committer.shutdown(wait=False)


def _settle(future: asyncio.Future[_T], result: _T | BaseException) -> None:
    """Tells the task that waits. One that was cancelled does not."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


class AsyncFamily:
    """A family of keys and values. The calls are those of `tidesdb.Family`, to be awaited."""

    def __init__(self, db: tidesdb.Db, family: tidesdb.Family, engine: _Engine) -> None:
        self._root, self._family, self._engine = db, family, engine
        # Reads that were begun in this round of the event loop.
        self._keys: list[Buffer] = []
        self._reads: list[asyncio.Future[bytes | None]] = []

    @property
    def name(self) -> str:
        """Its name."""
        return self._family.name

    @property
    def sync_api(self) -> tidesdb.Family:
        """The family for calls that are not to be awaited."""
        return self._family

    async def get(self, key: Buffer, default: _T | None = None) -> bytes | _T | None:
        """Returns the value of `key`, or `default`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes | None] = loop.create_future()
        if not self._keys:
            loop.call_soon(self._begin_reads, loop)
        self._keys.append(key)
        self._reads.append(future)
        value = await future
        return default if value is None else value

    def _begin_reads(self, loop: asyncio.AbstractEventLoop) -> None:
        keys, self._keys = self._keys, []
        reads, self._reads = self._reads, []
        try:
            done = loop.run_in_executor(self._engine._readers, self._family.multi_get, keys)
        except RuntimeError:  # the threads have ended
            _fail(reads, tidesdb.Closed("the database is closed"))
            return
        done.add_done_callback(lambda done: self._end_reads(keys, reads, done))

    def _end_reads(
        self,
        keys: list[Buffer],
        reads: list[asyncio.Future[bytes | None]],
        done: asyncio.Future[list[bytes | None]],
    ) -> None:
        if done.cancelled():
            _fail(reads, asyncio.CancelledError())
            return
        error = done.exception()
        if error is None:
            for future, value in zip(reads, done.result(), strict=True):
                _settle(future, value)
        elif len(reads) == 1:
            _fail(reads, error)
        else:  # one key may be the cause: each is read again, for itself
            for key, future in zip(keys, reads, strict=True):
                self._read_alone(key, future)

    def _read_alone(self, key: Buffer, future: asyncio.Future[bytes | None]) -> None:
        result: bytes | BaseException | None
        try:
            result = self._family.get(key)
        except BaseException as error:
            result = error
        _settle(future, result)

    async def multi_get(self, keys: Iterable[Buffer]) -> list[bytes | None]:
        """Returns the values of `keys`, with `None` for those that are missing."""
        keys = list(keys)
        return await self._engine.run(lambda: self._family.multi_get(keys))

    async def contains(self, key: Buffer) -> bool:
        """Returns whether `key` exists."""
        return await self._engine.run(lambda: key in self._family)

    def put(
        self, key: Buffer, value: Buffer, *, ttl: Ttl | None = None, expires: Expires | None = None
    ) -> Awaitable[int]:
        """Sets `key` to `value`. Returns the sequence number."""
        group = self._engine.single(self._root)
        group.batch.put(key, value, ttl=ttl, expires=expires, family=self._family)
        return self._engine.wait(group)

    def put_many(
        self, items: Items, *, ttl: Ttl | None = None, expires: Expires | None = None
    ) -> Awaitable[int]:
        """Puts all pairs of a mapping, or of an iterable of pairs, in one atomic commit."""
        batch = self._root.batch()
        batch.put_many(items, ttl=ttl, expires=expires, family=self._family)
        return self._engine.wait(self._engine.whole(batch))

    def delete(self, key: Buffer) -> Awaitable[int]:
        """Deletes `key`, whether or not it exists."""
        group = self._engine.single(self._root)
        group.batch.delete(key, family=self._family)
        return self._engine.wait(group)

    def delete_range(self, start: Buffer | None, stop: Buffer | None) -> Awaitable[int]:
        """Deletes the keys from `start` up to, and without, `stop`."""
        group = self._engine.single(self._root)
        group.batch.delete_range(start, stop, family=self._family)
        return self._engine.wait(group)

    def delete_prefix(self, prefix: Buffer) -> Awaitable[int]:
        """Deletes the keys that begin with `prefix`."""
        group = self._engine.single(self._root)
        group.batch.delete_prefix(prefix, family=self._family)
        return self._engine.wait(group)

    def merge(self, key: Buffer, operand: Buffer | int) -> Awaitable[int]:
        """Combines the value of `key` with `operand`."""
        group = self._engine.single(self._root)
        group.batch.merge(key, operand, family=self._family)
        return self._engine.wait(group)

    async def pop(self, key: Buffer) -> bytes | None:
        """Deletes `key` and returns its value, or `None`. Atomic."""
        return await self._engine.run(lambda: self._family.pop(key, None))

    async def first(self) -> tuple[bytes, bytes] | None:
        """Returns the first key and its value, or `None`."""
        return await self._engine.run(self._family.first)

    async def last(self) -> tuple[bytes, bytes] | None:
        """Returns the last key and its value, or `None`."""
        return await self._engine.run(self._family.last)

    async def pop_first(self) -> tuple[bytes, bytes] | None:
        """Deletes the first key and returns it with its value, or `None`. Atomic: a queue."""
        return await self._engine.run(self._family.pop_first)

    async def compare_and_swap(self, key: Buffer, expected: Buffer | None, new: Buffer | None) -> bool:
        """Sets `key` to `new` if its value is `expected`, and returns whether it was."""
        return await self._engine.run(lambda: self._family.compare_and_swap(key, expected, new))

    async def count(
        self, start: Buffer | None = None, stop: Buffer | None = None, *, prefix: Buffer | None = None
    ) -> int:
        """Counts keys, by reading all of them."""
        return await self._engine.run(lambda: self._family.count(start, stop, prefix=prefix))

    def items(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
    ) -> AsyncRows[tuple[bytes, bytes]]:
        """Iterates over pairs of a key and its value: `async for key, value in db.items()`."""
        make = self._family.items
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse))

    def keys(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
    ) -> AsyncRows[bytes]:
        """Iterates over keys."""
        make = self._family.keys
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse))

    def values(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
    ) -> AsyncRows[bytes]:
        """Iterates over values."""
        make = self._family.values
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse))

    async def compact(self) -> None:
        """Merges the tables."""
        await self._engine.run(self._family.compact)

    async def flush(self) -> None:
        """Writes what is in memory to tables."""
        await self._engine.run(self._family.flush)

    def __repr__(self) -> str:
        return f"<tidesdb.aio of {self._family!r}>"


def _handle(family: AsyncFamily | None) -> tidesdb.Family | None:
    return None if family is None else family._family


def _fail(futures: Iterable[asyncio.Future[Any]], error: BaseException) -> None:
    for future in futures:
        _settle(future, error)


class AsyncDb(AsyncFamily):
    """An open database: `async with tidesdb.aio.open(path) as db`. The calls are those of `tidesdb.Db`, to be awaited."""

    def __init__(self, db: tidesdb.Db, engine: _Engine) -> None:
        super().__init__(db, db, engine)
        self._db = db

    @property
    def sync_api(self) -> tidesdb.Db:
        """The database for calls that are not to be awaited."""
        return self._db

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._db.closed

    async def family(self, name: str) -> AsyncFamily:
        """Returns the family called `name`."""
        return AsyncFamily(self._db, await self._engine.run(lambda: self._db.family(name)), self._engine)

    async def family_or_create(self, name: str, **options: Any) -> AsyncFamily:
        """Returns the family called `name`; creates it if there is none."""
        make = self._db.family_or_create
        return AsyncFamily(self._db, await self._engine.run(lambda: make(name, **options)), self._engine)

    async def drop_family(self, name: str) -> None:
        """Deletes a family with all its rows."""
        await self._engine.run(lambda: self._db.drop_family(name))

    def batch(self) -> AsyncBatch:
        """Begins a batch: `async with db.batch() as batch`, in which `batch.put(...)` is not awaited."""
        return AsyncBatch(self._db.batch(), self._engine)

    def commit(self, batch: tidesdb.Batch) -> Awaitable[int]:
        """Commits `batch`. An empty one waits until all commits before it are durable."""
        return self._engine.wait(self._engine.whole(batch))

    def transaction(self, isolation: str = "serializable") -> AsyncTransaction:
        """Begins a transaction: `async with db.transaction() as tx`."""
        return AsyncTransaction(self, isolation)

    async def transact(
        self,
        body: Callable[[AsyncTransaction], Awaitable[_R]],
        isolation: str = "serializable",
        *,
        attempts: int = 100,
    ) -> _R:
        """Awaits `body(tx)` in a transaction and commits; after a conflict it repeats both, up to `attempts` times."""
        pause = 20e-6
        for attempt in range(attempts):
            try:
                async with self.transaction(isolation) as tx:
                    result = await body(tx)
                return result
            except tidesdb.Conflict:
                if attempt + 1 == attempts:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, 5e-3)
        raise ValueError("attempts must be at least 1")

    async def sync(self) -> int:
        """Makes all commits durable."""
        await self._engine.drain()
        return await self._engine.run(self._db.sync)

    async def stats(self) -> dict[str, Any]:
        """Statistics of the database, by name."""
        return await self._engine.run(self._db.stats)

    async def checkpoint(self, path: str | PathLike[str]) -> None:
        """Makes a copy of the database in the new folder `path`."""
        await self._engine.run(lambda: self._db.checkpoint(path))

    async def close(self) -> None:
        """Commits what was handed over, and closes the database."""
        await self._engine.drain()
        if self._db.closed:
            return
        try:
            await self._engine.run(self._db.close)
        finally:
            self._engine.shutdown()

    async def __aenter__(self) -> AsyncDb:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncRows(Generic[_T], AsyncIterator[_T]):
    """An iterator over rows, which a thread fetches, many at a time."""

    def __init__(self, engine: _Engine, make: Callable[[], tidesdb.Rows[_T]]) -> None:
        self._engine, self._make = engine, make
        self._rows: tidesdb.Rows[_T] | None = None
        self._fetched: deque[_T] = deque()
        self._next = _ROWS
        self._done = False

    def __aiter__(self) -> AsyncRows[_T]:
        return self

    async def __anext__(self) -> _T:
        if not self._fetched:
            self._fetched.extend(await self.fetch(self._next))
            self._next = min(2 * self._next, _ROWS_MAX)
            if not self._fetched:
                raise StopAsyncIteration
        return self._fetched.popleft()

    async def fetch(self, n: int) -> list[_T]:
        """Returns a list of the next `n` rows, fewer at the end."""
        out: list[_T] = []
        while self._fetched and len(out) < n:
            out.append(self._fetched.popleft())
        if len(out) < n and not self._done:
            more = await self._engine.run(lambda: self._fetch(n - len(out)))
            self._done = len(more) < n - len(out)
            out += more
        return out

    def _fetch(self, n: int) -> list[_T]:
        if self._rows is None:
            self._rows = self._make()
        return self._rows.fetch(n)


class AsyncBatch:
    """Writes that are committed together at the end of the block, or discarded if it ends with an exception."""

    def __init__(self, batch: tidesdb.Batch, engine: _Engine) -> None:
        self._batch, self._engine = batch, engine

    async def __aenter__(self) -> tidesdb.Batch:
        return self._batch

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._engine.wait(self._engine.whole(self._batch))
        else:
            self._batch.clear()


class AsyncTransaction:
    """A transaction: reads are awaited; writes are in memory until the commit at the end of the block."""

    def __init__(self, db: AsyncDb, isolation: str) -> None:
        self._db, self._isolation = db, isolation
        self._open: tidesdb.Transaction | None = None

    @property
    def _tx(self) -> tidesdb.Transaction:
        if self._open is None:
            # The commit waits for no sync of its own: an empty batch follows it, and shares one.
            relaxed: Sync | None = "none" if self._db._engine._sync else None
            self._open = self._db._db.transaction(self._isolation, sync=relaxed)
        return self._open

    async def get(
        self, key: Buffer, default: _T | None = None, *, family: AsyncFamily | None = None
    ) -> bytes | _T | None:
        """Returns the value of `key`, or `default`. The key counts as read."""
        tx, handle = self._tx, _handle(family)
        value = await self._db._engine.run(lambda: tx.get(key, family=handle))
        return default if value is None else value

    async def multi_get(
        self, keys: Iterable[Buffer], *, family: AsyncFamily | None = None
    ) -> list[bytes | None]:
        """Returns the values of `keys`."""
        tx, handle, keys = self._tx, _handle(family), list(keys)
        return await self._db._engine.run(lambda: tx.multi_get(keys, family=handle))

    async def put(
        self,
        key: Buffer,
        value: Buffer,
        *,
        ttl: Ttl | None = None,
        expires: Expires | None = None,
        family: AsyncFamily | None = None,
    ) -> None:
        """Sets `key` to `value`."""
        self._tx.put(key, value, ttl=ttl, expires=expires, family=_handle(family))

    async def delete(self, key: Buffer, *, family: AsyncFamily | None = None) -> None:
        """Deletes `key`."""
        self._tx.delete(key, family=_handle(family))

    async def merge(self, key: Buffer, operand: Buffer | int, *, family: AsyncFamily | None = None) -> None:
        """Combines the value of `key` with `operand`."""
        tx, handle = self._tx, _handle(family)
        await self._db._engine.run(lambda: tx.merge(key, operand, family=handle))

    def items(
        self,
        start: Buffer | None = None,
        stop: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        family: AsyncFamily | None = None,
    ) -> AsyncRows[tuple[bytes, bytes]]:
        """Iterates over pairs of a key and its value. What was fetched counts as read."""
        make, handle = self._tx.items, _handle(family)
        rows = lambda: make(start, stop, prefix=prefix, reverse=reverse, family=handle)  # noqa: E731
        return AsyncRows(self._db._engine, rows)

    async def commit(self) -> int:
        """Commits. Returns the sequence number."""
        seq = await self._db._engine.run(self._tx.commit)
        if self._db._engine._sync:
            await self._db.commit(self._db._db.batch())
        return seq

    async def rollback(self) -> None:
        """Undoes everything."""
        self._tx.rollback()

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.rollback()
        elif self._tx.is_open:
            await self.commit()
