"""Calls that a family, a snapshot and a transaction have alike, and what only some of them have."""

import math
import time

import pytest

import tidesdb


@pytest.fixture
def full(db):
    db.update({b"%02d" % n: b"v%d" % n for n in range(20)})
    db.create_family("other").update({b"x": b"1", b"y": b"2"})
    return db


def each(db):
    """A family, a snapshot, a transaction."""
    with db.snapshot() as snapshot, db.transaction() as tx:
        yield from (db, snapshot, tx)


def test_all_read_alike(full):
    for reads in each(full):
        assert reads.count() == 20 and reads.count(b"05", b"10") == 5 and reads.count(prefix=b"1") == 10
        assert reads.multi_contains([b"01", b"99", b"", bytearray(b"02")]) == [True, False, False, True]
        assert reads.get_part(b"01", 1) == b"1" and reads.get_part(b"01", 0, 1) == b"v" and reads.get_part(b"99") is None
        assert reads.get_part(b"01", 9) == b""
        assert reads.contains(b"01") and not reads.contains(b"99")
        assert reads.expiry(b"01") == math.inf and reads.expiry(b"99") is None and reads.expiry(b"") is None
        with reads.cursor(b"05", b"10") as cursor:
            seen = []
            there = cursor.first()
            while there:
                assert cursor.item == (cursor.key, cursor.value)
                seen.append(cursor.key)
                there = cursor.next()
            assert seen == [b"%02d" % n for n in range(5, 10)] and cursor.item is None and cursor.expires is None
            assert cursor.last() and cursor.key == b"09" and not cursor.seek(b"10") and cursor.seek(b"0") and cursor.key == b"05"
        with reads.cursor(prefix=b"1", keys_only=True) as cursor:
            assert cursor.first() and cursor.key == b"10" and cursor.version_seq is not None and cursor.seq >= cursor.version_seq
            assert cursor.last() and cursor.key == b"19" and cursor.expires == math.inf
        with pytest.raises(TypeError):
            reads.cursor(b"1", prefix=b"1")
    with full.snapshot() as snapshot, full.transaction() as tx:
        for reads in (snapshot, tx):
            assert reads.count(family="other") == 2 and reads.multi_contains([b"x"], family="other") == [True]
            with reads.cursor(family="other") as cursor:
                assert cursor.last() and cursor.key == b"y"


def test_a_snapshot_keeps_its_state(full):
    with full.snapshot() as snapshot:
        full.delete_prefix(b"")
        assert full.count() == 0 and snapshot.count() == 20
        with snapshot.cursor() as cursor:
            assert cursor.first() and cursor.value == b"v0"
        assert snapshot.explain(b"01")["outcome"] == "found"
    for call in (snapshot.count, snapshot.cursor, lambda: snapshot.expiry(b"01"), lambda: snapshot.explain(b"01")):
        with pytest.raises(tidesdb.Closed):
            call()


def test_a_transaction_sees_its_own_writes(full):
    with full.transaction() as tx:
        tx[b"00x"] = b"own"
        tx.single_delete(b"01")
        assert tx.replace(b"02", b"new") == b"v2" and tx.replace(b"98", b"n") is None
        assert tx.pop(b"03") == b"v3" and tx.pop(b"99", None) is None and tx.pop(b"x", family="other") == b"1"
        with pytest.raises(KeyError):
            tx.pop(b"99")
        with pytest.raises(TypeError):
            tx.pop(b"99", 1, 2)
        with tx.cursor() as cursor:
            assert cursor.seek(b"00") and cursor.next() and cursor.item == (b"00x", b"own")
            assert cursor.next() and cursor.item == (b"02", b"new") and cursor.next() and cursor.key == b"04"
        assert tx.count() == 20 and tx.expiry(b"00x") == math.inf
        assert tx.bytes > 0 and tx.reads_tracked > 0 and tx.seq is not None
        with tx.cursor(b"00y") as cursor:
            tx[b"00z"] = b"later"
            assert cursor.first()
    assert full.get(b"01") is None and full[b"02"] == b"new" and full.count() == 21


