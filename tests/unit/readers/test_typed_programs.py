"""What a type checker makes of a program that uses tables."""

import subprocess
import sys

import pytest
from tidy.definitions import TESTS

from eventlog.readers import Changes, FirstRows, Scan

PROGRAM = """
from typing import assert_type

import duckdb
import polars as pl

from eventlog import Table
from eventlog.readers import Changes, FirstRows, Scan, changes, scan
from eventlog.writers import RowChange, append

t = Table.open("weather")
assert_type(t.append([{"n": 1}]), int)
assert_type(append(t, [{"n": 1}], app_id="job", app_seq=1), int)
assert_type(t.scan(["n"], "n > 0", limit=3), Scan)
assert_type(t.head(3), FirstRows)
assert_type(t.changes(0), Changes)
assert_type(t.count("n > 0", version=1), int)
assert_type(t.delete(where="n > 0").deleted, int)
assert_type(t.update({"n": "n + 1"}, isolation="serializable"), RowChange)
assert_type(scan(t).to_polars(), pl.DataFrame)
assert_type(scan(t).to_duckdb(), duckdb.DuckDBPyRelation)
assert_type(changes(t, 0).to_polars(), pl.DataFrame)
"""

# A wrong line -> a part of what the type checker reports for it.
WRONG = {
    't.scan(limit="3")': '"limit" to "scan" of "Table" has incompatible type "str"',
    "t.append()": 'Missing positional argument "data" in call to "append" of "Table"',
    't.delete(where="n > 0", isolation="none")': '"isolation" to "delete" of "Table" has incom',
    "scan(t).to_polars().to_table()": '"DataFrame" has no attribute "to_table"',
}


@pytest.mark.long  # the checker reads all of Polars
def test_a_strict_program_checks_and_its_mistakes_are_found(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM + "\n".join(WRONG))
    options = ["--strict", "--ignore-missing-imports", "--config-file", "/dev/null"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", *options, "--cache-dir", tmp_path / "cache", path],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS.parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    first = PROGRAM.count("\n") + 1
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(found) == len(WRONG), done.stdout
    for number, (line, wanted) in enumerate(zip(found, WRONG.values(), strict=True), first):
        assert f":{number}: " in line
        assert wanted in line


@pytest.mark.parametrize("rows", [Scan, Changes, FirstRows])
def test_results_have_the_types_of_their_libraries(rows):
    wanted = {
        "to_pandas": "pd.DataFrame",
        "to_polars": "pl.DataFrame",
        "to_duckdb": "duckdb.DuckDBPyRelation",
        "to_table": "pa.Table",
    }
    assert wanted == {name: getattr(rows, name).__annotations__["return"] for name in wanted}
