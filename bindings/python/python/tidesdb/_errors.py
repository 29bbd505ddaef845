"""The exceptions: one class for each kind of error of the engine, whose words are the message."""


class Error(Exception):
    """What every exception of the engine is.

    `retryable` says whether the same call can succeed later without opening the database again.
    """

    __module__ = "tidesdb"
    retryable = False


class IoError(Error, OSError):
    """A system call failed. `errno` is the system's number, if there is one, and `file` the file."""

    __module__ = "tidesdb"
    file = None


class Corruption(Error):
    """Bytes on disk are not those that were written: `file` and `offset` say where. Nothing was changed."""

    __module__ = "tidesdb"
    file = None
    offset = None


class CommitUnknown(Error):
    """After the database is opened again, the commit is there as a whole or not at all. `seq` is its number, or 0."""

    __module__ = "tidesdb"
    seq = 0


class Poisoned(Error):
    """Writes are refused since an earlier failure. Open the database again."""

    __module__ = "tidesdb"


class NoSpace(Error, OSError):
    """The disk is full. Reads continue, and writes when there is space again."""

    __module__ = "tidesdb"
    retryable = True
    free = None
    needed = None


class Exhausted(Error):
    """The database has used up one of its number spaces."""

    __module__ = "tidesdb"


class Busy(Error):
    """The call would have to wait too long, or the object is in use."""

    __module__ = "tidesdb"
    retryable = True


class Conflict(Error):
    """Another commit changed what the transaction depends on: `family` and `key` say what. Run it again."""

    __module__ = "tidesdb"
    retryable = True
    family = None
    key = None


class Locked(Error):
    """The database is open elsewhere."""

    __module__ = "tidesdb"


class ReadOnly(Error):
    """The database was opened for reading."""

    __module__ = "tidesdb"


class Closed(Error):
    """The database, or the object, is closed."""

    __module__ = "tidesdb"


class Forked(Closed):
    """The handle belongs to the parent process."""

    __module__ = "tidesdb"


class Closing(Error):
    """The timeout of a close was over. The close goes on."""

    __module__ = "tidesdb"
    retryable = True


class NotFound(Error, LookupError):
    """There is no such database, family or snapshot. A key that is missing in `db[key]` is a `KeyError`."""

    __module__ = "tidesdb"


class Exists(Error):
    """The name is in use."""

    __module__ = "tidesdb"


class InvalidArgument(Error, ValueError):
    """An argument is outside of its domain. Nothing was done."""

    __module__ = "tidesdb"


class MergeFailed(Error):
    """The merge operator failed, or is not known. The value and its operands stay as they are."""

    __module__ = "tidesdb"


class MemoryLimit(Error, MemoryError):
    """A memory limit would be exceeded. Nothing was done."""

    __module__ = "tidesdb"
    retryable = True


class Incompatible(Error):
    """This version cannot read the files."""

    __module__ = "tidesdb"


class FormatTooNew(Incompatible):
    """A newer version wrote the files."""

    __module__ = "tidesdb"


class FormatTooOld(Incompatible):
    """The files are from before the first release."""

    __module__ = "tidesdb"


class NotBuiltIn(Incompatible):
    """The data is compressed with an algorithm that this build lacks."""

    __module__ = "tidesdb"


class Internal(Error):
    """An invariant of the engine was violated. Please report it."""

    __module__ = "tidesdb"
