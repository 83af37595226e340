"""The makers write all golden tables from nothing: the same bytes everywhere, the same answers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import remake, vectors

TESTS = Path(__file__).parents[1]
WRITTEN = ("tables", "vectors.json", "negative.json", "expected.json")
# What the tables hold; the others follow from how large a library makes their files.
ANSWERS = ("version", "key_frame", "transactions", "rows", "cut")
ASKED = ("test_vectors", "test_reader", "test_golden", "test_branches", "test_keyed", "test_packs")


def _run(folder, *command):
    """Run a command of Python beside a copy of these tests that has no golden tables."""
    paths = [folder / "tests", TESTS.parent]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(
        [sys.executable, "-P", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.fixture(scope="module")
def remade(tmp_path_factory):
    """Two folders in each of which all tables were made."""
    made = []
    for name in ("one", "another place"):
        folder = tmp_path_factory.mktemp(name)
        for part in ("golden", "support"):
            left_out = shutil.ignore_patterns("__pycache__", *WRITTEN)
            shutil.copytree(TESTS / part, folder / "tests" / part, ignore=left_out)
        shutil.copy(TESTS / "conftest.py", folder / "tests")
        shutil.copy(TESTS.parent / "pyproject.toml", folder)
        golden = folder / "tests" / "golden"
        _run(folder, golden / "remake.py", *remake.MAKERS)
        made.append(golden)
    return made


def _bodies(golden):
    return {
        str(path.relative_to(golden)): path.read_bytes()
        for name in WRITTEN
        for path in [golden / name, *(golden / name).rglob("*")]
        if path.is_file()
    }


def _answers(golden):
    known = json.loads((golden / "vectors.json").read_text(encoding="utf-8"))
    return {
        name: [
            [one.get(field) for field in ANSWERS] + one.get("totals", [])[:2] for one in versions
        ]
        for name, versions in known.items()
    }


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_makers_write_the_same_bytes_in_every_place(remade):
    one, other = map(_bodies, remade)
    assert one.keys() == other.keys()
    assert [key for key in one if one[key] != other[key]] == []


@pytest.mark.long
def test_tables_that_are_made_once_more_answer_as_those_that_are_stored(remade):
    assert _answers(remade[0]) == _answers(vectors.HERE)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_test_of_golden_tables_holds_for_those_that_are_made_once_more(remade):
    tests = [f"tests/golden/{name}.py" for name in ASKED]
    _run(remade[0].parents[1], "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
