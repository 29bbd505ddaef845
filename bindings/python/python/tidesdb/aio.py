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

* Writes that wait at the same time share one sync, and each is a commit of its own: it fails alone. A write is durable when its `await` returns,
  if the database syncs each commit, which is the default. Other tasks may read it shortly before.
* Reads that tasks begin in the same round of the event loop are one call of the engine.

A write is handed over by the call, not by its `await`, and in the order of the calls. So cancelling a task does not undo its write. Other calls
that change something (`pop`, `pop_first`, `compare_and_swap`, a commit) may have happened, too, if the task is cancelled while it waits. A
cancelled step of an iterator loses no row: the next step has it.

The engine copies a value later, in its thread. `bytes` never change; a long `bytearray` or `memoryview` must not be changed before the `await` returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Generator, Generic, Iterable, TypeVar

import tidesdb

from ._engine import Engine, fail, settle
from ._tidesdb import Write

if TYPE_CHECKING:
    from types import TracebackType
    from typing import TypeAlias

    from . import _Buffer, _Expires, _Items, _Path, _Ttl

    # A family in the calls of a batch.
    _Where: TypeAlias = "AsyncFamily | tidesdb.Family | str | None"

__all__ = ["AsyncBatch", "AsyncDb", "AsyncFamily", "AsyncRows", "AsyncTransaction", "open"]

_T = TypeVar("_T")
_R = TypeVar("_R")

# Rows that an iterator fetches at first, and at most.
_ROWS = 16
_ROWS_MAX = 1024

# A value of this many bytes is added to a transaction by a thread: the copy takes long, and from 8 MiB on it goes to the disk at once.
_LONG_BYTES = 1 << 20


def open(path: _Path, *, threads: int = 4, **options: Any) -> _Opening:
    """Opens the database in the folder `path`: `async with open(path) as db`, or `db = await open(path)`.

    `threads` is the number of threads for reads and for transactions; the other options are those of `tidesdb.open`. If the task is cancelled
    meanwhile, what was opened is closed.
    """
    return _Opening(path, threads, options)


class _Opening:
    def __init__(self, path: _Path, threads: int, options: dict[str, Any]) -> None:
        self._path, self._threads, self._options = path, threads, options
        self._db: AsyncDb | None = None

    async def _open(self) -> AsyncDb:
        engine = Engine(self._threads, self._options.get("sync", "full") in ("full", True))
        return AsyncDb(await engine.open(lambda: tidesdb.open(self._path, **self._options)), engine)

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


