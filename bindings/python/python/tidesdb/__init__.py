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

from . import _calls, _mapping, _tidesdb
from ._calls import profile
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
from ._mapping import Mapping
from ._tidesdb import (
    Backups,
    Batch,
    Cursor,
    Db,
    Family,
    MergeOperator,
    Reader,
    Resources,
    Rows,
    Savepoint,
    Snapshot,
    SortedRows,
    SortedWriter,
    TableBuilder,
    Transaction,
    __version__,
    destroy,
    open,
    open_reader,
    writer_figures,
    writer_history,
)
from ._values import ValueReader, ValueWriter

__all__ = [
    "Backups",
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
    "Mapping",
    "MemoryLimit",
    "MergeFailed",
    "MergeOperator",
    "NoSpace",
    "NotBuiltIn",
    "NotFound",
    "Poisoned",
    "ReadOnly",
    "Reader",
    "Resources",
    "Rows",
    "Savepoint",
    "Snapshot",
    "SortedRows",
    "SortedWriter",
    "TableBuilder",
    "Transaction",
    "ValueReader",
    "ValueWriter",
    "__version__",
    "destroy",
    "open",
    "open_reader",
    "profile",
    "writer_figures",
    "writer_history",
]

Db.transact = _calls.transact
Family.modify = _calls.modify
Family.mapping = _mapping.mapping

_atexit.register(_tidesdb.close_all)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_tidesdb.forked)
