"""Random calls, compared with a dictionary."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

import tidesdb

KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from([b"a", b"b", b"c", b"ab", b"\xff", b"\xff\xff"])
VALUES = st.binary(max_size=30) | st.integers(0, 3).map(lambda n: b"x" * (n * 9000))
BOUNDS = st.none() | KEYS


def between(model, start, stop):
    keys = sorted(model)
    return [k for k in keys if (start is None or k >= start) and (stop is None or k < stop)]


class Model(RuleBasedStateMachine):
    """A database, and a dictionary with what it must hold."""

    snapshots = Bundle("snapshots")

    @initialize()
    def open(self):
        self.folder = Path(tempfile.mkdtemp())
        self.db = tidesdb.open(self.folder / "db", sync="none", write_buffer_bytes=64 << 10, value_threshold=4096)
        self.model = {}

    def teardown(self):
        self.db.close()
        shutil.rmtree(self.folder)

    @rule(key=KEYS, value=VALUES, kind=st.sampled_from([bytes, bytearray, memoryview]))
    def put(self, key, value, kind):
        self.db[kind(key)] = kind(value)
        self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key):
        del self.db[key]
        self.model.pop(key, None)

    @rule(rows=st.dictionaries(KEYS, VALUES, max_size=40), as_pairs=st.booleans())
    def put_many(self, rows, as_pairs):
        self.db.update(list(rows.items()) if as_pairs else rows)
        self.model.update(rows)

    @rule(start=BOUNDS, stop=BOUNDS)
    def delete_range(self, start, stop):
        self.db.delete_range(start, stop)
        for key in between(self.model, start, stop):
            del self.model[key]

    @rule(prefix=KEYS)
    def delete_prefix(self, prefix):
        self.db.delete_prefix(prefix)
        self.model = {k: v for k, v in self.model.items() if not k.startswith(prefix)}

    @rule(key=KEYS, default=VALUES)
    def setdefault(self, key, default):
        assert self.db.setdefault(key, default) == self.model.setdefault(key, default)

    @rule(key=KEYS)
    def pop(self, key):
        assert self.db.pop(key, None) == self.model.pop(key, None)

    @rule(key=KEYS, expected=st.none() | VALUES, new=st.none() | VALUES)
    def compare_and_swap(self, key, expected, new):
        same = self.model.get(key) == expected
        assert self.db.compare_and_swap(key, expected, new) == same
        if same and new is None:
            self.model.pop(key, None)
        elif same:
            self.model[key] = new

    @rule(rows=st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=10), how=st.sampled_from(["batch", "tx"]), fails=st.booleans())
    def together(self, rows, how, fails):
        after = dict(self.model)
        try:
            with self.db.batch() if how == "batch" else self.db.transaction() as writes:
                for key, value in rows:
                    if value is None:
                        del writes[key]
                        after.pop(key, None)
                    else:
                        writes[key] = value
                        after[key] = value
                if how == "tx":
                    assert dict(writes.items()) == after
                if fails:
                    raise ZeroDivisionError
            self.model = after
        except ZeroDivisionError:
            pass

    @rule(target=snapshots)
    def snapshot(self):
        return self.db.snapshot(), dict(self.model)

    @rule(pair=snapshots)
    def read_snapshot(self, pair):
        snapshot, model = pair
        try:
            assert list(snapshot.items()) == sorted(model.items())
        except tidesdb.Closed:
            pass  # the database was opened again

    @rule(keys=st.lists(KEYS, max_size=20))
    def read(self, keys):
        assert self.db.multi_get(keys) == [self.model.get(key) for key in keys]
        for key in keys:
            assert self.db.get(key) == self.model.get(key) and (key in self.db) == (key in self.model)

    @rule(start=BOUNDS, stop=BOUNDS, reverse=st.booleans(), first=st.integers(1, 5))
    def scan(self, start, stop, reverse, first):
        keys = between(self.model, start, stop)
        keys = keys[::-1] if reverse else keys
        rows = self.db.items(start, stop, reverse=reverse)
        assert rows.fetch(first) + list(rows) == [(key, self.model[key]) for key in keys]

    @rule(prefix=KEYS, reverse=st.booleans())
    def scan_prefix(self, prefix, reverse):
        keys = sorted((k for k in self.model if k.startswith(prefix)), reverse=reverse)
        assert list(self.db.keys(prefix=prefix, reverse=reverse)) == keys

    @rule(key=KEYS)
    def seek(self, key):
        keys = sorted(self.model)
        after, before = [k for k in keys if k >= key], [k for k in keys if k <= key]
        with self.db.cursor() as cursor:
            assert cursor.seek(key) == bool(after) and cursor.key == (after[0] if after else None)
            assert cursor.seek_for_prev(key) == bool(before) and cursor.key == (before[-1] if before else None)

    @rule(key=KEYS, value=VALUES)
    def stream(self, key, value):
        with self.db.value_writer(key) as file:
            file.write(value)
        assert self.db.value_reader(key).read() == value
        self.model[key] = value

    @rule(how=st.sampled_from(["flush", "compact", "sync"]))
    def work(self, how):
        getattr(self.db, how)()

    @rule()
    def reopen(self):
        self.db.close()
        self.db = tidesdb.open(self.folder / "db", sync="none")

    @invariant()
    def same(self):
        if hasattr(self, "db"):
            assert self.db.first() == min(self.model.items(), default=None)


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
