"""Handles after a close, after a fork, between threads, and at the end of the interpreter: an exception, never a crash."""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import tidesdb


def handles(db):
    """One of each kind of handle, with a call that uses it."""
    db.put_many({b"a": b"1", b"b": b"2"})
    family, batch, tx, snapshot = db.create_family("f"), db.batch(), db.transaction(), db.snapshot()
    rows, cursor, reader, writer = db.items(), db.cursor(), db.value_reader(b"a"), db.value_writer(b"w")
    batch[b"x"] = b"1"
    tx[b"y"] = b"1"
    next(rows)
    cursor.first()
    writer.write(b"x")
    builder, sorted_rows, mapping = db.table_builder(db.path.parent / "stem"), db.sorted_writer(), db.mapping()
    of_snapshot, of_tx, other = snapshot.cursor(), tx.cursor(keys_only=True), db.batch()
    of_snapshot.first()
    of_tx.first()
    builder.put(b"a", b"1")
    sorted_rows.put(b"a", b"1")
    backups = tidesdb.Backups(db.path.parent / "backups")
    return {
        "contains": lambda: db.contains(b"a"),
        "multi_contains": lambda: db.multi_contains([b"a"]),
        "expiry": lambda: db.expiry(b"a"),
        "explain": lambda: db.explain(b"a"),
        "explain_range": db.explain_range,
        "key_count_max": db.key_count_max,
        "diagnose": db.diagnose,
        "has_family": lambda: db.has_family("f"),
        "changed_settings": db.changed_settings,
        "until close": lambda: db.change_options_until_close(value_threshold=100),
        "slow": lambda: db.set_slow_sync(1),
        "flush": lambda: db.flush(wait=False),
        "compact": lambda: db.compact(b"a", b"b"),
        "ingest": lambda: db.ingest({}),
        "ingest_sorted": lambda: db.ingest_sorted([]),
        "sorted writer": db.sorted_writer,
        "sorted put": lambda: sorted_rows.put(b"b", b"1"),
        "sorted put_many": lambda: sorted_rows.put_many({b"c": b"1"}),
        "sorted put_file": lambda: sorted_rows.put_file(b"d", io.BytesIO(b"1")),
        "sorted commit": sorted_rows.commit,
        "table builder": lambda: db.table_builder("stem"),
        "snapshot multi_contains": lambda: snapshot.multi_contains([b"a"]),
        "snapshot count": snapshot.count,
        "snapshot cursor": snapshot.cursor,
        "snapshot part": lambda: snapshot.get_part(b"a"),
        "snapshot expiry": lambda: snapshot.expiry(b"a"),
        "snapshot explain": lambda: snapshot.explain(b"a"),
        "tx count": tx.count,
        "tx cursor": tx.cursor,
        "tx pop": lambda: tx.pop(b"a"),
        "tx replace": lambda: tx.replace(b"a", b"1"),
        "tx part": lambda: tx.get_part(b"a"),
        "tx reset": tx.reset,
        "tx single_delete": lambda: tx.single_delete(b"a"),
        "of snapshot": of_snapshot.next,
        "of snapshot item": lambda: of_snapshot.item,
        "of tx": of_tx.next,
        "of tx expires": lambda: of_tx.expires,
        "in rows": lambda: b"a" in rows,
        "mapping": lambda: len(mapping),
        "mapping keys": lambda: b"a" in mapping.keys(),
        "append": lambda: other.append(batch),
        "backup": lambda: backups.create(db),
        "get": lambda: db.get(b"a"),
        "put": lambda: db.put(b"a", b"1"),
        "stats": db.stats,
        "begin": db.transaction,
        "family": lambda: family.get(b"a"),
        "batch put": lambda: batch.put(b"k", b"v"),
        "batch commit": batch.commit,
        "tx get": lambda: tx.get(b"a"),
        "tx put": lambda: tx.put(b"a", b""),
        "tx commit": tx.commit,
        "snapshot": lambda: snapshot.get(b"a"),
        "rows": lambda: next(rows),
        "fetch": lambda: rows.fetch(1),
        "cursor": cursor.next,
        "cursor key": lambda: cursor.key,
        "reader": lambda: reader.raw.readinto(bytearray(1)),
        "writer": lambda: writer.write(b"x"),
        "writer close": writer.close,
    }


