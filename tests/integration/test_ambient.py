"""What surrounds a program reaches no value: the same bytes and answers in unusual processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("ambient.py")
UNUSUAL = {
    "LC_ALL": "C",
    "LANG": "tr_TR.UTF-8",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONHASHSEED": "4711",
    "PYTHONOPTIMIZE": "2",
    "PYTHONIOENCODING": "ascii",
    "TZ": "Asia/Kathmandu",
    "COLUMNS": "7",
    "NO_COLOR": "1",
    "AWS_PROFILE": "nobody",
    "AWS_REGION": "nowhere",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "ARROW_IO_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def outcome(folder: Path, *arguments: str, **environment: str) -> dict:
    """What the program prints in such a process."""
    usual = {n: v for n, v in os.environ.items() if not n.startswith(("LC_", "LANG", "TZ"))}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *arguments],
        env={**usual, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environment},
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return json.loads(done.stdout)


@pytest.mark.verify
@pytest.mark.hazard("W1")
def test_w1_what_surrounds_a_program_reaches_no_value(tmp_path):
    usual = outcome(tmp_path / "one", TZ="UTC", LC_ALL="C.UTF-8", PYTHONHASHSEED="0")
    other = outcome(tmp_path / "two", "unusual", **UNUSUAL)
    for part, wanted in usual.items():
        assert other[part] == wanted, part
    after = usual["after"]
    assert len(after["all"]) == 3 + 8 + 8 + 2
    assert after == {**usual["before"], "all": after["all"]}
    assert [len(after[where]) for where in after if where.startswith("price =")] == [4, 5]
    assert [len(after[where]) for where in after if where.startswith("arrow")] == [4, 5]


@pytest.mark.hazard("W1")
def test_w1_statistics_of_decimals_are_exact_in_any_context():
    """The least that shows the fault: one decimal column, one row, found by its value."""
    program = """
import decimal, pyarrow as pa
from decimal import Decimal
values = ["1234567.89", "-1234567.89", "0.01", "9999999999999999.99"]
prices = [pa.array([Decimal(value)], pa.decimal128(18, 2)) for value in values]
decimal.setcontext(decimal.Context(prec=6, traps=[decimal.Inexact]))
from eventlog import Table
from eventlog.readers import scan
from eventlog.writers import append
at = pa.array([0], pa.timestamp("us", tz="UTC"))
for value, price in zip(values, prices):
    rows = pa.table({"at": at, "price": price})
    table = Table.create(f"memory://{value}", rows.schema, time_column="at")
    append(table, rows)
    for where in ("price = {0}", "price <= {0} AND price >= {0}", "price IN ({0}, 7)"):
        assert scan(table, where=where.format(value)).to_table().num_rows == 1, where
        assert scan(table, where=where.format(value)).count() == 1, where
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
