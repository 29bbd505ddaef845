"""What a program does with keys and values."""

import asyncio
import datetime
import gc
import math
import time

import pytest

import tidesdb
import tidesdb.aio


def test_it_is_a_dictionary_with_sorted_keys(db):
    db[b"b"] = b"2"
    db[b"a"] = b"1"
    db[b"c"] = b"3"
    assert db[b"a"] == b"1"
    assert b"a" in db and b"x" not in db
    assert list(db) == [b"a", b"b", b"c"]
    assert list(reversed(db)) == [b"c", b"b", b"a"]
    assert dict(db.items()) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert list(db.values()) == [b"1", b"2", b"3"]
    del db[b"b"]
    del db[b"b"]  # a delete does not read
    assert db.get(b"b") is None and db.get(b"b", b"?") == b"?"
    with pytest.raises(KeyError) as error:
        db[b"b"]
    assert error.value.args == (b"b",)


def test_the_methods_of_a_dictionary(db):
    db.update({b"a": b"1", b"b": b"2"})
    db.update([(b"c", b"3"), [b"d", b"4"]])
    assert db.pop(b"a") == b"1" and b"a" not in db
    assert db.pop(b"a", None) is None
    with pytest.raises(KeyError):
        db.pop(b"a")
    with pytest.raises(TypeError):
        db.pop(b"a", 1, 2)
    assert db.setdefault(b"b", b"x") == b"2" and db.setdefault(b"e", bytearray(b"5")) == b"5"
    assert db.count() == 4 and db.count(b"c") == 3 and db.count(prefix=b"c") == 1
    db.clear()
    assert list(db) == [] and db
    with pytest.raises(TypeError, match="count"):
        len(db)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b"x" + b))[1:]])
def test_any_buffer_is_a_key_or_a_value(db, kind):
    key, value = kind(b"key"), kind(b"value" * 1000)
    db[key] = value
    assert db[key] == db[b"key"] == b"value" * 1000
    assert key in db
    with db.batch() as batch:
        batch[kind(b"other")] = value
    db.put(kind(b"third"), value, sync="none")
    db.put_many([(kind(b"fourth"), value)])
    assert db.multi_get([kind(b"other"), b"-", kind(b"third"), b"fourth"]) == [value, None, value, value]


@pytest.mark.parametrize("wrong", ["text", 1, memoryview(b"abcd")[::2]])
def test_what_is_no_buffer_of_bytes_is_a_type_error(db, wrong):
    calls = (
        lambda: db.get(wrong),
        lambda: db.put(b"k", wrong),
        lambda: db.put(wrong, b"v"),
        lambda: db.multi_get([b"k", wrong]),
        lambda: db.keys(wrong),
        lambda: db.put_many([(b"k", wrong)]),
        lambda: wrong in db,
    )
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert list(db) == []


def test_the_words_for_a_wrong_type_help(db):
    with pytest.raises(TypeError, match="encode"):
        db["text"] = b""
    with pytest.raises(TypeError, match="NoneType"):
        db[b"k"] = None
    with pytest.raises(TypeError, match="pairs"):
        db.put_many([b"k"])


def test_an_empty_value_is_a_value(db):
    db[b"k"] = b""
    db[b"m"] = bytearray()
    assert db[b"k"] == b"" == db[b"m"] and db.get(b"k", b"?") == b"" and b"k" in db


def test_ranges_in_both_directions(db):
    db.put_many((b"%03d" % n, b"v%d" % n) for n in range(1000))
    keys = [b"%03d" % n for n in range(1000)]
    assert list(db.keys(b"010", b"020")) == keys[10:20]
    assert list(db.keys(b"010", b"020", reverse=True)) == keys[19:9:-1]
    assert list(db.keys(None, b"002")) == keys[:2] and list(db.keys(b"998")) == keys[998:]
    assert list(db.keys(prefix=b"12")) == keys[120:130]
    assert list(db.keys(prefix=b"12", reverse=True)) == keys[129:119:-1]
    assert list(db.items(reverse=True)) == [(key, b"v%d" % int(key)) for key in reversed(keys)]
    assert list(db.keys(b"5", b"4")) == []
    with pytest.raises(TypeError):
        db.keys(b"1", prefix=b"1")


