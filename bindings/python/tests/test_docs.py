"""The samples of the pages run. Those of one page run in one folder, one after the other, and share their names."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "bindings/python/README.md",
    *(ROOT / "docs" / page for page in ("how-to/python.md", "coming-from/plyvel.md", "coming-from/rocksdict.md", "coming-from/lmdb.md")),
]
SAMPLE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_samples(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    samples = list(SAMPLE.finditer(text))
    assert samples
    names = {"__name__": "sample"}
    for sample in samples:
        line = text[: sample.start()].count("\n") + 1
        code = "\n" * line + textwrap.dedent(sample[1])
        exec(compile(code, str(page), "exec"), names)
    for left in names.values():
        if type(left).__name__ == "Db":
            left.close()


def test_the_samples_of_the_package_run(tmp_path, monkeypatch):
    import tidesdb
    import tidesdb.aio

    monkeypatch.chdir(tmp_path)
    for module in (tidesdb, tidesdb.aio):
        code = "\n".join(line[4:] for line in module.__doc__.splitlines() if line.startswith("    ") or not line)
        exec(compile(code, module.__name__, "exec"), {"__name__": "sample"})
