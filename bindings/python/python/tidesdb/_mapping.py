"""A family as a `MutableMapping`."""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, MutableMapping, ValuesView
from collections.abc import Mapping as _AnyMapping
from typing import TYPE_CHECKING, Any, Iterable, Iterator, TypeVar, overload

if TYPE_CHECKING:
    from . import Family, _Buffer

_T = TypeVar("_T")

_MISSING = object()


class _Keys(KeysView[bytes]):
    def __init__(self, mapping: Mapping) -> None:
        super().__init__(mapping)
        self._family = mapping.family

    def __reversed__(self) -> Iterator[bytes]:
        return self._family.keys(reverse=True)


class _Values(ValuesView[bytes]):
    def __init__(self, mapping: Mapping) -> None:
        super().__init__(mapping)
        self._family = mapping.family

    def __iter__(self) -> Iterator[bytes]:
        return self._family.values()

    def __reversed__(self) -> Iterator[bytes]:
        return self._family.values(reverse=True)

    def __contains__(self, value: object) -> bool:
        return any(value == one for one in self)


class _Items(ItemsView[bytes, bytes]):
    def __init__(self, mapping: Mapping) -> None:
        super().__init__(mapping)
        self._family = mapping.family

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._family.items()

    def __reversed__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._family.items(reverse=True)


class Mapping(MutableMapping[bytes, bytes]):
    """A family as a mapping with sorted keys: `db.mapping()`, or `Mapping(family)`.

    Each change is a commit of its own. What differs from the calls of the family: `del` is a KeyError for a key that is missing, and reads
    its value; `len` reads all keys; an iteration shows one state, whatever is written meanwhile, and does not fail.
    """

    __module__ = "tidesdb"
    __slots__ = ("_family",)

    def __init__(self, family: Family) -> None:
        self._family = family

    @property
    def family(self) -> Family:
        """The family."""
        return self._family

    def __getitem__(self, key: _Buffer) -> bytes:
        return self._family[key]

    def __setitem__(self, key: _Buffer, value: _Buffer) -> None:
        self._family[key] = value

    def __delitem__(self, key: _Buffer) -> None:
        self._family.pop(key)

    def __contains__(self, key: object) -> bool:
        return key in self._family  # type: ignore[operator]  # a TypeError for what is not bytes-like

    def __iter__(self) -> Iterator[bytes]:
        return self._family.keys()

    def __reversed__(self) -> Iterator[bytes]:
        return self._family.keys(reverse=True)

    def __len__(self) -> int:
        return self._family.count()

    def __bool__(self) -> bool:
        with self._family.keys() as keys:
            return next(keys, None) is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _AnyMapping):
            return NotImplemented
        rows = 0
        for key, value in self._family.items():
            if other.get(key, _MISSING) != value:
                return False
            rows += 1
        return rows == len(other)

    @overload
    def get(self, key: _Buffer, /, default: None = None) -> bytes | None: ...
    @overload
    def get(self, key: _Buffer, /, default: bytes | _T) -> bytes | _T: ...
    def get(self, key: _Buffer, /, default: Any = None) -> Any:
        """Returns the value of `key`, or `default`."""
        return self._family.get(key, default)

    def keys(self) -> KeysView[bytes]:
        """A view of the keys, as of a `dict`: it can be asked and walked again."""
        return _Keys(self)

    def values(self) -> ValuesView[bytes]:
        """A view of the values."""
        return _Values(self)

    def items(self) -> ItemsView[bytes, bytes]:
        """A view of the pairs of a key and its value."""
        return _Items(self)

    @overload
    def pop(self, key: _Buffer, /) -> bytes: ...
    @overload
    def pop(self, key: _Buffer, /, default: bytes | _T) -> bytes | _T: ...
    def pop(self, key: _Buffer, /, default: Any = _MISSING) -> Any:
        """Deletes `key` and returns its value, or `default`; KeyError if there is neither. Atomic."""
        return self._family.pop(key) if default is _MISSING else self._family.pop(key, default)

    def popitem(self) -> tuple[bytes, bytes]:
        """Deletes the last key and returns it with its value; KeyError if there is none. Atomic."""
        row = self._family.pop_last()
        if row is None:
            raise KeyError("popitem(): the family is empty")
        return row

    def setdefault(self, key: _Buffer, default: _Buffer, /) -> bytes:
        """Returns the value of `key`; if it has none, sets it to `default` first. Atomic."""
        return self._family.setdefault(key, default)

    def clear(self) -> None:
        """Deletes all keys, in one step."""
        self._family.clear()

    def update(self, other: Any = (), /, **rows: Any) -> None:
        """Puts the pairs of a mapping, or of an iterable of pairs, in one atomic commit."""
        if rows:
            raise TypeError("the names of arguments are no keys: keys are bytes")
        pairs: Iterable[Any] = other
        if isinstance(other, _AnyMapping):
            pairs = other.items()
        elif hasattr(other, "keys"):
            pairs = ((key, other[key]) for key in other.keys())
        self._family.put_many([(key, value) for key, value in pairs])

    def __repr__(self) -> str:
        return f"<tidesdb.Mapping of {self._family!r}>"


def mapping(self: Family) -> Mapping:
    """Returns the family as a `MutableMapping`: see `Mapping`."""
    return Mapping(self)
