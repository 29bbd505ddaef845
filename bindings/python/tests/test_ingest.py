"""Tables of sorted rows."""

import io
import os
import gc

import pytest

import tidesdb


def rows(n, value=b"v"):
    return [(b"%06d" % i, value + b"%d" % i) for i in range(n)]


def test_sorted_rows_are_one_commit(db):
    with db.snapshot() as before:
        taken = db.ingest_sorted(rows(50_000))
        assert taken["rows"] == 50_000 and taken["tables"] >= 1 and taken["bytes"] > 0
        assert db.stats()["visible_seq"] >= taken["seq"] > before.seq and before.count() == 0
    assert db.count() == 50_000 and db[b"000007"] == b"v7"
    assert db.ingest_sorted([]) == {"seq": 0, "tables": 0, "rows": 0, "bytes": 0}
    assert db.ingest_sorted({b"a": b"1", b"b": memoryview(b"2")}, sync="none")["rows"] == 2
    for wrong, error in [
        ([(b"b", b""), (b"a", b"")], tidesdb.InvalidArgument),
        ([(b"b", b""), (b"b", b"")], tidesdb.InvalidArgument),
        ([("text", b"")], TypeError),
        ([b"no pair"], TypeError),
        (7, TypeError),
    ]:
        with pytest.raises(error):
            db.ingest_sorted(wrong)
    assert db.count() == 50_002  # nothing of those

    def failing():
        yield b"p", b"1"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        db.ingest_sorted(failing())
    assert db.count(prefix=b"p") == 0


def test_a_writer_takes_each_kind_of_row(db, path):
    counters = db.create_family("counters", merge_operator="add")
    db.put_many(rows(10))
    with db.sorted_writer() as writer:
        writer.put(b"000001", b"new")
        writer.delete(b"000002")
        with pytest.raises(tidesdb.InvalidArgument, match="rows out of order"):
            writer.put(b"000000", b"too late")
        writer.put(b"000003", b"soon", ttl=1000)
        writer.put(b"000004", b"then", expires=4e9)
        writer.put_many({b"000005": b"many", b"000006": b"many"}, ttl=1000)
        writer.put_file(b"000007", io.BytesIO(b"x" * 3_000_000))
        writer.put_file(b"000008", io.BytesIO(b"y"), expires=4e9)
        writer.delete_range(b"000009", None)
    assert db[b"000001"] == b"new" and b"000002" not in db and db.expiry(b"000004") == 4e9 and db.expiry(b"000008") == 4e9
    assert db.multi_get([b"000005", b"000006"]) == [b"many"] * 2 and db.expiry(b"000006") < 4e9
    assert db[b"000007"] == b"x" * 3_000_000 and b"000009" not in db and db[b"000000"] == b"v0"
    with counters.sorted_writer() as writer:
        writer.merge(b"a", 3)
    counters.merge(b"a", 4)
    assert int.from_bytes(counters[b"a"], "little") == 7
    with pytest.raises(tidesdb.Closed):
        writer.put(b"b", b"1")
    with pytest.raises(tidesdb.Closed):
        writer.commit()
    writer.discard()

    with pytest.raises(LookupError), db.sorted_writer() as writer:
        writer.put(b"x", b"1")
        raise LookupError
    with db.sorted_writer() as writer:
        writer.put(b"y", b"1")
        writer.discard()
    writer = db.sorted_writer()
    writer.put(b"z", b"1")
    del writer
    gc.collect()
    assert db.count(b"x", None) == 0
    writer = db.sorted_writer()
    writer.put(b"w", b"1")
    db.close()
    for call in (lambda: writer.put(b"x", b"1"), writer.commit, writer.__enter__):
        with pytest.raises(tidesdb.Closed):
            call()
    writer.discard()
    with tidesdb.open(path) as db:
        assert db.count(b"w", None) == 0


