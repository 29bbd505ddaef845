"""A family as a `MutableMapping`: CPython's own tests of mappings pass, and what they do not ask is tested here."""

import collections.abc
import contextlib
import itertools
import pickle
import shelve
import time

import pytest

import tidesdb

mapping_tests = pytest.importorskip("test.mapping_tests", reason="this Python has no tests of its own")


@pytest.fixture(autouse=True)
def folder(request, tmp_path):
    """The folder of the databases of one test of `unittest`."""
    Fresh.databases, Fresh.paths = [], (tmp_path / str(n) for n in itertools.count())
    yield
    for db in Fresh.databases:
        db.close()


class Fresh(tidesdb.Mapping):
    """A mapping of a new database."""

    databases, paths = [], iter(())

    def __init__(self, rows=()):
        db = tidesdb.open(next(Fresh.paths), sync="none")
        Fresh.databases.append(db)
        super().__init__(db)
        self.update(rows)


class TestBytes(mapping_tests.BasicTestMappingProtocol):
    type2test = Fresh

    def _reference(self):
        return {b"1": b"2", b"key1": b"value1", b"key2": b"\0\xff"}


class Objects(collections.abc.MutableMapping):
    """Any keys and values, as the wider tests have them, in a mapping of bytes."""

    def __init__(self, *args, **rows):
        self.bytes = Fresh()
        self.update(*args, **rows)

    def __getitem__(self, key):
        return pickle.loads(self.bytes[pickle.dumps(key)])

    def __setitem__(self, key, value):
        self.bytes[pickle.dumps(key)] = pickle.dumps(value)

    def __delitem__(self, key):
        del self.bytes[pickle.dumps(key)]

    def __contains__(self, key):
        return pickle.dumps(key) in self.bytes

    def __iter__(self):
        return map(pickle.loads, self.bytes)

    def __len__(self):
        return len(self.bytes)

    def copy(self):
        return type(self)(self)

    @classmethod
    def fromkeys(cls, keys, value=None):
        return cls((key, value) for key in keys)


class TestObjects(mapping_tests.TestMappingProtocol):
    type2test = Objects

    # A value that was read is a copy: the wider tests change the one that they got, and ask again. And they count on a class whose `__new__`
    # makes another one, which only a `dict` has.
    test_setdefault = mapping_tests.BasicTestMappingProtocol.test_setdefault
    test_fromkeys = None


def test_shelve(tmp_path):
    with tidesdb.open(tmp_path / "db") as db, shelve.Shelf(db.mapping()) as shelf:
        shelf["a"] = {"n": 1}
        shelf["b"] = [1, 2]
        assert shelf["a"] == {"n": 1} and sorted(shelf) == ["a", "b"] and len(shelf) == 2
        assert "a" in shelf and "c" not in shelf
        del shelf["a"]
        assert dict(shelf) == {"b": [1, 2]} and shelf.pop("b") == [1, 2] and not shelf


def test_views(db):
    rows = db.mapping()
    rows.update({b"a": b"1", b"b": b"2", b"c": b"2"})
    keys, values, items = rows.keys(), rows.values(), rows.items()
    for _ in range(2):  # they can be asked again
        assert b"a" in keys and b"d" not in keys
        assert b"2" in values and b"3" not in values
        assert (b"b", b"2") in items and (b"b", b"1") not in items and (b"d", b"2") not in items
    assert [list(view) for view in (keys, values)] == [[b"a", b"b", b"c"], [b"1", b"2", b"2"]]
    assert list(reversed(rows)) == list(reversed(keys)) == [b"c", b"b", b"a"]
    assert list(reversed(values)) == [b"2", b"2", b"1"] and list(reversed(items))[0] == (b"c", b"2")
    assert [len(view) for view in (keys, values, items)] == [3, 3, 3]
    assert keys & {b"a", b"d"} == {b"a"} and items - {(b"a", b"1")} == {(b"b", b"2"), (b"c", b"2")}
    rows[b"d"] = b"4"
    assert b"d" in keys and len(keys) == 4


