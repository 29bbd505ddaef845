"""Values as binary files."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Literal

from ._errors import Error

if TYPE_CHECKING:
    from types import TracebackType

    from _typeshed import ReadableBuffer, WriteableBuffer

    from . import Transaction
    from ._tidesdb import ReadHandle, WriteHandle


class _Raw(io.RawIOBase):
    """The unbuffered reader below a `ValueReader`."""

    def __init__(self, handle: ReadHandle) -> None:
        self._handle = handle

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._handle.readinto(buffer)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._handle.seek(offset, whence)

    def tell(self) -> int:
        return self._handle.seek(0, 1)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._handle.close()


class ValueReader(io.BufferedReader):
    """A binary file that reads one value. `len` is the length of the value."""

    __module__ = "tidesdb"

    def __init__(self, handle: ReadHandle) -> None:
        super().__init__(_Raw(handle), 64 << 10)
        self._handle = handle

    def __len__(self) -> int:
        return len(self._handle)

    def __bool__(self) -> Literal[True]:
        return True


class ValueWriter(io.RawIOBase):
    """A binary file that writes one value, which appears as a whole with `close`. `discard` gives it up.

    After `close`, `seq` is the sequence number of the commit, unless the value was added to a transaction.
    """

    __module__ = "tidesdb"

    def __init__(self, handle: WriteHandle, transaction: Transaction | None = None) -> None:
        self._handle = handle
        self._transaction = transaction
        self.seq: int | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes all of `data`."""
        return self._handle.write(data)

    def tell(self) -> int:
        """The number of bytes that were written."""
        return len(self._handle)

    def close(self) -> None:
        """Sets the key to what was written."""
        if self.closed:
            return
        super().close()
        if self._transaction is None:
            self.seq = self._handle.commit()
        else:
            self._transaction._join(self._handle)

    def discard(self) -> None:
        """Closes the file without setting the key."""
        if not self.closed:
            super().close()
            self._handle.discard()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if self.closed:
            return
        try:
            self.discard()
        except Error:  # in a child of a fork it belongs to the parent
            return
        warnings.warn(f"{self!r} was not closed: its value is discarded", ResourceWarning, stacklevel=2)
