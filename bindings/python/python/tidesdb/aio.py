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
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Generic,
    Iterable,
    Literal,
    TypeVar,
)

import tidesdb

from ._engine import Engine, fail, settle
from ._tidesdb import Write

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType
    from typing import TypeAlias

    from . import _Buffer, _Expires, _File, _History, _Items, _Path, _Row, _Ttl

    # A family in the calls of a batch or a snapshot.
    _Where: TypeAlias = "AsyncFamily | tidesdb.Family | str | None"
    _Dicts: TypeAlias = "list[dict[str, Any]]"

__all__ = [
    "AsyncBackups",
    "AsyncBatch",
    "AsyncCursor",
    "AsyncDb",
    "AsyncFamily",
    "AsyncReader",
    "AsyncRows",
    "AsyncSnapshot",
    "AsyncSortedRows",
    "AsyncTransaction",
    "destroy",
    "open",
    "open_reader",
    "table_builder",
    "writer_figures",
    "writer_history",
]

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


async def open_reader(path: _Path, *, threads: int = 4, **options: Any) -> AsyncReader:
    """Opens the database in the folder `path` for reading beside its writer: see `tidesdb.open_reader`."""
    return AsyncReader(await _in_thread(lambda: tidesdb.open_reader(path, **options)), threads)


async def destroy(path: _Path) -> None:
    """Removes the database in the folder `path`: see `tidesdb.destroy`."""
    await _in_thread(lambda: tidesdb.destroy(path))


async def table_builder(stem: _Path, **settings: Any) -> AsyncSortedRows:
    """Begins tables outside of a database: see `tidesdb.TableBuilder`."""
    return AsyncSortedRows(await _in_thread(lambda: tidesdb.TableBuilder(stem, **settings)), _in_thread)


async def writer_figures(path: _Path) -> dict[str, Any] | None:
    """Returns the figures of the process that writes the database in the folder `path`: see `tidesdb.writer_figures`."""
    return await _in_thread(lambda: tidesdb.writer_figures(path))


async def writer_history(path: _Path) -> tuple[_History, _History]:
    """Returns the figures that writers have recorded: see `tidesdb.writer_history`."""
    return await _in_thread(lambda: tidesdb.writer_history(path))


async def _in_thread(call: Callable[[], _T]) -> _T:
    """Runs `call` in a thread of the loop."""
    return await asyncio.to_thread(call)


def _syncs(sync: object) -> bool:
    """Whether `sync` makes each commit durable. A second is 1, which equals True."""
    return sync is True or sync == "full"