def test_rows_of_all_lengths_come_in_both_directions(db):
    rows = {b"%03d" % n: b"x" * (n * 997 % 40_000) for n in range(300)}
    db.put_many(rows)
    assert list(db.items()) == sorted(rows.items())
    assert list(db.items(reverse=True)) == sorted(rows.items(), reverse=True)
    db.compact()
    assert list(db.items()) == sorted(rows.items())
    assert list(db.values(reverse=True)) == [value for _, value in sorted(rows.items(), reverse=True)]


def test_an_iterator_reads_one_state_and_fetches_many_rows(db):
    db.put_many((b"%03d" % n, b"v") for n in range(500))
    rows = db.keys()
    assert next(rows) == b"000"
    db[b"0005"] = b"new"
    db.delete_range(b"100", b"400")
    assert rows.fetch(2) == [b"001", b"002"]
    assert rows.fetch(10_000) == [b"%03d" % n for n in range(3, 500)]
    assert rows.fetch(1) == [] and list(rows) == []
    with pytest.raises(ValueError):
        rows.fetch(0)
    with db.items() as rows:
        next(rows)
    assert list(rows) == []


def test_first_last_and_queues(db):
    assert db.first() is None and db.pop_last() is None
    db.update({b"a": b"1", b"b": b"2", b"c": b"3"})
    assert db.first() == (b"a", b"1") and db.last() == (b"c", b"3")
    assert db.pop_first() == (b"a", b"1") and db.pop_last() == (b"c", b"3")
    assert list(db) == [b"b"]


def test_atomic_changes_of_one_key(db):
    assert db.compare_and_swap(b"k", None, b"1") and not db.compare_and_swap(b"k", b"2", b"3")
    assert db.replace(b"k", b"2") == b"1" and db.replace(b"new", memoryview(b"x")) is None
    assert db.modify(b"k", lambda old: old + b"!") == b"2!" == db[b"k"]
    assert db.modify(b"k", lambda old: None) is None and b"k" not in db
    with pytest.raises(ZeroDivisionError):
        db.modify(b"k", lambda old: 1 / 0)


def test_a_cursor_moves_and_seeks(db):
    db.update({b"a": b"1", b"c": b"3", b"e": b"5"})
    with db.cursor() as cursor:
        assert not cursor.valid and cursor.key is None and cursor.value is None
        assert cursor.seek(b"b") and (cursor.key, cursor.value) == (b"c", b"3")
        assert cursor.prev() and cursor.key == b"a"
        assert not cursor.prev()
        assert cursor.seek_for_prev(b"d") and cursor.key == b"c"
        assert cursor.next() and cursor.key == b"e" and not cursor.next()
        assert cursor.last() and cursor.key == b"e" and cursor.first() and cursor.key == b"a"
        db[b"0"] = b"0"
        assert cursor.first() and cursor.key == b"a"
        cursor.refresh()
        assert cursor.first() and cursor.key == b"0"
    with pytest.raises(tidesdb.Closed):
        cursor.first()


def test_deletes_of_ranges_and_prefixes(db):
    db.put_many((b"%02d" % n, b"") for n in range(100))
    db.delete_range(b"10", b"20")
    db.delete_prefix(b"3")
    db.delete_range(b"95", None)
    db.single_delete(b"00")
    assert db.count() == 100 - 10 - 10 - 5 - 1


def test_rows_expire(db):
    db.put(b"soon", b"", ttl=0.05)
    db.put(b"delta", b"", ttl=datetime.timedelta(milliseconds=50))
    db.put(b"at", b"", expires=time.time() + 0.05)
    db.put(b"date", b"", expires=datetime.datetime.now() + datetime.timedelta(milliseconds=50))
    db.put(b"later", b"", ttl=3600)
    db.put(b"never", b"", ttl=math.inf)
    end = time.monotonic() + 30
    while db.count() > 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert list(db) == [b"later", b"never"]
    for wrong in (-1, math.nan):
        with pytest.raises(ValueError):
            db.put(b"k", b"", ttl=wrong)
    for wrong in ({"ttl": 1, "expires": 1}, {"ttl": "5"}, {"expires": "tomorrow"}):
        with pytest.raises(TypeError):
            db.put(b"k", b"", **wrong)


