"""What a new process loads before it needs it: nothing heavy, and no part that it does not use."""

import subprocess
import sys

import pytest

HEAVY = (
    "boto3",
    "botocore",
    "pandas",
    "polars",
    "duckdb",
    "deltalake",
    "pyspark",
    "sqlglot",
    "opentelemetry.sdk",
    "multiprocessing",
    "asyncio",
    "pyarrow.dataset",
    "pyarrow.flight",
)
PARTS = (
    "merging.merger",
    "readers",
    "writers",
    "compaction",
    "publishing",
    "replication",
    "fsck",
    "cli",
)

APPEND = """
import pyarrow as pa
from eventlog import Table
t = Table.create("memory://cold", pa.schema([("n", pa.int64())]), granularity="all")
n = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])
t.append(pa.RecordBatch.from_arrays([n], schema=t.schema))
"""
SCAN = f"{APPEND}\nimport eventlog.readers\neventlog.readers.scan(t).to_table()"


def loaded(code):
    """The modules that a new process has loaded after some code."""
    told = subprocess.run(
        [sys.executable, "-P", "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("import eventlog", ()),
        (APPEND, ("writers",)),
        (SCAN, ("writers", "readers")),
    ],
    ids=["import", "append", "scan"],
)
def test_a_process_loads_what_it_uses(code, needed):
    modules = loaded(code)
    assert "eventlog.table.table" in modules
    # Where pandas is installed, pyarrow loads it to make an array of a list of Python, as scans do.
    heavy = {*HEAVY} - ({"pandas"} if "readers" in needed else set())
    assert not modules & heavy
    unused = {f"eventlog.{part}" for part in PARTS if part not in needed}
    assert not modules & unused


def test_an_append_loads_no_other_verb_and_a_scan_no_other_question():
    modules = loaded(SCAN)
    assert not any(name.startswith("eventlog.writers.changing") for name in modules)
    assert not any(name.startswith("eventlog.writers.appending") for name in modules)
    assert not any(name.startswith("eventlog.readers.blaming") for name in modules)
    assert not any(name.startswith("eventlog.readers.changefeed") for name in modules)


@pytest.mark.parametrize("package", ["readers", "writers"])
def test_every_public_name_of_a_package_is_found_at_first_use(package):
    code = f"""
import eventlog.{package} as package
assert set(package.__all__) <= set(dir(package))
for name in package.__all__:
    assert getattr(package, name) is getattr(package, name), name
try:
    package.nothing
except AttributeError as error:
    assert "eventlog.{package}" in str(error)
else:
    raise SystemExit("no error")
from eventlog.{package} import *
"""
    assert f"eventlog.{package}" in loaded(code)
