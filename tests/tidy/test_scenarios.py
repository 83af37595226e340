"""The README's table of scenarios: every one is there, and every test that it names."""

import re

from tidy.definitions import TESTS, arguments

ROOT = TESTS.parent
# How many scenarios each of the systems has that are built so far.
SCENARIOS = {"S1": 6, "S2": 6, "S3": 7}
# Fixtures that stand for an S3 server and for a directory, one after the other.
BOTH_PLACES = {"place", "long_place", "root_uri"}
# Scenario -> why no test of it runs against an S3 server and a directory alike.
NOT_IN_BOTH_PLACES: dict[str, str] = {}


def table():
    """The table's cells with tests, by scenario."""
    rows = re.findall(
        r"^\| (S\d\.\d+) \|[^|]*\|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    return dict(rows)


def named_in(cell):
    """The names of the tests in a cell, and the files of tests."""
    return re.findall(r"`(test_\w+)`", cell), re.findall(r"`(tests/[\w/]+\.py)`", cell)


def test_every_scenario_stands_in_the_table():
    wanted = {f"{s}.{n}" for s, count in SCENARIOS.items() for n in range(1, count + 1)}
    assert set(table()) == wanted


def test_every_test_in_the_table_exists_and_is_named_after_its_scenario():
    there = arguments()
    for number, cell in table().items():
        names, files = named_in(cell)
        assert names, number
        start = f"test_{number.lower().replace('.', '_')}_"
        assert all(name.startswith(start) for name in names), number
        assert set(names) <= set(there), number
        assert all((ROOT / file).is_file() for file in files), number


def test_every_scenario_runs_on_s3_and_in_a_directory():
    """One of its tests takes a fixture that stands for both, one after the other."""
    there = arguments()
    elsewhere = {
        number
        for number, cell in table().items()
        if not any(
            there.get(name, set()) & {"place", "long_place", "root_uri"}
            for name in named_in(cell)[0]
        )
    }
    assert elsewhere == set(NOT_IN_BOTH_PLACES)