def test_families(db):
    users = db.create_family("users", value_threshold=100)
    users[b"ann"] = b"1"
    assert db.family("users")[b"ann"] == b"1" and b"ann" not in db
    assert users.options()["value_threshold"] == 100 and users.name == "users"
    assert db.family_or_create("users", min_levels=3).options()["min_levels"] == 3
    assert sorted(db.families()) == ["default", "users"]
    with pytest.raises(tidesdb.Exists):
        db.create_family("users")
    with pytest.raises(tidesdb.NotFound) as error:
        db.family("nobody")
    assert isinstance(error.value, LookupError)
    db.rename_family("users", "people")
    db.clone_family("people", "copy")
    db.drop_family("people")
    assert db.family("copy")[b"ann"] == b"1"
    with pytest.raises(tidesdb.NotFound):
        users.get(b"ann")
    users = db.create_family("reverse", comparator="reverse_bytewise")
    users.update({b"a": b"", b"b": b""})
    assert list(users) == [b"b", b"a"]


def test_options_have_the_names_of_the_engine(tmp_path):
    options = {"memory_limit": 64 << 20, "sync": "none", "compression": "zstd", "default_ttl": 60, "filter_bits_per_key": 12}
    with tidesdb.open(tmp_path / "a", **options) as db:
        now = db.options()
        assert db.memory_limit == 64 << 20
        assert (now["compression"], now["default_ttl"], now["filter_bits_per_key"]) == ("zstd", 60.0, 12)
        db.change_options(compression=None, value_threshold=4096)
        assert db.options()["compression"] == "none" and db.options()["value_threshold"] == 4096
    with pytest.raises(TypeError, match="did you mean \"memory_limit\""):
        tidesdb.open(tmp_path / "b", memory_limits=1)
    with pytest.raises(TypeError, match="unknown option"):
        tidesdb.open(tmp_path / "b", colour="blue")
    for wrong, what in (({"memory_limit": "1G"}, TypeError), ({"memory_limit": -1}, ValueError), ({"min_levels": 1.5}, TypeError)):
        with pytest.raises(what, match=next(iter(wrong))):
            tidesdb.open(tmp_path / "b", **wrong)
    for wrong in ({"sync": "maybe"}, {"compression": "zip"}, {"recovery": "never"}, {"filter_bits_per_key": 33}, {"comparator": "x"}):
        with pytest.raises(ValueError):
            tidesdb.open(tmp_path / "b", **wrong)
    with pytest.raises(tidesdb.NotFound):
        tidesdb.open(tmp_path / "b", create_if_missing=False)


def test_batches(db):
    users = db.create_family("users")
    with db.batch() as batch:
        batch.put(b"a", b"1")
        batch[b"b"] = b"2"
        batch.put(b"ann", b"1", family=users)
        batch.put(b"ben", b"2", family="users")
        batch.delete(b"b")
        assert b"a" not in db and len(batch) == 5 and "5" in repr(batch)
    assert list(db) == [b"a"] and list(users) == [b"ann", b"ben"]
    with pytest.raises(ZeroDivisionError), db.batch() as batch:
        batch[b"c"] = b"3"
        raise ZeroDivisionError
    assert b"c" not in db
    batch = db.batch(sync="none")
    batch.put_many({b"x": b"", b"y": b""})
    batch.delete_range(b"x", b"y")
    batch.delete_prefix(b"a")
    assert batch.commit() > 0 and len(batch) == 0
    assert list(db) == [b"y"]
    with pytest.raises(tidesdb.InvalidArgument):
        batch.put(b"x" * 70_000, b"")
    assert len(batch) == 0


