"""Types of the extension module."""

from typing import Any, Self, final

from _typeshed import ReadableBuffer, WriteableBuffer

from . import (
    Backups as Backups,
    Batch as Batch,
    Cursor as Cursor,
    Db as Db,
    Family as Family,
    MergeOperator as MergeOperator,
    Reader as Reader,
    Resources as Resources,
    Rows as Rows,
    Savepoint as Savepoint,
    Snapshot as Snapshot,
    SortedRows as SortedRows,
    SortedWriter as SortedWriter,
    TableBuilder as TableBuilder,
    Transaction as Transaction,
    __version__ as __version__,
    destroy as destroy,
    open as open,
    open_reader as open_reader,
    writer_figures as writer_figures,
    writer_history as writer_history,
    _Expires,
    _Items,
    _Ttl,
)

__all__ = [
    "Backups",
    "Batch",
    "Cursor",
    "Db",
    "Family",
    "MergeOperator",
    "Profiling",
    "ReadHandle",
    "Reader",
    "Resources",
    "Rows",
    "Savepoint",
    "Snapshot",
    "SortedRows",
    "SortedWriter",
    "TableBuilder",
    "Transaction",
    "Write",
    "WriteHandle",
    "__version__",
    "close_all",
    "defaults",
    "destroy",
    "forked",
    "open",
    "open_reader",
    "write_group",
    "writer_figures",
    "writer_history",
]

@final
class ReadHandle:
    def readinto(self, buffer: WriteableBuffer) -> int: ...
    def seek(self, offset: int, whence: int) -> int: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...

@final
class WriteHandle:
    def write(self, data: ReadableBuffer) -> int: ...
    def commit(self) -> int: ...
    def discard(self) -> None: ...
    def __len__(self) -> int: ...

@final
class Profiling:
    def __new__(cls) -> Self: ...
    def end(self) -> dict[str, Any]: ...

@final
class Write:
    @staticmethod
    def put(
        family: Family,
        key: ReadableBuffer,
        value: ReadableBuffer,
        ttl: _Ttl | None = None,
        expires: _Expires | None = None,
    ) -> Write: ...
    @staticmethod
    def put_many(
        family: Family, items: _Items, ttl: _Ttl | None = None, expires: _Expires | None = None
    ) -> Write: ...
    @staticmethod
    def delete(family: Family, key: ReadableBuffer) -> Write: ...
    @staticmethod
    def single_delete(family: Family, key: ReadableBuffer) -> Write: ...
    @staticmethod
    def delete_range(family: Family, start: ReadableBuffer | None, stop: ReadableBuffer | None) -> Write: ...
    @staticmethod
    def delete_prefix(family: Family, prefix: ReadableBuffer) -> Write: ...
    @staticmethod
    def merge(family: Family, key: ReadableBuffer, operand: ReadableBuffer | int) -> Write: ...
    @staticmethod
    def all(family: Family, writes: list[Write]) -> Write: ...
    @staticmethod
    def batch(batch: Batch) -> Write: ...
    @staticmethod
    def transaction(transaction: Transaction) -> Write: ...

def write_group(database: Db, writes: list[Write], sync: bool) -> list[int | BaseException]: ...
def close_all() -> None: ...
def forked() -> None: ...
def defaults() -> list[tuple[str, int, int, int, str]]: ...
