"""The tables of hazards in tests/README.md: each has a line, each test it names is there."""

import re

import pytest
from tidy.definitions import TESTS, asserts_something

LINE = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.*) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
HAZARDS = (
    [f"C{n}" for n in range(1, 10)]
    + [f"P{n}" for n in range(1, 5)]
    + [f"V{n}" for n in range(1, 7)]
    + [f"R{n}" for n in range(1, 4)]
    + [f"I{n}" for n in range(1, 7)]
    + [f"K{n}" for n in (1, 2, 3, 6, 7, 8)]  # K4 and K5 are of keyed tables
    + [f"W{n}" for n in range(1, 11)]
)


def absent(table):
    """What the tables lack: hazards without a line, lines without a test, tests without a body."""
    lines = {hazard: NAMED.findall(tests) for hazard, _, tests in LINE.findall(table)}
    found = [f"{hazard} has no line" for hazard in HAZARDS if hazard not in lines]
    for hazard, tests in lines.items():
        found += [f"{hazard} names no test"] * (not tests)
        found += [
            f"{hazard}: {file}::{name}" for file, name in tests if not asserts_something(file, name)
        ]
    return found


@pytest.fixture(scope="module")
def readme():
    return (TESTS / "README.md").read_text(encoding="utf-8")


def test_every_hazard_names_tests_that_are_there(readme):
    assert absent(readme) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("| C1 |", "| X1 |", "C1 has no line"),
        ("| W10 |", "| X10 |", "W10 has no line"),
        ("::test_v5_an_older", "::test_v5_another", "V5: integration/test_vacuum.py"),
        ("`unit/test_fold.py::test_a_replace_of", "`nowhere.py::test_a_replace_of", "K1: nowhere"),
        ("`integration/test_vacuum.py::test_v4", "`", "V4"),
    ],
)
def test_a_line_that_is_missing_or_wrong_is_found(old, new, said, readme):
    assert old in readme
    assert any(said in line for line in absent(readme.replace(old, new)))


def test_a_line_without_a_test_is_found(readme):
    emptied = re.sub(r"(?m)^(\| W3 \| .+?) \| .* \|$", r"\1 |  |", readme)
    assert absent(emptied) == ["W3 names no test"]
