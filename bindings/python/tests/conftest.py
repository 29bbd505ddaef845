import sys

import pytest

import tidesdb


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with tidesdb.open(path) as db:
        yield db


@pytest.fixture
def no_switches():
    """The interpreter never takes its lock away from a thread: another one runs only if a call lets go of it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)