class _Opening:
    def __init__(self, path: _Path, threads: int, options: dict[str, Any]) -> None:
        self._path, self._threads, self._options = path, threads, options
        self._db: AsyncDb | None = None

    async def _open(self) -> AsyncDb:
        engine = Engine(self._threads, _syncs(self._options.get("sync", "full")))
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

    def single_delete(self, key: _Buffer) -> Awaitable[int]:
        """Deletes a key that was put at most once since its last delete."""
        return self._engine.write(Write.single_delete(self._family, key))

    def clear(self) -> Awaitable[int]:
        """Deletes all keys, in one step."""
        return self.delete_range(None, None)

    async def multi_contains(self, keys: Iterable[_Buffer]) -> list[bool]:
        """Returns which of `keys` exist, in their order."""
        keys = list(keys)
        return await self._engine.run(lambda: self._family.multi_contains(keys))

    async def get_part(self, key: _Buffer, offset: int = 0, length: int | None = None) -> bytes | None:
        """Returns a part of the value of `key`, or `None`."""
        return await self._engine.run(lambda: self._family.get_part(key, offset, length))

    async def expiry(self, key: _Buffer) -> float | None:
        """Returns when the row of `key` expires, in seconds since 1970; `math.inf` = never."""
        return await self._engine.run(lambda: self._family.expiry(key))

    async def pop(self, key: _Buffer) -> bytes | None:
        """Deletes `key` and returns its value, or `None`. Atomic."""
        return await self._engine.run(lambda: self._family.pop(key, None))

    async def replace(self, key: _Buffer, value: _Buffer) -> bytes | None:
        """Sets `key` to `value` and returns what it was, or `None`. Atomic."""
        return await self._engine.run(lambda: self._family.replace(key, value))

    async def setdefault(self, key: _Buffer, default: _Buffer) -> bytes:
        """Returns the value of `key`; if it has none, sets it to `default` first. Atomic."""
        return await self._engine.run(lambda: self._family.setdefault(key, default))

    async def modify(self, key: _Buffer, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        """Sets `key` to what `change` returns for its value, in a thread: see `tidesdb.Family.modify`."""
        return await self._engine.run(lambda: self._family.modify(key, change))

    async def first(self) -> tuple[bytes, bytes] | None:
        """Returns the first key and its value, or `None`."""
        return await self._engine.run(self._family.first)

    async def last(self) -> tuple[bytes, bytes] | None:
        """Returns the last key and its value, or `None`."""
        return await self._engine.run(self._family.last)

    async def pop_first(self) -> tuple[bytes, bytes] | None:
        """Deletes the first key and returns it with its value, or `None`. Atomic: a queue."""
        return await self._engine.run(self._family.pop_first)

    async def pop_last(self) -> tuple[bytes, bytes] | None:
        """Deletes the last key and returns it with its value, or `None`. Atomic."""
        return await self._engine.run(self._family.pop_last)

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

    async def cursor(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        keys_only: bool = False,
    ) -> AsyncCursor:
        """Returns a cursor, which moves in both directions and seeks."""
        make = lambda: self._family.cursor(start, stop, prefix=prefix, keys_only=keys_only)  # noqa: E731
        return AsyncCursor(await self._engine.run(make), self._engine)

    async def ingest_sorted(self, items: _Items) -> dict[str, int]:
        """Adds pairs whose keys are in order, as tables, in one commit. An iterable is walked in a thread."""
        return await self._engine.run(lambda: self._family.ingest_sorted(items))

    async def sorted_writer(self) -> AsyncSortedRows:
        """Begins tables that `commit` adds to the family: `async with await family.sorted_writer() as rows`."""
        return AsyncSortedRows(await self._engine.run(self._family.sorted_writer), self._engine.run)

    async def explain(self, key: _Buffer) -> dict[str, Any]:
        """Explains what `get` of `key` does and returns."""
        return await self._engine.run(lambda: self._family.explain(key))

    async def explain_range(
        self, start: _Buffer | None = None, stop: _Buffer | None = None, *, rows: int = 1000
    ) -> dict[str, Any]:
        """Explains a scan."""
        return await self._engine.run(lambda: self._family.explain_range(start, stop, rows=rows))

    async def change_options(self, **settings: Any) -> None:
        """Changes settings of the family, which are stored."""
        await self._engine.run(lambda: self._family.change_options(**settings))

    async def change_options_until_close(self, **settings: Any) -> None:
        """Changes settings of the family until the database is closed."""
        await self._engine.run(lambda: self._family.change_options_until_close(**settings))

    async def compact(self, start: _Buffer | None = None, stop: _Buffer | None = None) -> None:
        """Merges the tables; with limits, those with keys between them."""
        await self._engine.run(lambda: self._family.compact(start, stop))

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
        engine.database = db

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

    async def create_family(self, name: str, **options: Any) -> AsyncFamily:
        """Creates a family."""
        make = self._db.create_family
        return AsyncFamily(await self._engine.run(lambda: make(name, **options)), self._engine)

    async def rename_family(self, old: str, new: str) -> None:
        """Renames a family."""
        await self._engine.run(lambda: self._db.rename_family(old, new))

    async def clone_family(self, source: str, new: str) -> AsyncFamily:
        """Creates the family `new` with the rows and settings of `source`."""
        return AsyncFamily(await self._engine.run(lambda: self._db.clone_family(source, new)), self._engine)

    async def snapshot(self) -> AsyncSnapshot:
        """Takes a snapshot: `async with await db.snapshot() as snapshot`. It shows the writes that were awaited."""
        return AsyncSnapshot(await self._engine.run(self._db.snapshot), self._engine)

    async def snapshot_at(self, seq: int) -> AsyncSnapshot:
        """Takes a snapshot of the past, as of the commit with the sequence number `seq`."""
        return AsyncSnapshot(await self._engine.run(lambda: self._db.snapshot_at(seq)), self._engine)

    async def ingest(self, tables: Any, *, transfer: Literal["copy", "link", "move"] = "copy") -> dict[str, int]:
        """Takes tables that builders wrote: see `tidesdb.Db.ingest`. Families are named, or those of this module."""
        pairs = tables.items() if hasattr(tables, "items") else tables
        named = [(of._family if isinstance(of, AsyncFamily) else of, list(paths)) for of, paths in pairs]
        return await self._engine.run(lambda: self._db.ingest(named, transfer=transfer))

    async def drop_family(self, name: str) -> None:
        """Deletes a family with all its rows."""
        await self._engine.run(lambda: self._db.drop_family(name))

    def batch(self) -> AsyncBatch:
        """Begins a batch: `async with db.batch() as batch`, in which `batch.put(...)` is not awaited."""
        return AsyncBatch(self._db, self._engine)

    def commit(self, batch: tidesdb.Batch | AsyncBatch) -> Awaitable[int]:
        """Commits `batch`, which is then empty, unless the commit fails. An empty one waits until all commits before it are durable."""
        return batch._commit(self._engine) if isinstance(batch, AsyncBatch) else self._engine.write(Write.batch(batch))

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

    async def diagnose(self) -> list[dict[str, Any]]:
        """What is wrong, as far as the figures show it."""
        return await self._engine.run(self._db.diagnose)

    async def verify(self) -> dict[str, Any]:
        """Reads and checks all files."""
        return await self._engine.run(self._db.verify)

    async def cancel_compactions(self) -> None:
        """Stops merges that run."""
        await self._engine.run(self._db.cancel_compactions)

    async def backup(self, path: _Path) -> None:
        """Makes a copy of the database in the new folder `path`, which shares no file with it."""
        await self._engine.run(lambda: self._db.backup(path))

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


class AsyncCursor:
    """A position among the keys of a family, which moves in both directions and seeks: the calls of `tidesdb.Cursor`, to be awaited.

    The calls that move it return whether it stands on a key. A call that is cancelled goes on, and the next one waits for it.
    """

    def __init__(self, cursor: tidesdb.Cursor, engine: Engine) -> None:
        self._cursor, self._engine = cursor, engine

    @property
    def valid(self) -> bool:
        """Whether it stands on a key."""
        return self._cursor.valid

    @property
    def key(self) -> bytes | None:
        """The key, or `None` if it stands on none."""
        return self._cursor.key

    @property
    def expires(self) -> float | None:
        """When the row expires, in seconds since 1970; `math.inf` = never."""
        return self._cursor.expires

    async def value(self) -> bytes | None:
        """Returns the value, or `None` if it stands on no key."""
        return await self._engine.run(lambda: self._cursor.value)

    async def item(self) -> _Row:
        """Returns the key and the value, or `None` if it stands on no key."""
        return await self._engine.run(lambda: self._cursor.item)

    async def first(self) -> bool:
        """Moves to the first key."""
        return await self._engine.run(self._cursor.first)

    async def last(self) -> bool:
        """Moves to the last key."""
        return await self._engine.run(self._cursor.last)

    async def seek(self, key: _Buffer) -> bool:
        """Moves to the first key at or after `key`."""
        return await self._engine.run(lambda: self._cursor.seek(key))

    async def seek_for_prev(self, key: _Buffer) -> bool:
        """Moves to the last key at or before `key`."""
        return await self._engine.run(lambda: self._cursor.seek_for_prev(key))

    async def next(self) -> bool:
        """Moves to the next key."""
        return await self._engine.run(self._cursor.next)

    async def prev(self) -> bool:
        """Moves to the previous key."""
        return await self._engine.run(self._cursor.prev)

    async def refresh(self) -> None:
        """Moves to the newest state of the database; the position is lost."""
        await self._engine.run(self._cursor.refresh)

    async def aclose(self) -> None:
        """Gives back the memory of the cursor."""
        await _even_closed(self._engine, self._cursor.close)

    async def __aenter__(self) -> AsyncCursor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def _even_closed(engine: Engine, call: Callable[[], _T]) -> _T:
    """Runs `call` in a thread, or here if the threads have ended."""
    try:
        future = engine.begin(call)
    except tidesdb.Closed:
        return call()
    return await asyncio.shield(future)


class AsyncSnapshot:
    """One state of all families: the calls of `tidesdb.Snapshot`, to be awaited."""

    def __init__(self, snapshot: tidesdb.Snapshot, engine: Engine) -> None:
        self._snapshot, self._engine = snapshot, engine

    @property
    def seq(self) -> int:
        """The sequence number of the newest commit that it shows."""
        return self._snapshot.seq

    @property
    def sync_api(self) -> tidesdb.Snapshot:
        """The snapshot for calls that are not to be awaited."""
        return self._snapshot

    async def get(
        self, key: _Buffer, default: _T | None = None, *, family: _Where = None
    ) -> bytes | _T | None:
        """Returns the value of `key`, or `default`."""
        value = await self._engine.run(lambda: self._snapshot.get(key, family=_place(family)))
        return default if value is None else value

    async def multi_get(self, keys: Iterable[_Buffer], *, family: _Where = None) -> list[bytes | None]:
        """Returns the values of `keys`, with `None` for those that are missing."""
        keys = list(keys)
        return await self._engine.run(lambda: self._snapshot.multi_get(keys, family=_place(family)))

    async def contains(self, key: _Buffer, *, family: _Where = None) -> bool:
        """Returns whether `key` exists."""
        return await self._engine.run(lambda: self._snapshot.contains(key, family=_place(family)))

    async def multi_contains(self, keys: Iterable[_Buffer], *, family: _Where = None) -> list[bool]:
        """Returns which of `keys` exist."""
        keys = list(keys)
        return await self._engine.run(lambda: self._snapshot.multi_contains(keys, family=_place(family)))

    async def get_part(
        self, key: _Buffer, offset: int = 0, length: int | None = None, *, family: _Where = None
    ) -> bytes | None:
        """Returns a part of the value of `key`, or `None`."""
        return await self._engine.run(lambda: self._snapshot.get_part(key, offset, length, family=_place(family)))

    async def expiry(self, key: _Buffer, *, family: _Where = None) -> float | None:
        """Returns when the row of `key` expires, in seconds since 1970."""
        return await self._engine.run(lambda: self._snapshot.expiry(key, family=_place(family)))

    async def count(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        family: _Where = None,
    ) -> int:
        """Counts keys, by reading all of them."""
        count = lambda: self._snapshot.count(start, stop, prefix=prefix, family=_place(family))  # noqa: E731
        return await self._engine.run(count)

    async def first(self, *, family: _Where = None) -> _Row:
        """Returns the first key and its value, or `None`."""
        return await self._engine.run(lambda: self._snapshot.first(family=_place(family)))

    async def last(self, *, family: _Where = None) -> _Row:
        """Returns the last key and its value, or `None`."""
        return await self._engine.run(lambda: self._snapshot.last(family=_place(family)))

    async def explain(self, key: _Buffer, *, family: _Where = None) -> dict[str, Any]:
        """Explains what `get` of `key` does and returns."""
        return await self._engine.run(lambda: self._snapshot.explain(key, family=_place(family)))

    async def explain_range(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        rows: int = 1000,
        family: _Where = None,
    ) -> dict[str, Any]:
        """Explains a scan."""
        explain = self._snapshot.explain_range
        return await self._engine.run(lambda: explain(start, stop, rows=rows, family=_place(family)))

    async def cursor(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        keys_only: bool = False,
        family: _Where = None,
    ) -> AsyncCursor:
        """Returns a cursor."""
        make, place = self._snapshot.cursor, _place(family)
        cursor = lambda: make(start, stop, prefix=prefix, keys_only=keys_only, family=place)  # noqa: E731
        return AsyncCursor(await self._engine.run(cursor), self._engine)

    def items(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
        family: _Where = None,
    ) -> AsyncRows[tuple[bytes, bytes]]:
        """Iterates over pairs of a key and its value."""
        make, place = self._snapshot.items, _place(family)
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse, family=place))

    def keys(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
        family: _Where = None,
    ) -> AsyncRows[bytes]:
        """Iterates over keys."""
        make, place = self._snapshot.keys, _place(family)
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse, family=place))

    def values(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
        family: _Where = None,
    ) -> AsyncRows[bytes]:
        """Iterates over values."""
        make, place = self._snapshot.values, _place(family)
        return AsyncRows(self._engine, lambda: make(start, stop, prefix=prefix, reverse=reverse, family=place))

    async def aclose(self) -> None:
        """Lets go of the old versions of rows."""
        await _even_closed(self._engine, self._snapshot.close)

    async def __aenter__(self) -> AsyncSnapshot:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _place(family: _Where) -> tidesdb.Family | str | None:
    return family._family if isinstance(family, AsyncFamily) else family