def test_after_close_every_handle_raises(db):
    calls = handles(db)
    assert not db.closed
    db.close()
    db.close()
    assert db.closed and "closed" in repr(db)
    for name, call in calls.items():
        with pytest.raises(tidesdb.Closed):
            call()
            pytest.fail(name)
    with pytest.raises(tidesdb.Closed), db:
        pass


def test_a_database_is_locked_while_it_is_open(db, path):
    with pytest.raises(tidesdb.Locked, match="open"):
        tidesdb.open(path)
    db.close(timeout=30)
    tidesdb.open(path).close()


def test_the_last_handle_closes_the_database(path):
    rows = tidesdb.open(path).items()  # keeps it open
    with pytest.raises(tidesdb.Locked):
        tidesdb.open(path)
    del rows
    tidesdb.open(path).close()


def in_child(body):
    """Runs `body` in a child of a fork; fails with what it raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                body()
                said = b"ok"
            except BaseException as error:
                said = repr(error).encode()
            os.write(writer, said)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert said == b"ok", said


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork_the_child_gets_an_exception_and_the_parent_goes_on(db, path):
    calls = handles(db)

    def child():
        for name, call in calls.items():
            try:
                call()
            except tidesdb.Forked as error:
                assert "parent" in str(error) and "spawn" in str(error), name
            else:
                raise AssertionError(name)
        try:
            db.close()
        except tidesdb.Forked:
            pass
        else:
            raise AssertionError("close")
        calls.clear()  # drops the handles
        with tidesdb.open_reader(path) as reader, reader.view() as view:
            assert view[b"a"] == b"1"
        try:
            tidesdb.open(path)
        except tidesdb.Locked:
            pass
        with tidesdb.open(path.parent / "own") as own:
            own[b"k"] = b"v"
            assert own[b"k"] == b"v"

    in_child(child)
    db[b"after"] = b"1"
    assert db[b"after"] == b"1" and db.verify()["ok"]
    calls["tx commit"]()
    calls["writer close"]()
    db.close()
    with tidesdb.open(path) as again:
        assert set(again) >= {b"after", b"a", b"y", b"w"}


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multiprocessing_with_fork_ends_cleanly(db):
    db[b"a"] = b"1"
    worker = multiprocessing.get_context("fork").Process(target=lambda: None)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0 and db[b"a"] == b"1"


def run(code, *args, check=True):
    """Runs a program."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def test_an_open_database_is_closed_at_the_end_of_the_interpreter(path):
    done = run(
        """
        import sys, tidesdb
        operator = tidesdb.MergeOperator("cat", lambda a, b: a + b)
        db = tidesdb.open(sys.argv[1], sync="none", merge_operator=operator)
        rows, tx, batch, writer = db.items(), db.transaction(), db.batch(), db.value_writer(b"w")
        for n in range(1000):
            db.merge(b"k%d" % (n % 10), b"x")
        tx[b"never"] = b""
        """,
        path,
    )
    assert done.stderr.count("Error") == 0, done.stderr
    operator = tidesdb.MergeOperator("cat", lambda a, b: a + b)
    with tidesdb.open(path, merge_operators=[operator]) as db:
        assert db.recovery_report()["clean"]
        assert db[b"k0"] == b"x" * 100 and b"never" not in db


def test_the_interpreter_ends_while_threads_use_the_database(path):
    run(
        """
        import sys, threading, tidesdb
        db = tidesdb.open(sys.argv[1], sync="none")
        def work():
            n = 0
            while True:
                n += 1
                db[b"%d" % (n % 1000)] = b"x" * 100
                for row in db.items():
                    break
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        import time
        time.sleep(0.3)
        """,
        path,
    )
    with tidesdb.open(path) as db:
        assert db.verify()["ok"] and db.count() > 0


