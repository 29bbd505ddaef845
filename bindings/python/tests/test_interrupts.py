"""Exceptions that are no `Exception`, and dictionaries that change: what another thread, or Ctrl-C, does to a call."""

import os
import signal
import sys
import threading
import time

import pytest

import tidesdb

MIB = 1 << 20


PUT_MANY = {
    "put_many": lambda db, items: db.put_many(items),
    "update": lambda db, items: db.update(items),
    "batch": lambda db, items: db.batch().put_many(items),
    "transaction": lambda db, items: db.transaction().put_many(items),
}


@pytest.mark.parametrize("call", PUT_MANY)
def test_a_dictionary_that_another_thread_changes_is_a_runtime_error(db, no_switches, call):
    """It was a `PanicException`, which `except Exception` does not catch."""
    items, over = {b"%d" % n: b"x" * (8 * MIB) for n in range(4)}, threading.Event()

    def change():
        while not over.is_set():
            items[b"new %d" % len(items)] = b""
            time.sleep(0.0002)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="dictionary changed size"):
            for _ in range(100):  # until the other thread runs within the call
                PUT_MANY[call](db, items)
    finally:
        over.set()
        thread.join()
    PUT_MANY[call](db, items)


def interrupts():
    """What a function of the user raises: at once, or when Ctrl-C is pressed in it."""

    def ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

    def leave():
        sys.exit(3)

    def generator_exit():
        raise GeneratorExit

    kinds = {"exit": (SystemExit, leave), "other": (GeneratorExit, generator_exit)}
    if os.name != "nt":
        kinds["ctrl-c"] = (KeyboardInterrupt, ctrl_c)
    return kinds


class Operator:
    """A merge operator that raises `kind` for one operand, `number` times."""

    def __init__(self, kind):
        self.error, self.act = interrupts()[kind]
        self.left, self.calls = 0, 0
        self.operator = tidesdb.MergeOperator("cat", self.merge, self.check)

    def merge(self, older, newer):
        self.calls += 1
        if self.left and newer == b"now":
            self.left -= 1
            self.act()
        return older + newer

    def check(self, operand):
        if self.left and operand == b"check":
            self.left -= 1
            self.act()


ROWS = [b"%02d" % n for n in range(60)]


@pytest.fixture(params=interrupts())
def merging(request, path):
    operator = Operator(request.param)
    with tidesdb.open(path, merge_operator=operator.operator, background_threads=0) as db:
        db.put_many((row, b"v") for row in ROWS)
        for row in (b"30", b"31", b"45"):
            db.merge(row, b"now")
        yield db, operator
        operator.left = 0


def reads(db):
    snapshot, tx, cursor = db.snapshot(), db.transaction(), db.cursor()
    item = lambda cursor: cursor.seek(b"30") and cursor.item[1]  # noqa: E731
    return {
        "cursor of a snapshot": lambda: item(snapshot.cursor()),
        "cursor of a transaction": lambda: item(tx.cursor()),
        "part in a snapshot": lambda: snapshot.get_part(b"30"),
        "part in a transaction": lambda: tx.get_part(b"30"),
        "in items": lambda: (b"30", b"vnow") in db.items() and b"vnow",
        "in values": lambda: b"vnow" in db.values(b"29") and b"vnow",
        "mapping": lambda: db.mapping()[b"30"],
        "replace in a transaction": lambda: db.transaction().replace(b"30", b"vnow"),
        "equality": lambda: db.mapping() != {} and max(db.mapping().values(), key=len),
        "get": lambda: db[b"30"],
        "get_part": lambda: db.get_part(b"30"),
        "multi_get": lambda: db.multi_get([b"00", b"30"])[1],
        "snapshot": lambda: snapshot[b"30"],
        "transaction": lambda: tx[b"30"],
        "cursor": lambda: cursor.seek(b"30") and cursor.value,
        "value_reader": lambda: db.value_reader(b"30").read(),
    }


def test_an_interrupt_in_a_merge_operator_is_raised_by_the_read(merging):
    """It was swallowed: the read raised `MergeFailed` with the name of the interrupt."""
    db, operator = merging
    for name, read in reads(db).items():
        operator.left = 1
        with pytest.raises(operator.error):
            read()
            pytest.fail(name)
        assert operator.left == 0 and read() == b"vnow", name


def test_no_function_runs_any_more_in_a_call_that_was_interrupted(merging):
    db, operator = merging
    operator.left, operator.calls = 1, 0
    with pytest.raises(operator.error):
        db.multi_get([b"30", b"31", b"45"])
    assert operator.calls == 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("step", [lambda rows: [row] if (row := next(rows, None)) else [], lambda rows: rows.fetch(25)])
def test_an_iterator_that_was_interrupted_goes_on_without_a_gap(merging, step, reverse):
    db, operator = merging
    operator.left, seen, interrupted, rows = 2, [], 0, db.items(reverse=reverse)
    while True:
        try:
            if not (got := step(rows)):
                break
            seen += got
        except operator.error:
            interrupted += 1
    values = {row: b"vnow" if row in (b"30", b"31", b"45") else b"v" for row in ROWS}
    assert interrupted == 2 and seen == sorted(values.items(), reverse=reverse)


def test_a_fetch_that_fails_keeps_the_rows_before(tmp_path):
    """The list was lost with the exception."""
    refused = {b"bad"}

    def merge(older, newer):
        if newer in refused:
            raise ValueError("refused")
        return older + newer

    with tidesdb.open(tmp_path / "db", merge_operator=tidesdb.MergeOperator("cat", merge)) as db:
        db.put_many((row, b"v") for row in ROWS)
        db.merge(b"07", b"bad")
        rows = db.keys()
        assert len(rows.fetch(100)) == len(ROWS)
        rows, seen = db.items(), []
        with pytest.raises(tidesdb.MergeFailed, match="refused"):
            rows.fetch(100)
        seen += [next(rows)]
        seen += rows.fetch(2)
        seen += rows.fetch(100)
        assert [key for key, _ in seen] == [row for row in ROWS if row != b"07"]


