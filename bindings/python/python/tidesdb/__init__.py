"""TidesDB: an embedded, ordered key-value store.

    import tidesdb

    with tidesdb.open("shop.db") as db:
        db[b"apple"] = b"3"
        for key, value in db.items(b"a", b"m"):
            print(key, value)

`tidesdb.aio` has the same for asyncio. Each class and method has its own documentation: try `help(tidesdb.Db)`.
"""

import atexit as _atexit
import os as _os

from . import _calls, _tidesdb
from ._errors import (
    Busy,
    Closed,
    Closing,
    CommitUnknown,
    Conflict,
    Corruption,
    Error,
    Exhausted,
    Exists,
    Forked,
    FormatTooNew,
    FormatTooOld,
    Incompatible,
    Internal,
    InvalidArgument,
    IoError,
    Locked,
    MemoryLimit,
    MergeFailed,
    NoSpace,
    NotBuiltIn,
    NotFound,
    Poisoned,
    ReadOnly,
)
from ._tidesdb import (
    Batch,
    Cursor,
    Db,
    Family,
    MergeOperator,
    Reader,
    Rows,
    Savepoint,
    Snapshot,
    Transaction,
    __version__,
    open,
    open_reader,
)
from ._values import ValueReader, ValueWriter

__all__ = [
    "Batch",
    "Busy",
    "Closed",
    "Closing",
    "CommitUnknown",
    "Conflict",
    "Corruption",
    "Cursor",
    "Db",
    "Error",
    "Exhausted",
    "Exists",
    "Family",
    "Forked",
    "FormatTooNew",
    "FormatTooOld",
    "Incompatible",
    "Internal",
    "InvalidArgument",
    "IoError",
    "Locked",
    "MemoryLimit",
    "MergeFailed",
    "MergeOperator",
    "NoSpace",
    "NotBuiltIn",
    "NotFound",
    "Poisoned",
    "ReadOnly",
    "Reader",
    "Rows",
    "Savepoint",
    "Snapshot",
    "Transaction",
    "ValueReader",
    "ValueWriter",
    "__version__",
    "open",
    "open_reader",
]

Db.transact = _calls.transact
Family.modify = _calls.modify

_atexit.register(_tidesdb.close_all)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_tidesdb.forked)