def test_what_a_cursor_of_a_transaction_passes_counts_as_read(full):
    tx = full.transaction()
    with tx.cursor() as cursor:
        cursor.seek(b"05")
        assert cursor.value == b"v5"
    tx[b"result"] = b"1"
    full[b"05"] = b"changed"
    with pytest.raises(tidesdb.Conflict):
        tx.commit()
    tx.reset()
    assert tx.is_open and tx[b"05"] == b"changed" and not tx.contains(b"result", tracked=False)
    tx[b"result"] = b"2"
    tx.commit()
    tx.reset("read_committed")
    assert tx.isolation == "read_committed" and len(tx) == 0 and tx.seq is None
    tx.rollback()


def test_savepoints_can_be_released(full):
    with full.transaction() as tx:
        point = tx.savepoint()
        tx[b"a"] = b"1"
        tx.release(point)
        with pytest.raises(tidesdb.NotFound):
            tx.rollback_to(point)
    assert full[b"a"] == b"1"


def test_expiry(db):
    before = time.time()
    db.put(b"soon", b"1", ttl=100)
    db.put(b"then", b"1", expires=before + 1000.5)
    db.put(b"never", b"1")
    assert before + 99 < db.expiry(b"soon") < time.time() + 101
    assert db.expiry(b"then") == pytest.approx(before + 1000.5, abs=0.01) and db.expiry(b"never") == math.inf
    with db.cursor() as cursor:
        assert cursor.seek(b"then") and cursor.expires == db.expiry(b"then")


@pytest.mark.parametrize("zero", [0, 0.0, 1e-12, __import__("datetime").timedelta(0)])
def test_no_time_to_live_is_0(db, path, zero):
    """0 would mean "at once" in one place and "never" in another: it is refused everywhere, with what to write instead."""
    writes = [
        lambda: db.put(b"k", b"v", ttl=zero),
        lambda: db.put_many({b"k": b"v"}, ttl=zero),
        lambda: db.value_writer(b"k", ttl=zero),
        lambda: db.batch().put(b"k", b"v", ttl=zero),
        lambda: db.transaction().put(b"k", b"v", ttl=zero),
        lambda: db.sorted_writer().put(b"k", b"v", ttl=zero),
    ]
    for write in writes:
        with pytest.raises(tidesdb.InvalidArgument, match="math.inf = never"):
            write()
    for make in (lambda: db.create_family("f", default_ttl=zero), lambda: db.change_options(default_ttl=zero)):
        with pytest.raises(tidesdb.InvalidArgument, match="None = rows never expire"):
            make()
    assert db.count() == 0 and not db.has_family("f")


def test_default_ttl_none_is_never(db):
    family = db.create_family("f", default_ttl=50)
    assert family.options()["default_ttl"] == 50
    for never in (None, math.inf):
        family.change_options(default_ttl=50)
        family.put(b"a", b"1")
        assert family.expiry(b"a") < math.inf
        family.change_options(default_ttl=never)
        family.put(b"a", b"1")
        assert family.expiry(b"a") == math.inf and family.options()["default_ttl"] is None
    family.put(b"b", b"1", ttl=math.inf)
    assert family.expiry(b"b") == math.inf
    db.create_family("g", **family.options())  # what is read can be passed on
    assert db.family("g").options() == family.options()


def test_batches_are_appended(db, tmp_path):
    first, second = db.batch(), db.batch()
    first.put(b"apple", b"1")
    first.put(b"kept", b"1")
    second.delete_prefix(b"a")
    second.put(b"avocado", b"2")
    second.put(b"long", b"x" * (9 << 20))  # in the value log already
    second.put(b"k", b"v", family=db.create_family("other"))
    first.append(second)
    assert len(first) == 6 and len(second) == 4
    first.append(first)
    assert len(first) == 12
    first.commit()
    assert list(db.keys()) == [b"avocado", b"kept", b"long"] and db[b"long"] == b"x" * (9 << 20)
    assert db.family("other")[b"k"] == b"v"
    db.clear()
    second.commit()  # it was not emptied
    assert list(db.keys()) == [b"avocado", b"long"] and db[b"long"][:2] == b"xx"
    with tidesdb.open(tmp_path / "other") as other:
        with other.batch() as foreign:
            foreign.put(b"k", b"v")
            first.put(b"k", b"v")
            with pytest.raises(tidesdb.InvalidArgument, match="different databases"):
                first.append(foreign)
            first.clear()
            foreign.clear()


