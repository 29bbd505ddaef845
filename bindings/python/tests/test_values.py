"""Values as files."""

import gc
import io
import shutil

import pytest

import tidesdb

LONG = bytes(range(256)) * (5 << 12)  # 5 MiB: several chunks


def write(db, key, data):
    with db.value_writer(key) as file:
        shutil.copyfileobj(io.BytesIO(data), file)
    return file


def test_a_long_value_is_written_and_read_in_pieces(db):
    file = write(db, b"film", LONG)
    assert file.seq > 0 and file.closed
    with db.value_reader(b"film") as reader:
        assert len(reader) == len(LONG) and reader.readable() and reader.seekable()
        assert reader.read(10) == LONG[:10]
        assert reader.seek(-7, 2) == len(LONG) - 7 and reader.read() == LONG[-7:]
        assert reader.read() == b"" and reader.seek(3 << 20) and reader.tell() == 3 << 20
        assert reader.read(1 << 20) == LONG[3 << 20 : 4 << 20]
        reader.seek(0)
        assert reader.read() == LONG
    assert db.get_part(b"film", 1 << 20, 100) == LONG[1 << 20 :][:100]
    assert db.get_part(b"film", len(LONG) - 5) == LONG[-5:] and db.get_part(b"-") is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_written(db, kind):
    with db.value_writer(b"k") as file:
        assert file.write(kind(LONG)) == len(LONG) and file.write(kind(b"")) == 0
        assert file.tell() == len(LONG)
    assert db[b"k"] == LONG


def test_it_is_a_file_for_the_standard_library(db):
    text = io.TextIOWrapper(db.value_writer(b"text"), "utf-8", write_through=True)
    for n in range(1000):
        print("line", n, file=text)
    text.close()
    lines = io.TextIOWrapper(db.value_reader(b"text"), "utf-8")
    assert [int(line.split()[1]) for line in lines] == list(range(1000))
    assert isinstance(db.value_reader(b"text"), io.BufferedIOBase)
    buffer = bytearray(20)
    assert db.value_reader(b"text").readinto(buffer) == 20 and buffer.startswith(b"line 0\nline 1")


def test_an_exception_discards_what_was_written(db):
    with pytest.raises(ZeroDivisionError), db.value_writer(b"k") as file:
        file.write(LONG)
        raise ZeroDivisionError
    assert b"k" not in db
    file = db.value_writer(b"k")
    file.write(b"x")
    file.discard()
    assert b"k" not in db
    with pytest.raises((ValueError, tidesdb.Closed)):
        file.write(b"x")


@pytest.mark.filterwarnings("default::ResourceWarning")
def test_a_writer_that_was_not_closed_is_discarded(db):
    with pytest.warns(ResourceWarning, match="discarded"):
        file = db.value_writer(b"k")
        file.write(b"x")
        del file
        gc.collect()
    assert b"k" not in db


def test_a_reader_reads_what_the_value_was(db):
    db[b"k"] = b"old"
    reader = db.value_reader(b"k")
    db[b"k"] = b"new"
    assert reader.read() == b"old" and db.value_reader(b"-") is None
    with db.snapshot() as snapshot:
        del db[b"k"]
        assert snapshot.value_reader(b"k").read() == b"new" and db.value_reader(b"k") is None


def test_a_value_joins_a_transaction(db):
    with db.transaction() as tx:
        with tx.value_writer(b"film") as file:
            file.write(LONG)
        tx[b"title"] = b"t"
        assert b"film" not in db and tx.value_reader(b"film").read() == LONG
    assert db[b"film"] == LONG
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        with tx.value_writer(b"other") as file:
            file.write(LONG)
        raise ZeroDivisionError
    assert b"other" not in db


def test_a_value_expires(db):
    with db.value_writer(b"k", ttl=3600) as file:
        file.write(b"x")
    assert db[b"k"] == b"x"


def test_wrong_positions(db):
    db[b"k"] = b"12345"
    reader = db.value_reader(b"k")
    for offset, whence in ((-1, 0), (-9, 1), (-9, 2), (0, 3)):
        with pytest.raises((ValueError, OSError)):
            reader.raw.seek(offset, whence)
    reader.seek(100)
    assert reader.read() == b""