@pytest.mark.parametrize("call", ["transact", "modify"])
def test_the_interpreter_ends_while_a_function_of_the_user_runs(path, call):
    """Before Python 3.14 the system unwound the frames of the extension module below the function, and aborted the process."""
    run(
        """
        import sys, threading, tidesdb
        db = tidesdb.open(sys.argv[1], sync="none")
        entered = threading.Semaphore(0)
        def forever(*args):
            entered.release()
            while True:
                pass
        calls = {"transact": lambda: db.transact(forever), "modify": lambda: db.modify(b"k", forever)}
        for _ in range(4):
            threading.Thread(target=calls[sys.argv[2]], daemon=True).start()
        for _ in range(4):
            entered.acquire()
        """,
        path,
        call,
    )


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_killed_writer_loses_nothing_that_was_durable(path):
    code = """
        import sys, tidesdb
        db = tidesdb.open(sys.argv[1])
        for n in range(10**9):
            db[b"%09d" % n] = b"v"
            print(n, flush=True)
        """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(path)], stdout=subprocess.PIPE)
    for _ in range(50):
        last = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    last = max([last, *map(int, child.stdout.read().split())])
    child.stdout.close()
    child.wait()
    with tidesdb.open(path) as db:
        assert list(db)[: last + 1] == [b"%09d" % n for n in range(last + 1)]


@pytest.mark.parametrize("call", ["count", "compact", "verify", "multi_get", "get_part"])
def test_other_threads_run_during_a_call(db, call):
    rows = 300_000
    db.put_many((b"%06d" % n, b"x") for n in range(rows))
    with db.value_writer(b"long") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    keys = [b"%06d" % n for n in range(0, rows, 3)]
    calls = {
        "multi_get": lambda: db.multi_get(keys),
        "get_part": lambda: db.get_part(b"long", 0, 60 << 20),
    }
    spans, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            begin = time.perf_counter()
            calls.get(call, getattr(db, call, None))()
            spans.append((begin + 0.001, time.perf_counter() - 0.001))

    thread = threading.Thread(target=work)
    thread.start()
    ticks, limit = [], time.monotonic() + 60
    # A call that kept the lock would let no tick happen but those at its ends.
    while not any(sum(a < tick < b for tick in ticks) >= 3 for a, b in spans[-3:]) and time.monotonic() < limit:
        ticks = [*ticks[-200:], time.perf_counter()]
        time.sleep(0.0005)
    passed = time.monotonic() < limit
    stop.set()
    thread.join()
    assert passed


def test_a_reader_that_waits_in_a_merge_operator_keeps_nobody(tmp_path):
    entered, go = threading.Event(), threading.Event()

    def merge(older, newer):
        entered.set()
        assert go.wait(60)
        return older + newer

    operator = tidesdb.MergeOperator("slow", merge)
    with tidesdb.open(tmp_path / "db", merge_operator=operator) as db:
        db[b"k"] = b"1"
        db.merge(b"k", b"2")
        read = []
        reader = threading.Thread(target=lambda: read.append(db[b"k"]))
        reader.start()
        assert entered.wait(60)
        db[b"other"] = b"1"  # while the reader is inside of the engine
        assert db[b"other"] == b"1" and not read
        go.set()
        reader.join(60)
        assert read == [b"12"]


def test_an_object_that_calls_itself_is_busy_not_deadlocked(tmp_path):
    state = {}

    def merge(older, newer):
        if "tx" in state:
            state["tx"].get(b"other")
        return older + newer

    operator = tidesdb.MergeOperator("loop", merge)
    with tidesdb.open(tmp_path / "db", merge_operator=operator) as db:
        db[b"k"] = b"1"
        db.merge(b"k", b"2")
        tx = db.transaction()
        state["tx"] = tx
        with pytest.raises(tidesdb.MergeFailed, match="busy"):
            tx.get(b"k")
        state.clear()
        assert tx.get(b"k") == b"12"
        tx.rollback()


def test_threads_share_a_database(db):
    def work(me):
        for n in range(300):
            key = b"%d-%d" % (me, n)
            db[key] = b"x" * n
            assert db[key] == b"x" * n
            db.transact(lambda tx: tx.put(b"sum", b"%d" % (int(tx.get(b"sum", b"0")) + 1)))

    failures = []

    def guarded(me):
        try:
            work(me)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(me,)) for me in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures
    assert db[b"sum"] == b"1800" and db.count() == 1801