def test_equality(db, tmp_path):
    rows = db.mapping()
    rows.update({b"a": b"1", b"b": b"2"})
    assert rows == {b"a": b"1", b"b": b"2"} and {b"b": b"2", b"a": b"1"} == rows
    assert rows != {b"a": b"1"} and rows != {b"a": b"1", b"b": b"3"} and rows != {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert rows != 7 and rows == db.mapping()
    with tidesdb.open(tmp_path / "other") as other:
        assert rows != other.mapping()
        other.update(rows)
        assert rows == other.mapping()
    with pytest.raises(TypeError):
        hash(rows)


def test_what_differs_from_a_dict_is_said(db):
    rows = db.mapping()
    assert isinstance(rows, collections.abc.MutableMapping) and rows.family is db
    assert repr(rows) == f"<tidesdb.Mapping of {db!r}>"
    rows[b"a"] = b"1"
    rows[b"b"] = b"2"
    assert rows.popitem() == (b"b", b"2")  # the last key
    with pytest.raises(KeyError):
        del rows[b"missing"]
    for wrong in (lambda: "a" in rows, lambda: rows["a"], lambda: rows.update(a=b"1"), lambda: rows.setdefault(b"x", None)):
        with pytest.raises(TypeError):
            wrong()
    for key in rows:  # one state, whatever is written meanwhile
        rows[key + b"x"] = b"3"
    assert list(rows) == [b"a", b"ax"]
    with pytest.raises(ValueError):
        rows.update([(b"p", b"1"), (b"q",)])
    assert b"p" not in rows  # all of it or nothing


def test_a_family_that_is_closed(path):
    with tidesdb.open(path) as db:
        rows, keys = db.mapping(), db.mapping().keys()
    for call in (lambda: rows[b"a"], lambda: len(rows), lambda: bool(rows), lambda: list(keys), lambda: b"a" in keys, rows.popitem):
        with pytest.raises(tidesdb.Closed):
            call()


def test_in_of_rows(db):
    db.update({b"%d" % n: b"v%d" % n for n in range(100)})
    assert b"7" in db.keys() and b"x" not in db.keys() and (b"7", b"v7") in db.items() and b"v7" in db.values()
    for reverse in (False, True):
        keys = db.keys(b"2", b"5", reverse=reverse)
        first = next(keys)
        assert all(key in keys for key in (b"2", b"4", b"49")) and first in keys  # wherever it stands
        assert b"1" not in keys and b"5" not in keys and b"" not in keys and "2" not in keys and 7 not in keys
        rest = sorted([first, *keys])
        assert rest == sorted(b"%d" % n for n in range(100) if b"2" <= b"%d" % n < b"5")
        with pytest.raises(ValueError, match="have ended"):
            b"2" in keys
    items = db.items(prefix=b"1")
    assert (b"1", b"v1") in items and (b"1", b"v2") not in items and (b"2", b"v2") not in items and b"1" not in items
    values = db.values(prefix=b"1")
    assert b"v11" in values and b"v2" not in values and next(values) == b"v1"
    db[b"new"] = b"1"
    keys = db.keys()
    db[b"newer"] = b"1"
    assert b"new" in keys and b"newer" not in keys  # the state of the iterator
    long = db.family_or_create("long")
    long.update({b"%d" % n: bytes([n]) * 100_000 for n in range(5)})
    items = long.items()
    assert next(items)[0] == b"0" and (b"3", b"\x03" * 100_000) in items
    assert [key for key, _ in items] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 100_000])
def test_in_of_rows_loses_no_row_when_the_one_it_stands_on_expires(db, reverse, size):
    """`in` goes back to that row, and there is another one."""
    keys = [b"%02d" % n for n in range(30)]
    expiring = (0, 6, 7, 12, 13, 22, 23, 29)  # where an iterator stands after it has copied rows in advance, from either end
    for n, key in enumerate(keys):
        db.put(key, b"v" * size, ttl=0.3 if n in expiring else None)
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(db.items(reverse=reverse)) for _ in keys]
        seen = [rows.fetch(n + 1) for n, rows in enumerate(started)]
        time.sleep(0.5)
        db.flush()  # an iterator that seeks moves to the new tables, and judges the expiry of rows anew
        for rows, before in zip(started, seen, strict=True):
            try:
                assert keys[5] + b"x" not in db.keys() and (keys[5], b"") not in rows
            except ValueError:
                continue  # they had ended
            after = [key for key, _ in rows]
            all_seen = [key for key, _ in before] + after
            assert all_seen == sorted(set(all_seen), reverse=reverse)
            assert set(all_seen) >= {key for n, key in enumerate(keys) if n not in expiring}


def test_in_of_rows_uses_the_order_of_the_family(db):
    words = db.create_family("words", comparator="case_insensitive")
    words[b"Fig"] = b"1"
    assert b"fIG" in words and b"fIG" in words.keys() and (b"fig", b"1") in words.items() and b"fi" not in words.keys()
