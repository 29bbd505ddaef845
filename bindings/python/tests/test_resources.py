"""Databases that share memory, a cache and threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import tidesdb


def test_databases_share_what_they_use(tmp_path: Path) -> None:
    shared = tidesdb.Resources(memory_limit=64 << 20, cache_bytes=4 << 20, background_threads=2, descriptors=100)
    assert (shared.memory_limit, shared.databases, shared.threads) == (64 << 20, 0, 0)
    groups = [tidesdb.open(tmp_path / str(n), resources=shared, sync="none") for n in range(12)]
    for n, db in enumerate(groups):
        for k in range(50):
            db.put(b"%d" % k, b"%d" % n)
        db.flush()
    assert shared.databases == 12
    assert 0 < shared.memory_used < shared.memory_limit
    assert 0 <= shared.cache_used < shared.memory_used
    assert 0 < shared.threads < 12
    assert shared.memory_pressure == "normal"
    shared.set_compaction_rate(1 << 30)
    assert [db.get(b"7") for db in groups] == [b"%d" % n for n in range(12)]
    groups[0].close()
    assert shared.databases == 11
    del shared
    groups[5].put(b"later", b"row")
    groups[5].flush()
    assert groups[5].get(b"later") == b"row"
    for db in groups[1:]:
        db.close()


def test_wrong_resources(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="background_threads is 257"):
        tidesdb.Resources(background_threads=257)
    with pytest.raises(TypeError, match="resources"):
        tidesdb.open(tmp_path / "db", resources=7)  # type: ignore[arg-type]
    assert not (tmp_path / "db").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_child_of_a_fork_has_none(tmp_path: Path) -> None:
    shared = tidesdb.Resources(memory_limit=64 << 20)
    child = os.fork()
    if child == 0:
        try:
            tidesdb.open(tmp_path / "db", resources=shared)
            os._exit(1)
        except tidesdb.Forked:
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