def test_threads_share_an_iterator(db):
    rows = {b"%05d" % n: b"x" * (n % 7 * 5000) for n in range(2000)}
    db.put_many(rows)
    shared, seen, lock = db.items(), [], threading.Lock()

    def work():
        mine = list(shared)
        with lock:
            seen.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(seen) == sorted(rows.items())


def test_a_close_beside_calls_of_other_threads(path):
    for _ in range(10):
        db = tidesdb.open(path, sync="none")
        db.put_many({b"%d" % n: b"v" for n in range(100)})
        begun, failures = threading.Barrier(5), []

        def work():
            begun.wait()
            try:
                while True:
                    for key, _ in db.items():
                        db[key] = b"w"
                        db.transact(lambda tx: tx.put(b"k", tx.get(b"0", b"")))
            except tidesdb.Closed:
                pass
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        begun.wait()
        time.sleep(0.02)
        db.close()
        [thread.join() for thread in threads]
        assert not failures


def test_errors_are_a_small_tree():
    kinds = [one for one in vars(tidesdb).values() if isinstance(one, type) and issubclass(one, tidesdb.Error)]
    assert len(kinds) == 24
    for kind in kinds:
        assert kind.__module__ == "tidesdb" and kind.__doc__ and isinstance(kind.retryable, bool)
    assert issubclass(tidesdb.IoError, OSError) and issubclass(tidesdb.InvalidArgument, ValueError)
    assert issubclass(tidesdb.MemoryLimit, MemoryError) and issubclass(tidesdb.Forked, tidesdb.Closed)


def test_damage_is_named(path):
    with tidesdb.open(path) as db:
        db.put_many((b"%04d" % n, os.urandom(100)) for n in range(1000))
        db.flush()
    table = next(file for file in path.rglob("*.klog"))
    data = bytearray(table.read_bytes())
    data[1000] ^= 1
    table.write_bytes(data)
    with tidesdb.open(path) as db:
        with pytest.raises(tidesdb.Corruption) as error:
            list(db.items())
        assert error.value.file in str(error.value) and error.value.offset is not None
        assert not db.verify()["ok"]


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_objects_without_a_database_belong_to_their_process_too(tmp_path):
    builder = tidesdb.TableBuilder(tmp_path / "stem")
    builder.put(b"a", b"1")
    backups = tidesdb.Backups(tmp_path / "backups")
    with tidesdb.open(tmp_path / "db") as db:
        reader = tidesdb.open_reader(tmp_path / "db")
        db[b"a"] = b"1"

        def child():
            nonlocal builder, backups, reader
            for call in (lambda: builder.put(b"b", b"1"), builder.finish, builder.discard, backups.list, reader.refresh, reader.writer_figures):
                try:
                    call()
                except tidesdb.Forked:
                    continue
                raise AssertionError(call)
            builder = backups = reader = None
            with tidesdb.TableBuilder(tmp_path / "own") as own:
                own.put(b"a", b"1")
                own.finish()
            assert tidesdb.Backups(tmp_path / "backups").list() == []

        in_child(child)
        builder.put(b"b", b"1")
        assert db.ingest({"default": builder.finish()})["rows"] == 2
        assert backups.create(db)["number"] == 1
        reader.close()


@pytest.mark.parametrize("reads", ["the family", "a snapshot", "a transaction"])
def test_a_close_beside_the_calls_that_read(path, reads):
    for _ in range(5):
        db = tidesdb.open(path, sync="none")
        db.put_many((b"%05d" % n, b"v") for n in range(3000))
        made = {"the family": lambda: db, "a snapshot": db.snapshot, "a transaction": db.transaction}[reads]()
        begun, failures = threading.Barrier(5), []

        def work():
            begun.wait()
            try:
                while True:
                    assert made.count() >= 3000
                    with made.cursor(b"01", b"02") as cursor:
                        there = cursor.first()
                        while there:
                            assert cursor.item[1] == b"v" and cursor.expires
                            there = cursor.next()
                    with made.items(reverse=True) as rows:
                        assert (b"00007", b"v") in rows and b"00007" not in rows and next(rows)
                    made.multi_contains([b"00001", b"x"])
                    made.expiry(b"00001")
                    if reads != "a transaction":
                        made.explain_range(rows=10)
            except tidesdb.Closed:
                pass
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        begun.wait()
        time.sleep(0.02)
        db.close()
        [thread.join() for thread in threads]
        assert not failures


