"""What belongs to the process: forks while threads work, a second interpreter, standard streams that are closed."""

import os
import subprocess
import sys
import textwrap

import pytest

import tidesdb

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def run(code, *args):
    """Runs a program, which must end well. Returns what it wrote."""
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", textwrap.dedent(code), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Threads that use the database all the time, and `fork`, which runs `body` in a child that ends as a program does.
WORKERS = """
    import os, sys, threading, tidesdb
    db = tidesdb.open(sys.argv[1], sync="none")
    stop = threading.Event()
    def work(me):
        n = 0
        while not stop.is_set():
            n += 1
            db[b"%d-%d" % (me, n % 100)] = b"x" * 100
            for key, value in db.items(prefix=b"%d-" % me):
                pass
    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    [thread.start() for thread in threads]
    def fork(body):
        child = os.fork()
        if child == 0:
            body()
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
END = """
    stop.set()
    [thread.join() for thread in threads]
    db.close()
    """


@needs_fork
@only_linux
def test_a_child_that_exits_waits_for_no_thread_of_its_parent(path):
    """It inherited the number of threads that were about to return to the interpreter, and waited ten seconds for them: 10,000 naps."""
    code = (
        WORKERS
        + """
    for _ in range(12):
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it stays a zombie, which knows how often it has napped
        with open(f"/proc/{child}/status") as file:
            print(*(line.split()[1] for line in file if line.startswith("voluntary_ctxt_switches")))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
        + END
    )
    naps = [int(line) for line in run(code, path).split()]
    assert len(naps) == 12 and max(naps) < 1000, naps


@needs_fork
def test_children_of_a_busy_process_use_databases_of_their_own(path):
    """Whatever lock a thread of the parent held at the fork, no child waits for it."""
    code = (
        WORKERS
        + """
    def body():
        for call in (lambda: db.get(b"k"), lambda: db.put(b"k", b""), lambda: next(rows), lambda: tx.get(b"k")):
            try:
                call()
            except tidesdb.Forked:
                continue
            raise AssertionError("not refused")
        with tidesdb.open_reader(sys.argv[1]) as reader, reader.view() as view:
            view.count()
        own = tidesdb.open(sys.argv[1] + str(os.getpid()))
        def use():
            for n in range(20):
                own[b"%d" % n] = b"v"
        more = [threading.Thread(target=use) for _ in range(3)]
        [thread.start() for thread in more]
        [thread.join() for thread in more]
        assert own.count() == 20
        # open at the end
    rows, tx = db.items(), db.transaction()
    for _ in range(15):
        fork(body)
    """
        + END
    )
    run(code, path)
    with tidesdb.open(path) as db:
        assert db.verify()["ok"]


@needs_fork
def test_a_fork_from_a_finalizer_leaves_the_count_of_threads_right(path):
    run(
        """
        import os, sys, tidesdb
        class Forks:
            def __del__(self):
                child = os.fork()
                if child:
                    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                else:
                    children.append(1)
        children = []
        with tidesdb.open(sys.argv[1]) as db:
            pairs = ((key, Forks() and b"v") for key in (b"a", b"b", b"c"))
            try:
                db.put_many(pairs)
            except tidesdb.Forked:
                assert children
        """,
        path,
    )


INTERPRETERS = """
    import sys
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    def shared_lock():
        for one in ({"isolated": False}, {}):
            try:
                return interpreters.create(**one)
            except TypeError:
                continue
    if sys.version_info >= (3, 13):
        shared_lock = lambda: interpreters.create("legacy")
    def import_in(other):
        code = '''if True:
            import sys
            sys.path[:0] = {path!r}
            try:
                import tidesdb
            except ImportError as error:
                assert "subinterpreter" in str(error), error
                assert "tidesdb" not in sys.modules
            else:
                raise AssertionError("it was imported")
            '''.format(path=sys.path)
        failed = interpreters.run_string(other, code)
        assert failed is None, failed
    """


