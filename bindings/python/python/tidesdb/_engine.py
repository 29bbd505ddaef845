"""The threads of `tidesdb.aio`.

Reads, and calls that take long, are made by a few threads. Writes are committed by one more, in the order of the calls: all that wait at the same
time share one sync. It takes them from a queue of its own, so no task has to go on for a write that was handed over to be committed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Iterable, TypeVar

from ._errors import Closed
from ._tidesdb import Write, write_group

if TYPE_CHECKING:
    from . import Db

_T = TypeVar("_T")

# Writes that share one sync, at most, so that the first of them does not wait long.
_GROUP_MAX = 1024


class Engine:
    """The threads of a database, and what waits for them."""

    def __init__(self, threads: int, sync: bool) -> None:
        # Whether a commit is durable before it is acknowledged.
        self.sync = sync
        self._readers = ThreadPoolExecutor(threads, "tidesdb-read")
        self._committer = ThreadPoolExecutor(1, "tidesdb-commit")
        self._lock = threading.Lock()
        # What is to be committed, in the order of the calls, and what waits for it.
        self._writes: deque[tuple[Write, asyncio.Future[int]]] = deque()
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

    def begin(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Begins `call` in a thread."""
        try:
            return asyncio.get_running_loop().run_in_executor(self._readers, call)
        except RuntimeError as error:  # the threads have ended
            raise Closed("the database is closed") from error

    async def run(self, call: Callable[[], _T]) -> _T:
        """Runs `call` in a thread. It goes on if the task is cancelled, unless it has not begun."""
        return await self.begin(call)

    def write(self, write: Write) -> asyncio.Future[int]:
        """Hands `write` over. Returns a future for its commit."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._is_committing:
                try:
                    self._committer.submit(self._commit)
                except RuntimeError as error:  # the threads have ended
                    raise Closed("the database is closed") from error
                self._is_committing = True
            self._writes.append((write, future))
        return future

    def _commit(self) -> None:
        """Commits what is in the queue, group by group."""
        while True:
            with self._lock:
                group = [self._writes.popleft() for _ in range(min(len(self._writes), _GROUP_MAX))]
                if not group:
                    self._is_committing = False
                    return
            writes, futures = [write for write, _ in group], [future for _, future in group]
            results: list[int | BaseException]
            try:
                results = write_group(writes, self.sync)
            except BaseException as error:
                results = [error] * len(group)
            del group, writes  # lets go of the keys and values before the tasks go on
            _deliver(futures, results)
            del futures, results

    async def drain(self) -> None:
        """Waits until everything that was handed over is committed."""
        try:
            idle = self._committer.submit(lambda: None)  # the thread does one thing after the other
        except RuntimeError:  # the threads have ended
            return
        await asyncio.wrap_future(idle)

    async def close(self, db: Db) -> None:
        """Closes `db` once everything that was handed over is committed. A second call waits for the first and has its result."""
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


def _deliver(futures: list[asyncio.Future[_T]], results: list[_T | BaseException]) -> None:
    """Settles futures from another thread."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[_T], _T | BaseException]]] = {}
    for future, result in zip(futures, results, strict=True):
        loops.setdefault(future.get_loop(), []).append((future, result))
    for loop, settled in loops.items():
        try:
            loop.call_soon_threadsafe(_settle_all, settled)
        except RuntimeError:
            pass  # the loop is closed: no task waits


def _settle_all(settled: list[tuple[asyncio.Future[_T], _T | BaseException]]) -> None:
    for future, result in settled:
        settle(future, result)