def test_transactions(db):
    with db.transaction() as tx:
        tx[b"a"] = b"1"
        tx.put_many({b"b": b"2", b"c": b"3"})
        assert tx[b"a"] == b"1" and b"a" in tx and b"a" not in db
        assert list(tx.items()) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
        assert list(tx.keys(reverse=True)) == [b"c", b"b", b"a"] and tx.first() == (b"a", b"1")
        point = tx.savepoint()
        del tx[b"a"]
        tx.rollback_to(point)
        assert tx.multi_get([b"a", b"x"]) == [b"1", None] and tx.isolation == "serializable"
    assert db.count() == 3 and not tx.is_open
    with pytest.raises(ZeroDivisionError), db.transaction("snapshot") as tx:
        tx[b"d"] = b"4"
        raise ZeroDivisionError
    assert b"d" not in db and not tx.is_open and "ended" in repr(tx)
    with pytest.raises(tidesdb.InvalidArgument):
        tx.put(b"d", b"")
    with pytest.raises(ValueError, match="serializable"):
        db.transaction("strict")


def test_a_conflict_is_an_exception_and_transact_repeats(db):
    db[b"n"] = b"0"
    with pytest.raises(tidesdb.Conflict) as error, db.transaction() as tx:
        tx.get(b"n")
        tx[b"m"] = b"1"
        db[b"n"] = b"1"
    assert error.value.retryable and error.value.key == b"n" and error.value.family == "default"
    assert b"m" not in db

    calls = []

    def body(tx):
        value = int(tx[b"n"])
        if not calls:
            db[b"n"] = b"10"
        calls.append(value)
        tx[b"n"] = b"%d" % (value + 1)
        return value + 1

    assert db.transact(body) == 11 and calls == [1, 10] and db[b"n"] == b"11"
    calls.clear()
    with pytest.raises(tidesdb.Conflict):
        db.transact(body, attempts=1)
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda tx: 1 / 0)
    assert db.transact(lambda tx: tx.rollback()) is None


def test_snapshots(db):
    users = db.create_family("users")
    db[b"a"] = b"1"
    users[b"u"] = b"1"
    with db.snapshot() as snapshot:
        db[b"a"] = b"2"
        del users[b"u"]
        assert snapshot[b"a"] == b"1" and snapshot.get(b"u", family=users) == b"1"
        assert list(snapshot.items()) == [(b"a", b"1")] and snapshot.contains(b"u", family="users")
        assert snapshot.multi_get([b"a", b"b"]) == [b"1", None] and snapshot.first() == (b"a", b"1")
        assert snapshot.seq < db.put(b"z", b"")
    with pytest.raises(tidesdb.Closed):
        snapshot.get(b"a")


def test_the_past_can_be_read(tmp_path):
    with tidesdb.open(tmp_path / "db", history_bytes=1 << 20) as db:
        seq = db.put(b"a", b"1")
        db[b"a"] = b"2"
        with db.snapshot_at(seq) as past:
            assert past[b"a"] == b"1"


def test_the_class_opens_a_database_too(tmp_path):
    with tidesdb.Db(tmp_path / "db", sync="none") as db:
        db[b"a"] = b"1"
        assert "Rows of" in repr(db.items()) and "no key" in repr(db.cursor())
        with db.cursor() as cursor:
            cursor.first()
            assert "b'a'" in repr(cursor)
    with pytest.raises(TypeError):
        tidesdb.Family()


def test_what_is_written_is_there_after_a_reopen(path):
    with tidesdb.open(path) as db:
        db[b"a"] = b"1"
        db.sync()
        db.flush()
        db[b"b"] = b"2"
    with tidesdb.open(path, read_only=True) as db:
        assert dict(db.items()) == {b"a": b"1", b"b": b"2"}
        with pytest.raises(tidesdb.ReadOnly):
            db[b"c"] = b""


