"""The program in the wheel of a release."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tidesdb

PROGRAM = shutil.which("tidesdb", path=sysconfig.get_path("scripts"))
# Set by the tests of a release, whose wheel must have it.
IS_RELEASE = "TIDESDB_WHEEL_HAS_PROGRAM" in os.environ

of_release = pytest.mark.skipif(not PROGRAM and not IS_RELEASE, reason="only the wheel of a release has the program")


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)


@of_release
def test_it_has_the_version_of_the_package():
    assert PROGRAM and Path(PROGRAM).parent == Path(sysconfig.get_path("scripts"))
    done = run(PROGRAM, "--version")
    assert done.returncode == 0 and tidesdb.__version__ in done.stdout


@of_release
def test_the_tour_runs(tmp_path):
    done = subprocess.run([PROGRAM, "tour"], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@of_release
def test_the_module_runs_it(path):
    with tidesdb.open(path) as db:
        db[b"apple"] = b"3"
    done = run(sys.executable, "-m", "tidesdb", "--db", path, "get", "apple")
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
    done = run(sys.executable, "-m", "tidesdb", "--db", path, "get", "pear")
    assert done.returncode == 1


@pytest.mark.skipif(PROGRAM is not None, reason="this wheel has the program")
def test_without_the_program_the_module_says_where_it_is(path):
    done = subprocess.run(
        [sys.executable, "-m", "tidesdb", "--version"], capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": ""}
    )
    assert done.returncode == 1 and "the wheel of a release" in done.stderr
