"""The threads of `tidesdb.aio`.

Reads, and calls that take long, are made by a few threads. Writes are committed by one more, in the order of the calls: all that wait at the same
time share one sync. It takes them from a queue of its own, so no task has to go on for a write that was handed over to be committed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, TypeVar

from ._errors import Closed, Forked
from ._tidesdb import Write, write_group

if TYPE_CHECKING:
    from . import Db

_T = TypeVar("_T")

# Writes that share one sync, at most, so that the first of them does not wait long.
_GROUP_MAX = 1024


class _Waiting(NamedTuple):
    """A write, or nothing, and what waits for it."""

    write: Write | None
    future: asyncio.Future[int]
    # Called in the loop with the error of a commit that failed, before the task goes on.
    failed: Callable[[BaseException], None] | None


class Engine:
    """The threads of a database, and what waits for them."""

    def __init__(self, threads: int, sync: bool) -> None:
        # Whether a commit is durable before it is acknowledged.
        self.sync = sync
        # Set once it is open.
        self.database: Db | None = None
        self._process = os.getpid()
        self._readers = ThreadPoolExecutor(threads, "tidesdb-read")
        self._committer = ThreadPoolExecutor(1, "tidesdb-commit")
        self._lock = threading.Lock()
        # What is to be committed, in the order of the calls, and what waits for it.
        self._writes: deque[_Waiting] = deque()
        # Whether the committer will look for writes again.
        self._is_committing = False
        self._closing: Future[None] | None = None

    async def open(self, call: Callable[[], Db]) -> Db:
        """Opens the database. If that fails, or the task is cancelled meanwhile, what was opened is closed and the threads end."""
        opening = self._committer.submit(call)
        try:
            return await asyncio.shield(asyncio.wrap_future(opening))
        except BaseException:
            self._committer.submit(_close_again, opening)
            self._shutdown()
            raise

    def _check(self) -> None:
        """A child of a fork has none of the threads: it would wait for them for ever."""
        if os.getpid() != self._process:
            raise Forked("the database belongs to the parent process, with its threads and its lock: open a reader in the child")

    def begin(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Begins `call` in a thread."""
        self._check()
        try:
            return asyncio.get_running_loop().run_in_executor(self._readers, call)
        except RuntimeError as error:  # the threads have ended
            raise Closed("the database is closed") from error

    async def run(self, call: Callable[[], _T]) -> _T:
        """Runs `call` in a thread. It goes on if the task is cancelled, unless it has not begun."""
        return await self.begin(call)

    def write(
        self, write: Write | None, failed: Callable[[BaseException], None] | None = None
    ) -> asyncio.Future[int]:
        """Hands `write` over. Returns a future for its commit; without a write, for those of all that were handed over before."""
        self._check()
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._closing is not None:  # or the committer would never come to the close
                raise Closed("the database is closed")
            if not self._is_committing:
                try:
                    self._committer.submit(self._commit)
                except RuntimeError as error:  # the threads have ended
                    raise Closed("the database is closed") from error
                self._is_committing = True
            self._writes.append(_Waiting(write, future, failed))
        return future

    def _commit(self) -> None:
        """Commits what is in the queue, group by group."""
        while True:
            with self._lock:
                group = [self._writes.popleft() for _ in range(min(len(self._writes), _GROUP_MAX))]
                if not group:
                    self._is_committing = False
                    return
            writes = [one.write for one in group if one.write is not None]
            results: list[int | BaseException]
            try:
                assert self.database is not None
                results = write_group(self.database, writes, self.sync) if writes else []
            except BaseException as error:
                results = [error] * len(writes)
            committed = iter(results)
            done = [(one.future, 0 if one.write is None else next(committed), one.failed) for one in group]
            del group, writes, results  # lets go of the keys and values before the tasks go on
            _deliver(done)
            del done

    async def drain(self) -> None:
        """Waits until everything that was handed over is committed, and for nothing that is handed over later."""
        try:
            await self.write(None)
        except Forked:
            raise
        except Closed:
            return

    async def close(self, db: Db) -> None:
        """Closes `db` once everything that was handed over is committed. A second call waits for the first and has its result."""
        self._check()
        with self._lock:
            if self._closing is None:
                self._closing = self._committer.submit(db.close)
                self._shutdown()
        # A task that is cancelled does not end the close.
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _shutdown(self) -> None:
        """Ends the threads once they have nothing to do."""
        self._readers.shutdown(wait=False)
        self._committer.shutdown(wait=False)


def _close_again(opening: Future[Db]) -> None:
    """Closes a database that nobody waits for any more."""
    if opening.exception() is None:
        opening.result().close()


def settle(future: asyncio.Future[_T], result: _T | BaseException) -> None:
    """Tells the task that waits. One that was cancelled does not."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def fail(futures: Iterable[asyncio.Future[Any]], error: BaseException) -> None:
    """Tells all tasks that wait."""
    for future in futures:
        settle(future, error)


_Settled = tuple["asyncio.Future[int]", "int | BaseException", "Callable[[BaseException], None] | None"]


def _deliver(done: list[_Settled]) -> None:
    """Settles futures from another thread."""
    loops: dict[asyncio.AbstractEventLoop, list[_Settled]] = {}
    for one in done:
        loops.setdefault(one[0].get_loop(), []).append(one)
    for loop, settled in loops.items():
        try:
            loop.call_soon_threadsafe(_settle_all, settled)
        except RuntimeError:
            pass  # the loop is closed: no task waits


def _settle_all(settled: list[_Settled]) -> None:
    for future, result, failed in settled:
        if failed is not None and isinstance(result, BaseException):
            failed(result)
        settle(future, result)