def test_what_a_file_raises_is_raised(db):
    class File:
        def __init__(self, out):
            self.out = out

        def read(self, n):
            if isinstance(self.out, BaseException):
                raise self.out
            return self.out

    for out, error in [
        (LookupError("mine"), LookupError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        ("text", TypeError),
        (b"x" * (2 << 20), TypeError),
        (None, BlockingIOError),
    ]:
        writer = db.sorted_writer()
        with pytest.raises(error):
            writer.put_file(b"k", File(out))
        writer.discard()
    with db.sorted_writer() as writer:
        with pytest.raises(AttributeError):
            writer.put_file(b"k", b"no file")
        busy = []

        class Inside:
            def read(self, n):
                try:
                    writer.put(b"z", b"1")
                except tidesdb.Busy as error:
                    busy.append(error)
                return b""

        with pytest.raises(tidesdb.InvalidArgument):
            writer.put_file(b"k", Inside())  # no byte
        assert busy
        writer.discard()
    assert db.count() == 0


def test_builders_make_tables_for_any_database(db, tmp_path):
    other = db.create_family("other", compression="zstd", value_threshold=100)
    paths = []
    for part in range(2):
        with db.table_builder(tmp_path / f"part-{part}") as builder:
            builder.put_many((b"%d-%05d" % (part, n), b"v") for n in range(1000))
            paths += builder.finish()
            with pytest.raises(tidesdb.Closed):
                builder.finish()
    alone = tidesdb.TableBuilder(str(tmp_path / "alone"), memory_limit=1 << 20, compression="zstd", value_threshold=100)
    alone.put(b"long", b"x" * 5000)
    more = alone.finish()
    assert [path.name for path in paths + more] == ["part-0-000001.klog", "part-1-000001.klog", "alone-000001.klog"]
    taken = db.ingest({db: paths, "other": more})
    assert taken["tables"] == 3 and taken["rows"] == 2001 and db.count() == 2000 and other[b"long"] == b"x" * 5000
    assert all(path.exists() for path in paths)
    assert db.ingest([(other, more)], transfer="link", sync="none")["tables"] == 1
    assert db.ingest(iter([("default", paths)]), transfer="move")["tables"] == 2
    assert not any(path.exists() for path in paths) and db.count() == 2000
    for wrong, error in [
        ({"none": more}, tidesdb.NotFound),
        ({"other": [tmp_path / "none.klog"]}, tidesdb.Error),
        ({"other": str(more[0])}, TypeError),
        ({7: more}, TypeError),
        (7, TypeError),
    ]:
        with pytest.raises(error):
            db.ingest(wrong)
    with pytest.raises(tidesdb.InvalidArgument, match="copy, link or move"):
        db.ingest({}, transfer="steal")
    with pytest.raises(TypeError, match="did you mean"):
        tidesdb.TableBuilder(tmp_path / "x", compresion="zstd")
    with pytest.raises(tidesdb.IoError):
        tidesdb.TableBuilder(tmp_path / "none" / "x")
    damaged = tmp_path / "alone-000001.klog"
    bytes_ = bytearray(damaged.read_bytes())
    bytes_[20] ^= 1
    damaged.unlink()
    damaged.write_bytes(bytes_)
    with pytest.raises(tidesdb.Corruption):
        db.ingest({"other": more})


def test_a_builder_that_is_not_finished_leaves_no_file(tmp_path):
    stem = tmp_path / "stem"
    with pytest.raises(LookupError), tidesdb.TableBuilder(stem) as builder:
        builder.put_many(rows(1000))
        raise LookupError
    builder = tidesdb.TableBuilder(stem)
    builder.put(b"a", b"1")
    del builder
    gc.collect()
    with tidesdb.TableBuilder(stem) as builder:
        builder.put(b"a", b"1")
    assert os.listdir(tmp_path) == []
    with pytest.raises(tidesdb.Closed):
        builder.put(b"b", b"1")
    assert tidesdb.TableBuilder(stem).finish() == []


def test_the_class_of_both_cannot_be_made():
    with pytest.raises(TypeError):
        tidesdb.SortedRows()
    with pytest.raises(TypeError):
        tidesdb.SortedWriter()
    assert issubclass(tidesdb.TableBuilder, tidesdb.SortedRows)
