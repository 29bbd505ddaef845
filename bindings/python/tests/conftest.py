import pytest

import tidesdb


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with tidesdb.open(path) as db:
        yield db