def test_error_if_exists(path):
    with tidesdb.open(path, error_if_exists=True) as db:
        db[b"a"] = b"1"
    with pytest.raises(tidesdb.Exists):
        tidesdb.open(path, error_if_exists=True)
    with tidesdb.open(path) as db:
        assert db[b"a"] == b"1"


def test_a_range_of_a_database_is_compacted(full):
    full.flush()
    full.compact(b"05", b"10")
    full.compact()
    full.flush(wait=False)
    full.family("other").flush(wait=False)
    assert full.count() == 20


def test_settings(full, path):
    assert full.has_family("other") and not full.has_family("none") and full.id != full.family("other").id
    full.change_options(value_threshold=1000)
    full.family("other").change_options_until_close(value_threshold=2000)
    changed = {(one["family"], one["name"]): one["value"] for one in full.changed_settings()}
    assert changed[("default", "value_threshold")] == "1000" and changed[("other", "value_threshold")] == "2000"
    full.set_slow_operation(0.5)
    full.set_slow_operation(None)
    full.set_slow_sync(0.5)
    full.set_slow_sync(None)
    full.close()
    with tidesdb.open(path, slow_sync=None, slow_operation=1.0) as db:
        assert db.options()["value_threshold"] == 1000 and db.family("other").options()["value_threshold"] != 2000
        assert {one["name"] for one in db.changed_settings()} >= {"slow_sync", "slow_operation"}


def test_explanations(full):
    full.flush()
    full[b"01"] = b"newer"
    explained = full.explain(b"01")
    assert explained["outcome"] == "found" and explained["value"] == b"newer" and explained["dead_versions"] == 1
    assert len(explained["sources"]) == 2 and "found" in explained["text"].lower()
    versions = [version for source in explained["sources"] for version in source["versions"]]
    assert [version["verdict"] for version in versions] == ["shown", "overwritten"] and versions[0]["expires"] == math.inf
    assert full.explain(b"99")["value"] is None
    scan = full.explain_range(b"00", b"05", rows=3)
    assert scan["keys"] == [b"00", b"01", b"02"] and not scan["is_complete"] and scan["sources"]
    assert full.key_count_max() >= 20
    result, counts = tidesdb.profile(lambda: full.get(b"02"))
    assert result == b"v2" and counts["gets"] == 1 and counts["rows"] == 0
    with pytest.raises(ZeroDivisionError):
        tidesdb.profile(lambda: 1 / 0)
    (_, inner), outer = tidesdb.profile(lambda: (full.get(b"02"), tidesdb.profile(lambda: full.get(b"02")))[1])
    assert (inner["gets"], outer["gets"]) == (1, 2)


def test_a_database_without_a_default_family_gets_one_unless_another_is_named(path):
    with tidesdb.open(path, default_family_name="users") as db:
        db[b"ann"] = b"1"
        assert db.families() == ["users"]
    for options in ({}, {"read_only": True}):
        with tidesdb.open(path, default_family_name="users", **options) as db:
            assert db[b"ann"] == b"1" and db.families() == ["users"]
    with tidesdb.open_reader(path, default_family_name="users") as reader:
        assert reader.view()[b"ann"] == b"1"
    for only_read in (lambda: tidesdb.open(path, read_only=True), lambda: tidesdb.open_reader(path)):
        with pytest.raises(tidesdb.NotFound, match='family "default"'):
            only_read()
    with tidesdb.open(path) as db:
        assert sorted(db.families()) == ["default", "users"]
