"""What one process sees of another one, and what a database says of itself."""

import os
import subprocess
import sys
import time

import pytest

import tidesdb

WRITER = """
import sys, tidesdb
db = tidesdb.open(sys.argv[1])
db.put_many((b"%d" % n, b"v") for n in range(1000))
print("ready", flush=True)
for line in sys.stdin:
    pass
db.close()
"""


def until(call, is_enough, seconds=60):
    end = time.monotonic() + seconds
    while not is_enough(out := call()):
        assert time.monotonic() < end, out
        time.sleep(0.02)
    return out


def test_the_figures_of_a_writer(path):
    with pytest.raises(tidesdb.NotFound):
        tidesdb.writer_figures(path)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with writer:
        assert writer.stdout.readline() == "ready\n"
        figures = until(lambda: tidesdb.writer_figures(path), lambda one: one and one["stats"]["visible_seq"] > 0)
        assert figures["process"] == writer.pid and figures["age"] >= 0 and figures["version"] == tidesdb.__version__
        if sys.platform == "linux":
            assert figures["state"] in ("running", "idle")
        assert "default" in figures["stats"]["families"] and "tidesdb" in figures["metrics_text"]
        assert figures["health"]["state"] == "healthy" and isinstance(figures["findings"], list) and figures["unknown"] == []
        with tidesdb.open_reader(path) as reader:
            assert reader.writer_figures()["process"] == writer.pid and reader.path == path and not reader.closed
            assert reader.view()[b"7"] == b"v"
        assert reader.closed
        with pytest.raises(tidesdb.Closed):
            reader.writer_figures()
        writer.stdin.close()
        assert writer.wait(60) == 0
    assert tidesdb.writer_figures(path)["state"] == "closed"
    seconds, minutes = tidesdb.writer_history(path)
    assert seconds and all(isinstance(name, str) and series for name, series in seconds.items()) and isinstance(minutes, dict)
    moment, value = next(iter(seconds.values()))[0]
    assert abs(moment - time.time()) < 3600 and isinstance(value, int)


def test_a_tree_has_the_keys_of_its_levels(db):
    db.update({b"a": b"1", b"z": b"2"})
    db.flush()
    level = db.tree()["levels"][0]
    assert (level["first_key"], level["last_key"]) == (b"a", b"z") and db.stats()["remote"] is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_may_ask(path):
    with tidesdb.open(path) as db:
        db[b"a"] = b"1"
        until(lambda: tidesdb.writer_figures(path), bool)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if tidesdb.writer_figures(path)["process"] == os.getppid() else 1)
        assert os.waitpid(pid, 0)[1] == 0