def test_a_reader_beside_the_writer(path, db):
    db[b"a"] = b"1"
    with tidesdb.open_reader(path) as reader:
        with reader.view() as view:
            assert view[b"a"] == b"1"
        db[b"a"] = b"2"
        with reader.refresh() as view:
            assert view[b"a"] == b"2" and reader.seq > 0
            with pytest.raises(tidesdb.ReadOnly):
                view[b"a"] = b""
        with pytest.raises(tidesdb.Closed):
            view.get(b"a")
        assert reader.view()[b"a"] == b"2"
        kept = reader.view()
    assert kept[b"a"] == b"2"
    with pytest.raises(tidesdb.Closed):
        reader.refresh()


def test_merge_operators(tmp_path):
    path = tmp_path / "db"
    union = tidesdb.MergeOperator("union", lambda a, b: bytes(sorted(set(a) | set(b))))

    def check(operand):
        if len(operand) != 1:
            raise ValueError("one byte at a time")

    checked = tidesdb.MergeOperator("checked", lambda a, b: a + b, check)
    with tidesdb.open(path, merge_operators=[union, checked], merge_operator="add") as db:
        db.merge(b"n", 40)
        db.merge(b"n", 2)
        db.merge(b"n", (-1).to_bytes(8, "little", signed=True))
        assert int.from_bytes(db[b"n"], "little", signed=True) == 41
        with pytest.raises(tidesdb.InvalidArgument):
            db.merge(b"n", b"abc")
        lines = db.create_family("lines", merge_operator=("append", ","))
        sets = db.create_family("sets", merge_operator=union)
        some = db.create_family("some", merge_operator=checked)
        for letter in b"bca":
            lines.merge(b"k", bytes([letter]))
            sets.merge(b"k", bytes([letter]))
        assert lines[b"k"] == b"b,c,a" and sets[b"k"] == b"abc"
        some.merge(b"k", b"x")
        with pytest.raises(tidesdb.InvalidArgument, match="one byte at a time"):
            some.merge(b"k", b"xy")
        with db.batch() as batch:
            batch.merge(b"k", b"y", family=some)
        db.transact(lambda tx: tx.merge(b"k", b"z", family=some))
        db.compact()
        assert some[b"k"] == b"xyz"
    with pytest.raises(tidesdb.InvalidArgument, match="union"):
        tidesdb.open(path)
    with tidesdb.open(path, merge_operators=[union, checked]) as db:
        assert db.family("sets")[b"k"] == b"abc"


def test_an_exception_in_a_merge_operator_loses_nothing(tmp_path):
    broken = True

    def merge(older, newer):
        if broken:
            raise RuntimeError("not today")
        return older + newer

    operator = tidesdb.MergeOperator("moody", merge)
    with tidesdb.open(tmp_path / "db", merge_operator=operator) as db:
        db[b"a"], db[b"z"] = b"a", b"z"
        db.merge(b"k", b"1")
        db.merge(b"k", b"2")
        for _ in range(2):
            with pytest.raises(tidesdb.MergeFailed, match="not today"):
                db.get(b"k")
            db.flush()
            db.compact()
        rows, seen = db.keys(), []
        assert list(rows) == [b"a", b"k", b"z"]
        rows = db.items()
        while True:  # a scan goes on after the key that failed
            try:
                seen.append(next(rows)[0])
            except tidesdb.MergeFailed:
                seen.append(None)
            except StopIteration:
                break
        assert seen == [b"a", None, b"z"]
        broken = False
        assert db[b"k"] == b"12"
    for wrong in (1, "add", None):
        with pytest.raises(TypeError):
            tidesdb.MergeOperator("x", wrong)


def test_a_compaction_filter(db):
    db.put_many({b"keep": b"1", b"drop": b"2", b"edit": b"3"})
    db.set_compaction_filter(lambda key, value: {b"keep": True, b"drop": False, b"edit": b"new"}[key])
    db.compact()
    assert dict(db.items()) == {b"keep": b"1", b"edit": b"new"}
    db.set_compaction_filter(None)


def test_checkpoints_and_backups(db, tmp_path):
    db[b"a"] = b"1"
    db.checkpoint(tmp_path / "copy")
    db.backup(tmp_path / "backup")
    db[b"a"] = b"2"
    for folder in ("copy", "backup"):
        with tidesdb.open(tmp_path / folder) as copy:
            assert copy[b"a"] == b"1"
    with pytest.raises(tidesdb.Exists):
        db.checkpoint(tmp_path / "copy")


