"""The program in the wheel."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import tidesdb

PROGRAM = shutil.which("tidesdb", path=sysconfig.get_path("scripts"))


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)


def test_it_has_the_version_of_the_package():
    assert PROGRAM and Path(PROGRAM).parent == Path(sysconfig.get_path("scripts"))
    done = run(PROGRAM, "--version")
    assert done.returncode == 0 and tidesdb.__version__ in done.stdout


def test_the_tour_runs(tmp_path):
    done = subprocess.run([PROGRAM, "tour"], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_module_runs_it(path):
    with tidesdb.open(path) as db:
        db[b"apple"] = b"3"
    done = run(sys.executable, "-m", "tidesdb", "--db", path, "get", "apple")
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
    done = run(sys.executable, "-m", "tidesdb", "--db", path, "get", "pear")
    assert done.returncode == 1