class AsyncFamily:
    """A family of keys and values. The calls are those of `tidesdb.Family`, to be awaited."""

    def __init__(self, family: tidesdb.Family, engine: Engine) -> None:
        self._family, self._engine = family, engine
        # Reads that were begun in this round of the event loop.
        self._keys: list[_Buffer] = []
        self._reads: list[asyncio.Future[bytes | None]] = []

    @property
    def name(self) -> str:
        """Its name."""
        return self._family.name

    @property
    def sync_api(self) -> tidesdb.Family:
        """The family for calls that are not to be awaited."""
        return self._family

    async def get(self, key: _Buffer, default: _T | None = None) -> bytes | _T | None:
        """Returns the value of `key`, or `default`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes | None] = loop.create_future()
        if not self._keys:
            loop.call_soon(self._begin_reads)
        self._keys.append(key)
        self._reads.append(future)
        value = await future
        return default if value is None else value

    def _begin_reads(self) -> None:
        keys, self._keys = self._keys, []
        reads, self._reads = self._reads, []
        self._read(keys, reads)

    def _read(self, keys: list[_Buffer], reads: list[asyncio.Future[bytes | None]]) -> None:
        try:
            done = self._engine.begin(lambda: self._family.multi_get(keys))
        except tidesdb.Closed as error:
            fail(reads, error)
            return
        done.add_done_callback(lambda done: self._end_reads(keys, reads, done))

    def _end_reads(
        self,
        keys: list[_Buffer],
        reads: list[asyncio.Future[bytes | None]],
        done: asyncio.Future[list[bytes | None]],
    ) -> None:
        if done.cancelled():
            fail(reads, asyncio.CancelledError())
            return
        error = done.exception()
        if error is None:
            for future, value in zip(reads, done.result(), strict=True):
                settle(future, value)
        elif len(reads) == 1:
            fail(reads, error)
        else:  # one key may be the cause: each is read again, for itself
            for key, future in zip(keys, reads, strict=True):
                self._read([key], [future])

    async def multi_get(self, keys: Iterable[_Buffer]) -> list[bytes | None]:
        """Returns the values of `keys`, with `None` for those that are missing."""
        keys = list(keys)
        return await self._engine.run(lambda: self._family.multi_get(keys))

    async def contains(self, key: _Buffer) -> bool:
        """Returns whether `key` exists."""
        return await self._engine.run(lambda: key in self._family)

    def put(
        self, key: _Buffer, value: _Buffer, *, ttl: _Ttl | None = None, expires: _Expires | None = None
    ) -> Awaitable[int]:
        """Sets `key` to `value`. Returns the sequence number."""
        return self._engine.write(Write.put(self._family, key, value, ttl, expires))

    def put_many(
        self, items: _Items, *, ttl: _Ttl | None = None, expires: _Expires | None = None
    ) -> Awaitable[int]:
        """Puts all pairs of a mapping, or of an iterable of pairs, in one atomic commit."""
        return self._engine.write(Write.put_many(self._family, items, ttl, expires))

    def delete(self, key: _Buffer) -> Awaitable[int]:
        """Deletes `key`, whether or not it exists."""
        return self._engine.write(Write.delete(self._family, key))

    def delete_range(self, start: _Buffer | None, stop: _Buffer | None) -> Awaitable[int]:
        """Deletes the keys from `start` up to, and without, `stop`."""
        return self._engine.write(Write.delete_range(self._family, start, stop))

    def delete_prefix(self, prefix: _Buffer) -> Awaitable[int]:
        """Deletes the keys that begin with `prefix`."""
        return self._engine.write(Write.delete_prefix(self._family, prefix))

    def merge(self, key: _Buffer, operand: _Buffer | int) -> Awaitable[int]:
        """Combines the value of `key` with `operand`."""
        return self._engine.write(Write.merge(self._family, key, operand))

    async def pop(self, key: _Buffer) -> bytes | None:
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

    async def compare_and_swap(self, key: _Buffer, expected: _Buffer | None, new: _Buffer | None) -> bool:
        """Sets `key` to `new` if its value is `expected`, and returns whether it was."""
        return await self._engine.run(lambda: self._family.compare_and_swap(key, expected, new))

    async def count(
        self, start: _Buffer | None = None, stop: _Buffer | None = None, *, prefix: _Buffer | None = None
    ) -> int:
        """Counts keys, by reading all of them."""
        return await self._engine.run(lambda: self._family.count(start, stop, prefix=prefix))

    def items(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
    ) -> AsyncRows[tuple[bytes, bytes]]:
        """Iterates over pairs of a key and its value: `async for key, value in db.items()`."""
        make = self._family.items
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse))

    def keys(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
    ) -> AsyncRows[bytes]:
        """Iterates over keys."""
        make = self._family.keys
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse))

    def values(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
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


class AsyncDb(AsyncFamily):
    """An open database: `async with tidesdb.aio.open(path) as db`. The calls are those of `tidesdb.Db`, to be awaited."""

    def __init__(self, db: tidesdb.Db, engine: Engine) -> None:
        super().__init__(db, engine)
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
        return AsyncFamily(await self._engine.run(lambda: self._db.family(name)), self._engine)

    async def family_or_create(self, name: str, **options: Any) -> AsyncFamily:
        """Returns the family called `name`; creates it if there is none."""
        make = self._db.family_or_create
        return AsyncFamily(await self._engine.run(lambda: make(name, **options)), self._engine)

    async def drop_family(self, name: str) -> None:
        """Deletes a family with all its rows."""
        await self._engine.run(lambda: self._db.drop_family(name))

    def batch(self) -> AsyncBatch:
        """Begins a batch: `async with db.batch() as batch`, in which `batch.put(...)` is not awaited."""
        return AsyncBatch(self._db, self._engine)

    def commit(self, batch: tidesdb.Batch | AsyncBatch) -> Awaitable[int]:
        """Commits `batch`. An empty one waits until all commits before it are durable."""
        return self._engine.write(batch._take() if isinstance(batch, AsyncBatch) else Write.batch(batch))

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

    async def checkpoint(self, path: _Path) -> None:
        """Makes a copy of the database in the new folder `path`."""
        await self._engine.run(lambda: self._db.checkpoint(path))

    async def close(self) -> None:
        """Commits what was handed over, and closes the database. A second call waits for the first, which goes on if its task is cancelled."""
        await self._engine.close(self._db)

    async def __aenter__(self) -> AsyncDb:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncRows(Generic[_T], AsyncIterator[_T]):
    """An iterator over rows, which a thread fetches, many at a time.

    If a step is cancelled, the next one has the rows that the thread fetches meanwhile. An iterator that does not end keeps the state that it reads:
    close it with `aclose`, which `contextlib.aclosing` calls.
    """

    def __init__(self, engine: Engine, make: Callable[[], tidesdb.Rows[_T]]) -> None:
        self._engine, self._make = engine, make
        self._rows: tidesdb.Rows[_T] | None = None
        self._fetched: deque[_T] = deque()
        self._next = _ROWS
        self._done = False
        self._closed = False
        # What a thread fetches, for whichever step comes next, and the error of the last such call.
        self._pending: asyncio.Future[list[_T]] | None = None
        self._failed: BaseException | None = None

    def __aiter__(self) -> AsyncRows[_T]:
        return self

    async def __anext__(self) -> _T:
        while not self._fetched:
            if self._done:
                raise StopAsyncIteration
            await self._more(self._next)
            self._next = min(2 * self._next, _ROWS_MAX)
        return self._fetched.popleft()

    async def fetch(self, n: int) -> list[_T]:
        """Returns a list of the next `n` rows, fewer at the end."""
        while len(self._fetched) < n and not self._done:
            await self._more(n - len(self._fetched))
        return [self._fetched.popleft() for _ in range(min(n, len(self._fetched)))]

    async def _more(self, n: int) -> None:
        """Waits until a thread has fetched rows: `n`, unless it fetches others already."""
        if self._pending is None and self._failed is None:
            self._pending = self._engine.begin(lambda: self._fetch(n))
            self._pending.add_done_callback(lambda done: self._keep(n, done))
        if self._pending is not None:
            await asyncio.wait([self._pending])  # not cancelled with the task
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def _keep(self, n: int, done: asyncio.Future[list[_T]]) -> None:
        self._pending = None
        self._failed = asyncio.CancelledError() if done.cancelled() else done.exception()
        if self._closed:
            self._failed = None
            self._release()
        elif self._failed is None:
            rows = done.result()
            self._fetched.extend(rows)
            self._done = len(rows) < n

    def _fetch(self, n: int) -> list[_T]:
        if self._rows is None:
            self._rows = self._make()
        return self._rows.fetch(n)

    def _release(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    async def aclose(self) -> None:
        """Ends the iterator and gives back its memory."""
        self._done = self._closed = True
        self._fetched.clear()
        if self._pending is not None:
            await asyncio.wait([self._pending])
        self._failed = None
        self._release()


class AsyncBatch:
    """Writes that are committed together at the end of the block, or discarded if it ends with an exception.

    Its calls are not awaited. They keep the keys and values; the engine copies them with the commit. They use the default family, or the one named by
    `family`.
    """

    def __init__(self, db: tidesdb.Db, engine: Engine) -> None:
        self._db, self._engine = db, engine
        self._writes: list[Write] = []

    def _in(self, family: _Where) -> tidesdb.Family:
        if isinstance(family, AsyncFamily):
            return family._family
        if isinstance(family, str):
            return self._db.family(family)
        return self._db if family is None else family

    def put(
        self,
        key: _Buffer,
        value: _Buffer,
        *,
        ttl: _Ttl | None = None,
        expires: _Expires | None = None,
        family: _Where = None,
    ) -> None:
        """Sets `key` to `value`."""
        self._writes.append(Write.put(self._in(family), key, value, ttl, expires))

    def put_many(
        self,
        items: _Items,
        *,
        ttl: _Ttl | None = None,
        expires: _Expires | None = None,
        family: _Where = None,
    ) -> None:
        """Puts all pairs of a mapping, or of an iterable of pairs."""
        self._writes.append(Write.put_many(self._in(family), items, ttl, expires))

    def delete(self, key: _Buffer, *, family: _Where = None) -> None:
        """Deletes `key`, whether or not it exists."""
        self._writes.append(Write.delete(self._in(family), key))

    def single_delete(self, key: _Buffer, *, family: _Where = None) -> None:
        """Deletes a key that was put at most once since its last delete."""
        self._writes.append(Write.single_delete(self._in(family), key))

    def delete_range(self, start: _Buffer | None, stop: _Buffer | None, *, family: _Where = None) -> None:
        """Deletes the keys from `start` up to, and without, `stop`."""
        self._writes.append(Write.delete_range(self._in(family), start, stop))

    def delete_prefix(self, prefix: _Buffer, *, family: _Where = None) -> None:
        """Deletes the keys that begin with `prefix`."""
        self._writes.append(Write.delete_prefix(self._in(family), prefix))

    def merge(self, key: _Buffer, operand: _Buffer | int, *, family: _Where = None) -> None:
        """Combines the value of `key` with `operand`."""
        self._writes.append(Write.merge(self._in(family), key, operand))

    def clear(self) -> None:
        """Discards what is in the batch."""
        self._writes.clear()

    def __len__(self) -> int:
        """The number of calls that are in the batch."""
        return len(self._writes)

    def __bool__(self) -> bool:
        return True

    def __setitem__(self, key: _Buffer, value: _Buffer) -> None:
        self.put(key, value)

    def __delitem__(self, key: _Buffer) -> None:
        self.delete(key)

    def _take(self) -> Write:
        writes, self._writes = self._writes, []
        return Write.all(self._db, writes)

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._engine.write(self._take())
        else:
            self.clear()


class AsyncTransaction:
    """A transaction: reads are awaited; writes are in memory until the commit at the end of the block.

    A call goes on if its task is cancelled, so the end of the block waits for it. A block that ends with an exception rolls back.
    """

    def __init__(self, db: AsyncDb, isolation: str) -> None:
        self._db, self._isolation = db, isolation
        self._open: tidesdb.Transaction | None = None
        # Calls that threads make.
        self._calls: set[asyncio.Future[Any]] = set()
        # Whether a commit or a rollback was handed over.
        self._ended = False

    @property
    def _tx(self) -> tidesdb.Transaction:
        if self._open is None:
            self._open = self._db._db.transaction(self._isolation)
        return self._open

    async def _run(self, call: Callable[[], _T]) -> _T:
        future = self._db._engine.begin(call)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return await asyncio.shield(future)

    async def get(
        self, key: _Buffer, default: _T | None = None, *, family: AsyncFamily | None = None
    ) -> bytes | _T | None:
        """Returns the value of `key`, or `default`. The key counts as read."""
        tx, handle = self._tx, _handle(family)
        value = await self._run(lambda: tx.get(key, family=handle))
        return default if value is None else value

    async def multi_get(
        self, keys: Iterable[_Buffer], *, family: AsyncFamily | None = None
    ) -> list[bytes | None]:
        """Returns the values of `keys`."""
        tx, handle, keys = self._tx, _handle(family), list(keys)
        return await self._run(lambda: tx.multi_get(keys, family=handle))

    async def put(
        self,
        key: _Buffer,
        value: _Buffer,
        *,
        ttl: _Ttl | None = None,
        expires: _Expires | None = None,
        family: AsyncFamily | None = None,
    ) -> None:
        """Sets `key` to `value`."""
        tx, handle = self._tx, _handle(family)
        if self._calls or memoryview(value).nbytes >= _LONG_BYTES:
            await self._run(lambda: tx.put(key, value, ttl=ttl, expires=expires, family=handle))
        else:
            tx.put(key, value, ttl=ttl, expires=expires, family=handle)

    async def delete(self, key: _Buffer, *, family: AsyncFamily | None = None) -> None:
        """Deletes `key`."""
        tx, handle = self._tx, _handle(family)
        if self._calls:
            await self._run(lambda: tx.delete(key, family=handle))
        else:
            tx.delete(key, family=handle)

    async def merge(self, key: _Buffer, operand: _Buffer | int, *, family: AsyncFamily | None = None) -> None:
        """Combines the value of `key` with `operand`."""
        tx, handle = self._tx, _handle(family)
        await self._run(lambda: tx.merge(key, operand, family=handle))

    def items(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
        family: AsyncFamily | None = None,
    ) -> AsyncRows[tuple[bytes, bytes]]:
        """Iterates over pairs of a key and its value. What was fetched counts as read."""
        make, handle = self._tx.items, _handle(family)
        rows = lambda: make(start, stop, prefix=prefix, reverse=reverse, family=handle)  # noqa: E731
        return AsyncRows(self._db._engine, rows)

    async def commit(self) -> int:
        """Commits. Returns the sequence number."""
        while self._calls:
            await asyncio.wait(self._calls)
        future = self._db._engine.write(Write.transaction(self._tx))
        self._ended = True
        return await future

    async def rollback(self) -> None:
        """Undoes everything."""
        self._ended = True
        if self._open is None:
            return
        try:
            await self._run(self._open.rollback)
        except tidesdb.Closed:  # the threads have ended
            self._open.rollback()

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._ended and self._open is not None:
                await self.commit()
        finally:
            if not self._ended:
                await self.rollback()