@pytest.mark.parametrize("ending", ["", "interpreters.destroy(other)"], ids=["live", "ended"])
@pytest.mark.parametrize("kind", ["shared_lock", "interpreters.create"])
def test_a_second_interpreter_is_refused_and_the_process_ends(path, kind, ending):
    """Its end stopped the threads of the main interpreter, which then never ended."""
    run(
        INTERPRETERS
        + f"""
    import threading, tidesdb
    db = tidesdb.open(sys.argv[1], sync="none")
    def work():
        for n in range(2000):
            db[b"%d" % n] = b"v"
    thread = threading.Thread(target=work)
    thread.start()
    other = {kind}()
    import_in(other)
    {ending}
    db[b"after"] = b"v"
    thread.join()
    """,
        path,
    )
    with tidesdb.open(path) as db:
        assert db.recovery_report()["clean"] and db.count() == 2001


def test_a_second_interpreter_that_is_first_to_import_is_refused(path):
    run(
        INTERPRETERS
        + """
    other = shared_lock()
    import_in(other)
    import tidesdb
    with tidesdb.open(sys.argv[1]) as db:
        db[b"k"] = b"v"
    """,
        path,
    )


@only_linux
@pytest.mark.parametrize("closed", [(0, 1, 2), (2,), (0, 1)], ids=str)
def test_no_file_of_a_database_takes_the_place_of_a_closed_stream(path, closed):
    """A message to a standard error that was closed would be written into a file of the database."""
    report = path.parent / "report"
    run(
        """
        import os, sys, tidesdb
        path, report, closed = sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3].split()]
        for n in closed:
            os.close(n)
        db = tidesdb.open(path)
        db.put_many({b"%04d" % n: b"x" * 1000 for n in range(1000)})
        with db.value_writer(b"long") as file:
            file.write(b"long" * (1 << 20))
        db.flush()
        db.compact()
        reader = tidesdb.open_reader(path).view()
        list(reader.items())
        def of_database(n):
            try:
                return os.readlink(f"/proc/self/fd/{n}").startswith(path)
            except OSError:
                return False
        taken = [n for n in (0, 1, 2) if of_database(n)]
        for n in closed:
            try:
                os.write(n, b"stray words " * 10_000)
            except OSError:
                pass
        ok = db.verify()["ok"]
        db.close()
        with tidesdb.open(path) as db:
            ok = ok and db.count() == 1001
        with open(report, "w") as file:
            file.write(f"{taken} {ok}")
        """,
        path,
        report,
        " ".join(map(str, closed)),
    )
    assert report.read_text() == "[] True"


@only_linux
def test_errors_without_a_standard_error_go_nowhere(path):
    """What would be reported there is dropped, and the program goes on."""
    run(
        """
        import os, sys, tidesdb
        os.close(2)
        sys.stderr = None
        def decide(key, value):
            raise ValueError("odd")
        with tidesdb.open(sys.argv[1]) as db:
            db.set_compaction_filter(decide)
            for _ in range(2):
                db.put_many({b"%d" % n: b"v" for n in range(10)})
                db.flush()
            db.compact()
            assert db.count() == 10
            writer = db.value_writer(b"w")
            del writer
        """,
        path,
    )


def test_a_daemon_thread_within_a_profile_lets_the_process_end(path):
    """Before Python 3.14 the end of the interpreter unwinds the thread where it stands: below a function of the user there is no frame of Rust."""
    said = run(
        """
        import sys, threading, time, tidesdb
        db, begun = tidesdb.open(sys.argv[1], sync="none"), threading.Event()
        def work():
            begun.set()
            while True:
                time.sleep(0.001)
        threading.Thread(target=tidesdb.profile, args=(work,), daemon=True).start()
        begun.wait()
        print("ends")
        """,
        path,
    )
    assert said == "ends\n"


def test_a_child_cannot_await_calls_of_its_parents_database(path):
    run(
        """
        import asyncio, os, sys, tidesdb, tidesdb.aio
        async def start():
            db = await tidesdb.aio.open(sys.argv[1])
            await db.get(b"a")
            await db.put(b"a", b"1")
            return db
        async def is_refused(call):
            try:
                await asyncio.wait_for(call(), 20)
            except tidesdb.Forked:
                return
            raise AssertionError("the child may call")
        db = asyncio.run(start())
        child = os.fork()
        if child == 0:
            status = 1
            try:
                calls = lambda: db.get(b"a"), lambda: db.put(b"a", b"2"), db.sync, db.close
                for call in calls:
                    asyncio.run(is_refused(call))
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        asyncio.run(db.close())
        """,
        path,
    )
