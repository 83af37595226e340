"""The README's table of scenarios: every one is there, and every test that it names."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# How many scenarios each of the systems has that are built so far.
SCENARIOS = {"S1": 6, "S2": 6, "S3": 7}


def table():
    """The names of the tests by scenario, as the README's table says."""
    rows = re.findall(
        r"^\| (S\d\.\d+) \|[^|]*\|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    return {number: re.findall(r"`(test_\w+)`", cell) for number, cell in rows}


def named():
    """The names of all test functions."""
    files = (ROOT / "tests").rglob("test_*.py")
    trees = (ast.parse(path.read_text()) for path in files)
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_every_scenario_stands_in_the_table():
    wanted = {f"{s}.{n}" for s, count in SCENARIOS.items() for n in range(1, count + 1)}
    assert set(table()) == wanted


def test_every_test_in_the_table_exists_and_is_named_after_its_scenario():
    there = named()
    for number, names in table().items():
        assert names, number
        start = f"test_{number.lower().replace('.', '_')}_"
        assert all(name.startswith(start) for name in names), number
        assert set(names) <= there, number
