"""Generations of backups."""

import datetime
import random
import threading

import pytest

import tidesdb


@pytest.fixture
def backups(tmp_path):
    return tidesdb.Backups(tmp_path / "backups")


def fill(db, of, n=1000):
    noise = random.Random(7)
    db.put_many((b"%s%06d" % (of, i), noise.randbytes(100)) for i in range(n))


def test_generations_share_what_they_have_in_common(db, backups, tmp_path):
    fill(db, b"a")
    first = backups.create(db)
    fill(db, b"b")
    second = backups.create(db, prove=tmp_path / "scratch")
    assert first["number"] < second["number"] and first["proven"] is None and second["proven"] is True
    assert second["seq"] > first["seq"] and second["bytes_copied"] < second["bytes"] and second["proven_at"] > second["created"]
    assert backups.list() == [first, second] and backups.path == tmp_path / "backups"
    assert backups.verify(first["number"])["ok"]
    backups.restore(first["number"], tmp_path / "restored")
    with tidesdb.open(tmp_path / "restored", create_if_missing=False) as restored:
        assert restored.count() == 1000 and restored.count(prefix=b"b") == 0
    assert backups.prove(first["number"], tmp_path / "scratch")["proven"] is True
    with pytest.raises(tidesdb.Exists):
        backups.restore(first["number"], tmp_path / "restored")
    with pytest.raises(tidesdb.NotFound):
        backups.verify(99)
    with pytest.raises(tidesdb.InvalidArgument):
        backups.prune()
    third = backups.create(db)
    assert backups.prune(keep_last=2)["generations"] == [first["number"]]
    assert backups.prune(keep_younger=datetime.timedelta(days=1))["generations"] == []
    backups.delete(second["number"])
    assert [one["number"] for one in backups.list()] == [third["number"]]
    with pytest.raises(tidesdb.Exists):
        backups.repair()


def test_a_folder_that_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        tidesdb.Backups(tmp_path / "none", must_exist=True)
    (tmp_path / "empty").mkdir()
    assert tidesdb.Backups(tmp_path / "empty", must_exist=True).list() == []


def test_damage_is_found(db, backups, tmp_path):
    fill(db, b"a")
    made = backups.create(db)
    largest = max((path for path in backups.path.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    damaged = bytearray(largest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    largest.write_bytes(damaged)
    report = backups.verify(made["number"])
    assert not report["ok"] and report["damage"] and report["objects"] > 0
    with pytest.raises(tidesdb.Corruption):
        backups.restore(made["number"], tmp_path / "restored")


def test_progress_and_cancel(db, backups):
    fill(db, b"a", 50_000)
    seen = []
    backups.create(db, progress=lambda done, total: seen.append((done, total)))
    assert seen and seen[-1][0] == seen[-1][1] and seen == sorted(seen)
    fill(db, b"b", 50_000)

    class Enough(Exception):
        pass

    for exception in (Enough, KeyboardInterrupt):

        def stop(done, total):
            raise exception

        with pytest.raises(exception):
            backups.create(db, progress=stop)
        assert len(backups.list()) == 1
    assert backups.create(db, bytes_per_second=1 << 40)["number"] > 1 and len(backups.list()) == 2
    with pytest.raises(TypeError):
        backups.create(db, progress=7)


def reading(backups, tmp_path):
    """The calls that read the first generation."""
    return {
        "verify": lambda **how: backups.verify(1, **how),
        "restore": lambda **how: backups.restore(1, tmp_path / "restored", **how),
        "prove": lambda **how: backups.prove(1, tmp_path / "scratch", **how),
    }


@pytest.mark.parametrize("name", ["verify", "restore", "prove"])
def test_a_progress_ends_a_call_that_reads(db, backups, tmp_path, name):
    fill(db, b"a", 50_000)
    made, call, seen = backups.create(db), reading(backups, tmp_path)[name], []

    class Enough(Exception):
        pass

    def stop(done, total):
        seen.append(done)
        if done > 0:
            raise Enough

    with pytest.raises(Enough):
        call(progress=stop)
    assert 0 < seen[-1] < made["bytes"] and not list(tmp_path.glob("restored/*")) and not list(tmp_path.glob("scratch/*"))
    assert backups.list() == [made]
    with pytest.raises(TypeError):
        call(progress=7)
    seen.clear()
    call(progress=lambda done, total: seen.append((done, total)), bytes_per_second=1 << 40)
    assert seen == sorted(seen) and seen[-1] == (made["bytes"], made["bytes"])


def test_the_proof_of_a_new_generation_is_ended(db, backups, tmp_path):
    fill(db, b"a", 50_000)
    calls = 0

    def stop(done, total):
        nonlocal calls
        calls += done == total  # all is read, and the rows are compared
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backups.create(db, prove=tmp_path / "scratch", progress=stop)
    assert [one["proven"] for one in backups.list()] == [None] and not list(tmp_path.glob("scratch/*"))


def test_a_close_ends_a_backup(path, backups):
    db = tidesdb.open(path)
    fill(db, b"a", 50_000)
    begun, results = threading.Event(), []

    def run():
        try:
            results.append(backups.create(db, bytes_per_second=100_000, progress=lambda *_: begun.set()))
        except tidesdb.Error as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(60)
    db.close()
    thread.join(60)
    assert not thread.is_alive() and isinstance(results[0], tidesdb.Closed) and backups.list() == []
    with pytest.raises(tidesdb.Closed):
        backups.create(db)


def test_merge_operators_are_named_for_a_proof(path, tmp_path, backups):
    union = tidesdb.MergeOperator("union", lambda older, newer: bytes(sorted({*older, *newer})))
    with tidesdb.open(path, merge_operator=union) as db:
        db.merge(b"k", b"b")
        db.merge(b"k", b"a")
        made = backups.create(db, prove=tmp_path / "scratch")
        assert made["proven"] is True
    with pytest.raises(tidesdb.Error):
        backups.prove(made["number"], tmp_path / "scratch")
    assert backups.prove(made["number"], tmp_path / "scratch", merge_operators=[union])["proven"] is True
