"""Spark starts `python3` from the path, whatever Python the driver is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from spark.programs import SHORT_SUBMIT

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.readers.spark import activate
from eventlog.readers.spark.workers import has_data_sources
from eventlog.writers import append

# A Python of its own: the same, but msgspec is not there.
BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "msgspec":
            raise ModuleNotFoundError("No module named 'msgspec'", name=name)
sys.meta_path.insert(0, Absent())
"""


def bare_python(folder):
    """Make a program that is this Python without a package that eventlog needs."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCK)
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return program


def test_a_python_that_was_chosen_is_tried_before_a_job(spark, tmp_path, monkeypatch):
    for program, why in (
        (bare_python(tmp_path / "bare"), "No module named 'msgspec'"),
        (tmp_path / "absent", "absent does not start"),
    ):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
        with pytest.raises(InvalidInput, match=f"set PYSPARK_PYTHON.*{why}"):
            activate(spark)


@pytest.mark.long  # starts seven daemons for Python workers, without what others preload
def test_the_drivers_python_is_taken_or_the_error_names_the_setting(tmp_path):
    bare = bare_python(tmp_path / "bare").parent
    table = Table.create(
        tmp_path / "table",
        pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))]),
        time_column="ts",
    )
    append(
        table,
        pa.table({"id": [7, 8], "ts": pa.array([0, 86_400_000_000], pa.timestamp("us", "UTC"))}),
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")
    } | {
        "PATH": f"{bare}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        **SHORT_SUBMIT,
    }
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("other_python_job.py"), table.uri],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    for how in ("by itself", "chosen") if has_data_sources() else ("chosen",):
        assert "No module named 'msgspec'" in said[how]
        assert "set PYSPARK_PYTHON" in said[how]
    assert "does not start" in said["absent"]
    assert "set PYSPARK_PYTHON" in said["absent"]
    assert (said["rows"], said["all rows"]) == (2, 5)
    if pyspark.__version__.startswith("4.0."):
        # It does not replace the data source that it discovered with another Python.
        assert "set PYSPARK_PYTHON" in said["by the data source"]
    elif has_data_sources():
        assert said["by the data source"] == 8
