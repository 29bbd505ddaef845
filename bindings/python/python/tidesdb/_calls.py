"""Calls of a function of the user.

They are in Python because before Python 3.14 the end of the interpreter ends a daemon thread where it stands, and the system unwinds its frames.
Below a function of the user there must then be no frame of the extension module, which cannot be unwound: the process would abort.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from ._errors import Conflict
from ._tidesdb import Profiling

if TYPE_CHECKING:
    from collections.abc import Callable

    from . import Db, Family, Transaction, _Buffer, _Isolation, _Sync

_T = TypeVar("_T")

# Seconds before a transaction is repeated: at first, and at most.
_PAUSE, _PAUSE_MAX = 20e-6, 5e-3


def transact(
    self: Db,
    body: Callable[[Transaction], _T],
    isolation: _Isolation = "serializable",
    *,
    attempts: int = 100,
    sync: _Sync | None = None,
) -> _T:
    """Calls `body(tx)` in a transaction and commits; after a conflict it repeats both, with growing pauses, up to `attempts` times.

    Returns what `body` returned. An exception of `body` rolls back.
    """
    attempt, pause = 1, _PAUSE
    while True:
        tx = self.transaction(isolation, sync=sync)
        try:
            out = body(tx)
        except BaseException:
            tx.rollback()
            raise
        if not tx.is_open:
            return out
        try:
            tx.commit()
            return out
        except Conflict:
            if attempt >= attempts:
                raise
        time.sleep(pause)
        attempt, pause = attempt + 1, min(2 * pause, _PAUSE_MAX)


def modify(self: Family, key: _Buffer, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
    """Sets `key` to what `change` returns for its value; `None` stands for no value, in both directions. Atomic.

    `change` is called again if another thread was faster. Returns the new value.
    """
    while True:
        before = self.get(key)
        after = change(before)
        if self.compare_and_swap(key, before, after):
            return after


def profile(call: Callable[[], _T]) -> tuple[_T, dict[str, Any]]:
    """Calls `call()` and returns what it returned, with a dictionary that counts what this thread read and wrote meanwhile, in all databases:
    `gets`, `seeks`, `rows`, `blocks_in_memory`, `table_reads`, `syncs` and more. What other threads do for it is not counted.
    """
    counting = Profiling()
    try:
        result = call()
    finally:
        counts = counting.end()
    return result, counts