def test_statistics_are_dictionaries(db):
    db.put_many((b"%d" % n, b"v" * 100) for n in range(1000))
    db.flush()
    stats = db.stats()
    assert stats["families"]["default"]["flushes"] == 1 and stats["visible_seq"] > 0
    assert set(stats["times"]) >= {"gets", "puts"} and stats["jobs"] == [] or stats["jobs"]
    assert db.family_stats()["flushes"] == 1
    assert db.tree()["levels"] and db.verify()["ok"] and db.health()["state"] == "healthy"
    assert db.recovery_report()["clean"] in (True, False)
    assert "tidesdb_" in db.metrics_text()
    assert db.estimate()["entries"] == 1000
    db.set_compaction_rate(0)
    db.cancel_compactions()


def test_everything_has_a_name_and_a_docstring(db):
    assert repr(db).startswith("<tidesdb.Db") and repr(db.family("default")).startswith("<tidesdb.Family")
    assert "Snapshot" in repr(db.snapshot())
    silent = []
    for name in tidesdb.__all__:
        one = getattr(tidesdb, name)
        if name == "__version__":
            continue
        if not one.__doc__:
            silent.append(name)
        if isinstance(one, type) and one.__module__.startswith("tidesdb") and not issubclass(one, Exception):
            public = [m for m in vars(one) if not m.startswith("_")]
            silent += [f"{name}.{m}" for m in public if not getattr(one, m).__doc__]
    allowed = {"ValueWriter.writable", "ValueReader.readable"}
    assert set(silent) <= allowed


def test_memory_is_given_back(db):
    rows = [db.items() for _ in range(100)]
    db[b"a"] = b"1"
    del rows
    gc.collect()
    assert db.stats()["memory_cursors_bytes"] == 0


def test_a_database_is_removed_with_its_own_files_only(path):
    with tidesdb.open(path) as db:
        db[b"a"] = b"1"
        with pytest.raises(tidesdb.Locked):
            tidesdb.destroy(path)
        assert db[b"a"] == b"1"
    (path / "notes").write_text("mine")
    tidesdb.destroy(path)
    assert (path / "notes").read_text() == "mine" and not list(path.glob("*.*"))
    with pytest.raises(tidesdb.NotFound):
        tidesdb.destroy(path)
    with tidesdb.open(path, error_if_exists=True) as db:
        assert b"a" not in db
    (path / "notes").unlink()
    tidesdb.destroy(str(path))
    assert not path.exists()
    asyncio.run(destroyed(path))


async def destroyed(path):
    async with tidesdb.aio.open(path) as db:
        await db.put(b"a", b"1")
    await tidesdb.aio.destroy(path)
    assert not path.exists()


@pytest.mark.parametrize("make", ["batch", "transaction"])
@pytest.mark.parametrize("rows", [0, 40_000])
def test_rows_of_a_call_that_fails_are_taken_back(db, make, rows):
    def pairs(last):
        yield from ((b"row %d" % n, b"v") for n in range(rows))
        yield last

    with getattr(db, make)() as writes:
        writes.put(b"before", b"1")
        for last, error in [((b"", b"v"), tidesdb.InvalidArgument), ((b"k", "text"), TypeError), (1, TypeError)]:
            with pytest.raises(error):
                writes.put_many(pairs(last))
        with pytest.raises(ZeroDivisionError):
            writes.put_many((b"k", 1 // n) for n in range(1))
        writes.put_many([(b"after", b"1")])
    assert list(db) == [b"after", b"before"]


def test_a_call_that_fails_takes_nothing_of_another_thread_back(db):
    with db.transaction() as tx:

        def pairs():
            yield b"a", b"1"
            tx.put(b"k", b"v")  # as another thread may do
            mine.append(tx.savepoint())
            raise ZeroDivisionError

        mine = []
        with pytest.raises(ZeroDivisionError):
            tx.put_many(pairs())
        tx.rollback_to(mine[0])
    assert list(db) == [b"k"]