@pytest.mark.parametrize("reverse", [False, True])
def test_an_iterator_stands_where_it_was_after_an_interrupted_in(merging, reverse):
    db, operator = merging
    rows = db.items(b"20", b"40", reverse=reverse)
    seen = rows.fetch(3)
    operator.left = 1
    with pytest.raises(operator.error):
        (b"31", b"vnow") in rows  # noqa: B015
    assert (b"30", b"vnow") in rows
    seen += list(rows)
    values = {row: b"vnow" if row in (b"30", b"31") else b"v" for row in ROWS if b"20" <= row < b"40"}
    assert seen == sorted(values.items(), reverse=reverse)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("progress", [None, lambda done, total: None])
def test_ctrl_c_ends_a_backup(path, tmp_path, progress):
    with tidesdb.open(path) as db:
        db.put_many((b"%04d" % n, os.urandom(10_000)) for n in range(2000))
        backups = tidesdb.Backups(tmp_path / "backups")
        timer = threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT))
        timer.start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            backups.create(db, bytes_per_second=1 << 20, progress=progress)
        timer.join()
        assert time.monotonic() - begin < 15 and backups.list() == []
        assert backups.create(db)["number"] >= 1


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["verify", "restore", "prove"])
def test_ctrl_c_ends_a_call_that_reads_a_backup(path, tmp_path, name):
    with tidesdb.open(path) as db:
        db.put_many((b"%04d" % n, os.urandom(10_000)) for n in range(2000))
        backups = tidesdb.Backups(tmp_path / "backups")
        backups.create(db)
    to = [] if name == "verify" else [tmp_path / "to"]
    timer = threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        getattr(backups, name)(1, *to, bytes_per_second=1 << 20)
    timer.join()
    assert time.monotonic() - begin < 15 and not list(tmp_path.glob("to/*"))
    getattr(backups, name)(1, *to)


def test_an_interrupt_in_the_check_of_an_operand_is_raised_by_the_write(merging):
    db, operator = merging
    calls = [db.merge, db.batch().merge, db.transaction().merge, db.sorted_writer().merge]
    for call in calls:
        operator.left = 1
        with pytest.raises(operator.error):
            call(b"k", b"check")
        assert b"k" not in db
        call(b"k2", b"check")


def test_an_interrupt_in_a_compaction_filter_is_raised_by_the_merge(path):
    for kind, (error, act) in interrupts().items():
        with tidesdb.open(path, background_threads=0) as db:
            calls = []

            def decide(key, value):
                calls.append(key)
                act()

            for _ in range(2):
                db.put_many((row, b"v") for row in ROWS)
                db.flush()
            db.set_compaction_filter(decide)
            with pytest.raises(error):
                db.compact()
            db.set_compaction_filter(None)
            assert len(calls) == 1 and db.count() == len(ROWS), kind


def test_an_interrupt_in_a_thread_of_the_engine_is_reported(path, monkeypatch):
    """There is no call that could raise it."""
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: reported.append(what.exc_type))
    operator = Operator("exit")
    with tidesdb.open(path, merge_operator=operator.operator) as db:
        for _ in range(3):
            db[b"k"] = b"v"
            db.flush()
            db.merge(b"k", b"now")
            db.flush()
        operator.left = 1
        try:
            db.compact()
        except SystemExit:
            reported.append(SystemExit)  # this thread made the merge
        except tidesdb.MergeFailed:
            pass
        assert operator.left or reported == [SystemExit]
        assert db[b"k"] == b"vnow"


def test_the_interpreter_stops_a_long_loop_of_merges(path):
    """Ctrl-C ends a program that does nothing but read rows whose merge operator is a function."""
    operator = tidesdb.MergeOperator("cat", lambda older, newer: older + newer)
    with tidesdb.open(path, merge_operator=operator) as db:
        db.put_many((row, b"v") for row in ROWS)
        for row in ROWS:
            db.merge(row, b"!")
        timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            while True:
                for _ in db.items():
                    pass
        timer.join()


@pytest.mark.parametrize("kind", [bytes, str, lambda path: path], ids=["bytes", "str", "Path"])
def test_a_path_is_bytes_text_or_an_object(tmp_path, kind):
    path = tmp_path / "d\u00e4ta"
    with tidesdb.open(kind(os.fsencode(path)) if kind is bytes else kind(path)) as db:
        db[b"k"] = b"v"
        assert db.path == path
        given = (lambda p: os.fsencode(p)) if kind is bytes else kind
        db.checkpoint(given(tmp_path / "checkpoint"))
        db.backup(given(tmp_path / "backup"))
        with tidesdb.open_reader(given(path)) as reader, reader.view() as view:
            assert view[b"k"] == b"v"
    for name in ("checkpoint", "backup"):
        with tidesdb.Db(given(tmp_path / name)) as copy:
            assert copy[b"k"] == b"v"
    for wrong in (1, None, bytearray(b"x"), b"a\0b"):
        with pytest.raises((TypeError, ValueError, OSError)):
            tidesdb.open(wrong)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files that are no text")
def test_a_path_may_be_no_text(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    with tidesdb.open(path) as db:
        db[b"k"] = b"v"
        assert os.fsencode(db.path) == path
    with tidesdb.open(os.fsdecode(path)) as db:
        assert db[b"k"] == b"v"
