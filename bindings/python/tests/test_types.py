"""The types that editors and checkers see are those of the package."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import tidesdb
import tidesdb.aio

FOLDER = Path(tidesdb.__file__).parent
GOOD = """
import asyncio
from collections.abc import MutableMapping
from typing import Any

import tidesdb
import tidesdb.aio

with tidesdb.open("db", memory_limit=1 << 30, compression="zstd", sync=0.1) as db:
    value: bytes | None = db.get(b"k")
    other: bytes | int = db.get(bytearray(b"k"), 1)
    sure: bytes = db[b"k"]
    seq: int = db.put(b"k", memoryview(b"v"), ttl=1.5)
    for key, row in db.items(b"a", prefix=None):
        key.hex(), row.hex()
    names: list[bytes] = list(db)
    with db.batch() as batch, db.snapshot() as snapshot:
        batch.put(b"k", b"v", family="users")
        snapshot.get(b"k")
    number: int = db.transact(lambda tx: len(tx))
    mapping: MutableMapping[bytes, bytes] = db.mapping()
    taken: dict[str, int] = db.ingest_sorted({b"k": b"v"})
    with db.cursor(prefix=b"k", keys_only=True) as cursor:
        moment: float | None = cursor.expires
    generations: list[dict[str, Any]] = tidesdb.Backups("backups").list()
    with tidesdb.TableBuilder("stem", compression="zstd") as builder:
        builder.put_file(b"k", open(__file__, "rb"))
        db.ingest({"default": builder.finish()}, transfer="move")
    result, counts = tidesdb.profile(lambda: db.get(b"k"))
    with db.value_writer(b"k") as file:
        file.write(b"x")


async def main() -> None:
    async with tidesdb.aio.open("db") as adb:
        got: bytes | None = await adb.get(b"k")
        seq: int = await adb.put(b"k", b"v")
        async for key, value in adb.items():
            key.hex(), value.hex()
        async with adb.transaction() as tx:
            await tx.put(b"k", b"v")


asyncio.run(main())
"""
BAD = [
    'tidesdb.open("db", memory_limits=1)',
    'tidesdb.open("db", compression="zip")',
    'tidesdb.open("db").put("text", b"")',
    'tidesdb.open("db")[b"k"] = 1',
    'tidesdb.open("db").get(b"k").hex()',
]


def mypy(folder, *args):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(folder / "cache"), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_a_program_with_right_types_passes_and_a_wrong_line_is_found(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text("import tidesdb\n\n" + "\n".join(BAD) + "\n")
    found = mypy(tmp_path, "good.py", "bad.py").stdout
    lines = {line.split(":")[1] for line in found.splitlines() if line.startswith("bad.py") and ": error:" in line}
    assert "good.py" not in found and lines == {str(3 + n) for n in range(len(BAD))}, found


def test_the_package_itself_has_types(tmp_path):
    done = mypy(tmp_path, "-p", "tidesdb")
    assert done.returncode == 0, done.stdout + done.stderr


def stubs():
    """The classes and the functions of the stubs, by name."""
    body = ast.parse((FOLDER / "__init__.pyi").read_text()).body
    return tuple({node.name: node for node in body if isinstance(node, kind)} for kind in (ast.ClassDef, ast.FunctionDef))


def parts(classes, node):
    """What a class states, and what those of its bases state that exist in the stubs only."""
    bases = [classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id.startswith("_")]
    return [part for base in bases for part in parts(classes, base)] + node.body


def test_the_stubs_name_what_exists_and_nothing_else():
    classes, functions = stubs()
    public = {name for name in classes if not name.startswith("_")}
    assert public | set(functions) | {"__version__"} == set(tidesdb.__all__)
    for name in public:
        one = getattr(tidesdb, name)
        if issubclass(one, Exception) or name in ("ValueReader", "ValueWriter"):
            continue
        stated = {f.name: f for f in parts(classes, classes[name]) if isinstance(f, ast.FunctionDef)}
        real = {m for m in vars(one) if not m.startswith("_")}
        assert {m for m in stated if not m.startswith("_")} == real, name
        for method in real:
            attribute = getattr(one, method)
            if not callable(attribute):
                continue
            parameters = inspect.signature(attribute).parameters
            arguments = stated[method].args
            wanted = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
            if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values()):
                continue
            assert list(parameters) == wanted, f"{name}.{method}"


def test_names_that_only_checkers_see_have_an_underscore():
    body = ast.parse((FOLDER / "__init__.pyi").read_text()).body
    stated = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    stated |= {target.id for node in body if isinstance(node, ast.Assign) for target in node.targets}
    assert [name for name in sorted(stated) if not name.startswith("_") and not hasattr(tidesdb, name)] == []


def test_the_stubs_say_which_classes_have_subclasses_and_parameters():
    classes, _ = stubs()
    for name in tidesdb.__all__:
        if not isinstance(one := getattr(tidesdb, name), type):
            continue
        try:
            type("Sub", (one,), {})
            is_final = False
        except TypeError:
            is_final = True
        node = classes[name]
        assert is_final == ("final" in [d.id for d in node.decorator_list if isinstance(d, ast.Name)]), name
        if any(isinstance(base, ast.Subscript) for base in node.bases):
            assert one[bytes], name


def test_the_stubs_are_those_of_the_package(tmp_path):
    command = [sys.executable, "-m", "mypy.stubtest", "tidesdb", "--concise"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_name_all_options():
    from tidesdb import _tidesdb

    classes, functions = stubs()
    options = classes[functions["open"].args.kwarg.annotation.slice.id]
    stated = {part.target.id for part in parts(classes, options) if isinstance(part, ast.AnnAssign)}
    assert stated >= {name for name, *_ in _tidesdb.defaults()}
    assert (FOLDER / "py.typed").exists()