class AsyncSortedRows:
    """Rows that are added in the order of their keys: the calls of `tidesdb.SortedRows`, to be awaited one after the other.

    The writer of a family ends with `commit`, and so does its `async with` block; a table builder ends with `finish`. An exception in the
    block discards the rows.

    A call that is cancelled may have added a part of its rows, and a thread may still add more. So the rows can only be discarded then: other
    calls raise `Closed`, and so does the end of the block.
    """

    def __init__(
        self,
        rows: tidesdb.SortedWriter | tidesdb.TableBuilder,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._rows, self._run = rows, run
        self._ended = self._was_cancelled = False
        # Calls that add rows now.
        self._adding = 0

    async def _add(self, call: Callable[[], None]) -> None:
        self._check()
        self._adding += 1
        try:
            await self._run(call)
        except asyncio.CancelledError:
            self._was_cancelled = True
            raise
        finally:
            self._adding -= 1

    def _check(self) -> None:
        if self._was_cancelled:
            raise tidesdb.Closed("a call that added rows was cancelled, and a part of them may be there: discard all")

    def _check_end(self) -> None:
        self._check()
        if self._adding:
            raise tidesdb.Busy("another task is adding rows")

    async def put(
        self, key: _Buffer, value: _Buffer, *, ttl: _Ttl | None = None, expires: _Expires | None = None
    ) -> None:
        """Adds a row."""
        await self._add(lambda: self._rows.put(key, value, ttl=ttl, expires=expires))

    async def put_many(
        self, items: _Items, *, ttl: _Ttl | None = None, expires: _Expires | None = None
    ) -> None:
        """Adds all pairs of a mapping, or of an iterable of pairs, which is walked in a thread: one call for many rows."""
        await self._add(lambda: self._rows.put_many(items, ttl=ttl, expires=expires))

    async def put_file(self, key: _Buffer, file: _File, *, expires: _Expires | None = None) -> None:
        """Adds a row whose value is read from a binary file, in a thread."""
        await self._add(lambda: self._rows.put_file(key, file, expires=expires))

    async def delete(self, key: _Buffer) -> None:
        """Adds that `key` is deleted."""
        await self._add(lambda: self._rows.delete(key))

    async def delete_range(self, start: _Buffer | None, stop: _Buffer | None) -> None:
        """Adds that older keys from `start` up to, and without, `stop` are deleted."""
        await self._add(lambda: self._rows.delete_range(start, stop))

    async def merge(self, key: _Buffer, operand: _Buffer | int) -> None:
        """Adds an operand of the merge operator for `key`."""
        await self._add(lambda: self._rows.merge(key, operand))

    async def commit(self) -> dict[str, int]:
        """Adds the rows to the family, as one commit: see `tidesdb.SortedWriter.commit`."""
        if not isinstance(self._rows, tidesdb.SortedWriter):
            raise TypeError("a table builder ends with finish()")
        self._check_end()
        self._ended = True
        taken: dict[str, int] = await self._run(self._rows.commit)
        return taken

    async def finish(self) -> list[Path]:
        """Completes the tables of a builder, and returns their paths: see `tidesdb.TableBuilder.finish`."""
        if not isinstance(self._rows, tidesdb.TableBuilder):
            raise TypeError("the writer of a family ends with commit()")
        self._check_end()
        self._ended = True
        paths: list[Path] = await self._run(self._rows.finish)
        return paths

    async def discard(self) -> None:
        """Removes the files that were written."""
        self._ended = True
        await asyncio.to_thread(self._rows.discard)

    async def __aenter__(self) -> AsyncSortedRows:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if kind is None and isinstance(self._rows, tidesdb.SortedWriter) and not self._was_cancelled:
            await self.commit()
            return
        await self.discard()
        if kind is None:
            self._check()


class AsyncReader:
    """Reads a database that another process has open for writing: the calls of `tidesdb.Reader`, to be awaited.

    A view is an `AsyncDb` for reading, with threads of its own once they are needed: close it.
    """

    def __init__(self, reader: tidesdb.Reader, threads: int) -> None:
        self._reader, self._threads = reader, threads

    @property
    def seq(self) -> int:
        """The sequence number of the newest commit that the newest view shows."""
        return self._reader.seq

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._reader.closed

    def view(self) -> AsyncDb:
        """Returns the newest view that `refresh` made, or the first one."""
        return AsyncDb(self._reader.view(), Engine(self._threads, False))

    async def refresh(self) -> AsyncDb:
        """Makes a view of the database as it is now, and returns it."""
        return AsyncDb(await _in_thread(self._reader.refresh), Engine(self._threads, False))

    async def writer_figures(self) -> dict[str, Any] | None:
        """Returns the figures of the process that writes the database."""
        return await _in_thread(self._reader.writer_figures)

    async def close(self) -> None:
        """Closes the reader. Its views stay usable until they are closed."""
        await _in_thread(self._reader.close)

    async def __aenter__(self) -> AsyncReader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _until_cancelled(
    progress: Callable[[int, int], object] | None, call: Callable[[Callable[[int, int], object]], _T]
) -> _T:
    """Runs a call with a progress in a thread. If the task is cancelled, or its coroutine is closed, the call ends with its next piece."""
    cancelled = False

    def show(done: int, total: int) -> None:
        if cancelled:
            raise asyncio.CancelledError
        if progress is not None:
            progress(done, total)

    try:
        return await _in_thread(lambda: call(show))
    except BaseException:
        cancelled = True
        raise


class AsyncBackups:
    """Backups of databases in a folder: the calls of `tidesdb.Backups`, to be awaited. A task that is cancelled ends `create`, `verify`, `restore` and
    `prove` soon; the other calls go on."""

    def __init__(self, path: _Path, *, must_exist: bool = False) -> None:
        self._backups = tidesdb.Backups(path, must_exist=must_exist)

    async def create(
        self,
        db: AsyncDb | tidesdb.Db,
        *,
        prove: _Path | None = None,
        bytes_per_second: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> dict[str, Any]:
        """Makes a generation of `db`. `progress(bytes_done, bytes_total)` is called in a thread."""
        of = db._db if isinstance(db, AsyncDb) else db
        create = self._backups.create
        return await _until_cancelled(
            progress,
            lambda show: create(of, prove=prove, bytes_per_second=bytes_per_second, progress=show),
        )

    async def list(self) -> _Dicts:
        """Returns all generations, by number."""
        return await _in_thread(self._backups.list)

    async def verify(
        self, number: int, *, bytes_per_second: int = 0, progress: Callable[[int, int], object] | None = None
    ) -> dict[str, Any]:
        """Reads all bytes of a generation and compares them with their checksums."""
        return await _until_cancelled(
            progress,
            lambda show: self._backups.verify(number, bytes_per_second=bytes_per_second, progress=show),
        )

    async def restore(
        self,
        number: int,
        path: _Path,
        *,
        bytes_per_second: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Restores a generation to `path`, a new or empty folder."""
        await _until_cancelled(
            progress,
            lambda show: self._backups.restore(number, path, bytes_per_second=bytes_per_second, progress=show),
        )

    async def prove(
        self,
        number: int,
        scratch: _Path,
        *,
        bytes_per_second: int = 0,
        progress: Callable[[int, int], object] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Restores a generation to the folder `scratch`, opens it, reads each row, and removes it again."""
        prove = self._backups.prove
        return await _until_cancelled(
            progress,
            lambda show: prove(
                number, scratch, bytes_per_second=bytes_per_second, progress=show, **options
            ),
        )

    async def delete(self, number: int) -> None:
        """Deletes a generation, and what no other one needs."""
        await _in_thread(lambda: self._backups.delete(number))

    async def prune(
        self, *, keep_last: int = 0, keep_younger: float | timedelta | None = None
    ) -> dict[str, Any]:
        """Deletes the generations that no rule keeps."""
        return await _in_thread(lambda: self._backups.prune(keep_last=keep_last, keep_younger=keep_younger))

    async def repair(self) -> _Dicts:
        """Makes a damaged or missing index again."""
        return await _in_thread(self._backups.repair)


class AsyncBatch:
    """Writes that are committed together at the end of the block, or discarded if it ends with an exception.

    Its calls are not awaited. They keep the keys and values; the engine copies them with the commit. They use the default family, or the one named by
    `family`.
    """

    def __init__(self, db: tidesdb.Db, engine: Engine) -> None:
        self._db, self._engine = db, engine
        self._writes: list[Write] = []
        # How many of them, at the front, are back from commits that failed.
        self._back = 0
        # Changes with each `clear`: what was discarded does not come back.
        self._cleared = 0

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

    def append(self, other: AsyncBatch) -> None:
        """Appends the writes of another batch behind those of this one. The other batch keeps them."""
        self._writes += other._writes

    def clear(self) -> None:
        """Discards what is in the batch."""
        self._writes, self._back = [], 0
        self._cleared += 1

    def __len__(self) -> int:
        """The number of calls that are in the batch."""
        return len(self._writes)

    def __bool__(self) -> bool:
        return True

    def __setitem__(self, key: _Buffer, value: _Buffer) -> None:
        self.put(key, value)

    def __delitem__(self, key: _Buffer) -> None:
        self.delete(key)

    def _commit(self, engine: Engine) -> asyncio.Future[int]:
        """Hands the writes over. They come back, before those that were made since, if nothing of them was done."""
        writes, cleared = self._writes, self._cleared

        def failed(error: BaseException) -> None:
            if cleared == self._cleared and not isinstance(error, tidesdb.CommitUnknown):
                self._writes[self._back : self._back] = writes
                self._back += len(writes)

        future = engine.write(Write.all(self._db, writes), failed)
        self._writes, self._back = [], 0
        return future

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._commit(self._engine)
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

    async def contains(
        self, key: _Buffer, *, family: AsyncFamily | None = None, tracked: bool = True
    ) -> bool:
        """Returns whether `key` exists."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.contains(key, family=handle, tracked=tracked))

    async def multi_contains(
        self, keys: Iterable[_Buffer], *, family: AsyncFamily | None = None
    ) -> list[bool]:
        """Returns which of `keys` exist."""
        tx, handle, keys = self._tx, _handle(family), list(keys)
        return await self._run(lambda: tx.multi_contains(keys, family=handle))

    async def get_part(
        self, key: _Buffer, offset: int = 0, length: int | None = None, *, family: AsyncFamily | None = None
    ) -> bytes | None:
        """Returns a part of the value of `key`, or `None`."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.get_part(key, offset, length, family=handle))

    async def expiry(self, key: _Buffer, *, family: AsyncFamily | None = None) -> float | None:
        """Returns when the row of `key` expires, in seconds since 1970."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.expiry(key, family=handle))

    async def count(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        family: AsyncFamily | None = None,
    ) -> int:
        """Counts keys, by reading all of them, which then count as read."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.count(start, stop, prefix=prefix, family=handle))

    async def first(self, *, family: AsyncFamily | None = None) -> _Row:
        """Returns the first key and its value, or `None`."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.first(family=handle))

    async def last(self, *, family: AsyncFamily | None = None) -> _Row:
        """Returns the last key and its value, or `None`."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.last(family=handle))

    async def cursor(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        keys_only: bool = False,
        family: AsyncFamily | None = None,
    ) -> AsyncCursor:
        """Returns a cursor over the rows as the transaction sees them when it is made."""
        make, handle = self._tx.cursor, _handle(family)
        cursor = lambda: make(start, stop, prefix=prefix, keys_only=keys_only, family=handle)  # noqa: E731
        return AsyncCursor(await self._run(cursor), self._db._engine)

    async def pop(self, key: _Buffer, *, family: AsyncFamily | None = None) -> bytes | None:
        """Deletes `key` and returns its value, or `None`."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.pop(key, None, family=handle))

    async def replace(
        self, key: _Buffer, value: _Buffer, *, family: AsyncFamily | None = None
    ) -> bytes | None:
        """Sets `key` to `value` and returns what it was, or `None`."""
        tx, handle = self._tx, _handle(family)
        return await self._run(lambda: tx.replace(key, value, family=handle))

    async def put_many(
        self,
        items: _Items,
        *,
        ttl: _Ttl | None = None,
        expires: _Expires | None = None,
        family: AsyncFamily | None = None,
    ) -> None:
        """Puts all pairs of a mapping, or of an iterable of pairs, which is walked in a thread."""
        tx, handle = self._tx, _handle(family)
        await self._run(lambda: tx.put_many(items, ttl=ttl, expires=expires, family=handle))

    async def _change(self, change: Callable[[], None]) -> None:
        """Changes the transaction, in memory: here, unless a thread uses it."""
        if self._calls:
            await self._run(change)
        else:
            change()

    async def delete(self, key: _Buffer, *, family: AsyncFamily | None = None) -> None:
        """Deletes `key`."""
        tx, handle = self._tx, _handle(family)
        await self._change(lambda: tx.delete(key, family=handle))

    async def single_delete(self, key: _Buffer, *, family: AsyncFamily | None = None) -> None:
        """Deletes a key that was put at most once since its last delete."""
        tx, handle = self._tx, _handle(family)
        await self._change(lambda: tx.single_delete(key, family=handle))

    async def delete_range(
        self, start: _Buffer | None, stop: _Buffer | None, *, family: AsyncFamily | None = None
    ) -> None:
        """Deletes the keys from `start` up to, and without, `stop`."""
        tx, handle = self._tx, _handle(family)
        await self._change(lambda: tx.delete_range(start, stop, family=handle))

    async def delete_prefix(self, prefix: _Buffer, *, family: AsyncFamily | None = None) -> None:
        """Deletes the keys that begin with `prefix`."""
        tx, handle = self._tx, _handle(family)
        await self._change(lambda: tx.delete_prefix(prefix, family=handle))

    async def savepoint(self) -> tidesdb.Savepoint:
        """Makes a savepoint for `rollback_to`."""
        tx = self._tx
        return await self._run(tx.savepoint) if self._calls else tx.savepoint()

    async def rollback_to(self, savepoint: tidesdb.Savepoint) -> None:
        """Undoes the writes since `savepoint`."""
        tx = self._tx
        await self._change(lambda: tx.rollback_to(savepoint))

    async def release(self, savepoint: tidesdb.Savepoint) -> None:
        """Forgets a savepoint; its writes stay."""
        tx = self._tx
        await self._change(lambda: tx.release(savepoint))

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

    def keys(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
        family: AsyncFamily | None = None,
    ) -> AsyncRows[bytes]:
        """Iterates over keys. What was fetched counts as read."""
        make, handle = self._tx.keys, _handle(family)
        rows = lambda: make(start, stop, prefix=prefix, reverse=reverse, family=handle)  # noqa: E731
        return AsyncRows(self._db._engine, rows)

    def values(
        self,
        start: _Buffer | None = None,
        stop: _Buffer | None = None,
        *,
        prefix: _Buffer | None = None,
        reverse: bool = False,
        family: AsyncFamily | None = None,
    ) -> AsyncRows[bytes]:
        """Iterates over values. What was fetched counts as read."""
        make, handle = self._tx.values, _handle(family)
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
