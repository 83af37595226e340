"""The table of hazards in tests/README.md: each has a line, each test it names is there."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LINE = re.compile(r"^\| ([A-Z]\d) \| (.+?) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
HAZARDS = (
    [f"C{n}" for n in range(1, 10)]
    + [f"P{n}" for n in range(1, 5)]
    + [f"V{n}" for n in range(1, 7)]
    + [f"R{n}" for n in range(1, 4)]
    + [f"I{n}" for n in range(1, 7)]
    + [f"K{n}" for n in (1, 2, 3, 6, 7, 8)]  # K4 and K5 are of keyed tables
)


def absent(table):
    """What the table lacks: hazards without a line, lines without a test, tests without a body."""
    lines = {hazard: NAMED.findall(tests) for hazard, _, tests in LINE.findall(table)}
    found = [f"{hazard} has no line" for hazard in HAZARDS if hazard not in lines]
    for hazard, tests in lines.items():
        found += [f"{hazard} names no test"] * (not tests)
        found += [f"{hazard}: {file}::{name}" for file, name in tests if not defined(file, name)]
    return found


def defined(file, name):
    path = TESTS / file
    if not path.is_file():
        return False
    tree = ast.walk(ast.parse(path.read_text()))
    found = [f for f in tree if isinstance(f, ast.FunctionDef) and f.name == name]
    return any(isinstance(part, ast.Assert | ast.With) for f in found for part in ast.walk(f))


def test_every_hazard_names_tests_that_are_there():
    assert absent((TESTS / "README.md").read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("| C1 |", "| X1 |", "C1 has no line"),
        ("::test_v5_an_older", "::test_v5_another", "V5: integration/test_vacuum.py"),
        ("`unit/test_fold.py::test_a_replace_of", "`nowhere.py::test_a_replace_of", "K1: nowhere"),
    ],
)
def test_a_line_that_is_missing_or_wrong_is_found(old, new, said):
    table = (TESTS / "README.md").read_text()
    assert old in table
    assert any(said in line for line in absent(table.replace(old, new)))