def test_a_close_beside_ingests_and_backups(path, tmp_path):
    for n in range(5):
        db = tidesdb.open(path, sync="none")
        begun, failures, done = threading.Barrier(5), [], []
        backups = tidesdb.Backups(tmp_path / "backups")

        def work(me):
            begun.wait()
            try:
                while True:
                    db.ingest_sorted((b"%d-%05d" % (me, i), b"v") for i in range(2000))
                    with db.sorted_writer() as writer:
                        writer.put_many((b"%d-w%05d" % (me, i), b"v") for i in range(100))
                    with db.table_builder(tmp_path / f"stem-{n}-{me}") as builder:
                        builder.put(b"%d-t" % me, b"v")
                        db.ingest({"default": builder.finish()}, transfer="move")
                    done.append(me)
                    if me == 0:
                        backups.create(db)
            except tidesdb.Closed:
                pass
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        [thread.start() for thread in threads]
        begun.wait()
        time.sleep(0.05 * n)
        db.close()
        [thread.join() for thread in threads]
        assert not failures
        with tidesdb.open(path) as db:
            assert db.verify()["ok"]
            for me in set(done):
                assert db.count(prefix=b"%d-0" % me) == 2000 and b"%d-t" % me in db


def test_batches_that_are_appended_to_each_other_do_not_wait_for_each_other(db):
    one, two = db.batch(), db.batch()
    one.put(b"a", b"1")
    two.put(b"b", b"1")

    def work(first, second):
        for _ in range(300):
            first.append(second)
            first.clear()
            first.put(b"a", b"1")

    threads = [threading.Thread(target=work, args=pair) for pair in ((one, two), (two, one)) * 2]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)


def test_a_buffer_that_changes_in_a_call_is_no_crash(db):
    """`put_many` of a writer walks an iterable of the user, which may do anything."""
    buffer, keys = bytearray(b"v" * 100), [bytearray(b"a"), bytearray(b"b")]

    def rows():
        for key in keys:
            yield key, buffer
            buffer.clear()  # what was passed is copied, so it may be resized
            buffer.extend(b"w" * 50)

    with db.sorted_writer() as writer:
        writer.put_many(rows())
    assert db.multi_get([b"a", b"b"]) == [b"v" * 100, b"w" * 50]

    class Shrinking(list):
        def __iter__(self):
            while self:
                yield self.pop()

    assert db.multi_contains(Shrinking([b"a", b"x"])) == [False, True]

    class Family(tidesdb.Family):
        pass

    with pytest.raises(TypeError):
        Family()

    def close_inside():
        yield b"k", b"v"
        db.close()
        yield b"l", b"v"

    with pytest.raises(tidesdb.Closed):
        db.ingest_sorted(close_inside())


def test_progress_that_uses_the_database(path, tmp_path):
    with tidesdb.open(path) as db:
        db.put_many((b"%05d" % n, bytes(100)) for n in range(20_000))
        backups, seen = tidesdb.Backups(tmp_path / "backups"), []

        def show(done, total):
            db[b"during"] = b"1"
            seen.append(len(backups.list()))
            with pytest.raises(tidesdb.Busy):
                backups.create(db)

        backups.create(db, progress=show)
        assert seen and set(seen) == {0} and db[b"during"] == b"1"


def test_a_file_in_place_of_the_folder_is_an_os_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError) as error:
        tidesdb.open(tmp_path / "file")
    assert isinstance(error.value, tidesdb.IoError) and error.value.errno


def test_a_snapshot_is_closed_beside_a_call_that_reads_it(db):
    rows = [(b"%08d" % n, b"v" * 50) for n in range(200_000)]
    db.ingest_sorted(rows)
    for _ in range(5):
        snapshot, counts = db.snapshot(), []
        reader = threading.Thread(target=lambda: counts.append(snapshot.count()))
        reader.start()
        time.sleep(0.002)
        snapshot.close()
        with pytest.raises(tidesdb.Closed):
            snapshot.get(b"00000001")
        reader.join()
        assert counts in ([], [200_000]), "it was closed before the call, or the call has gone on"
