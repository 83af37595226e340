"""The Python that Spark runs for its workers, which needs eventlog installed too.

Imports eventlog and pyspark (extra `spark`). Spark starts `python3` from the path unless
PYSPARK_PYTHON names another one, whatever Python the driver runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession

from eventlog.errors import InvalidInput

_DEFAULT = "python3"  # what Spark starts by default
_ADVICE = (
    "the Python that Spark runs cannot load eventlog: set PYSPARK_PYTHON, before the session "
    "starts, to one that has it; on a cluster send an environment along (spark.archives)"
)
_SOURCE = "pyspark_eventlog"  # loaded by name, as Spark does: it imports this package
_SIGNS = ("DATA_SOURCE_NOT_FOUND", "ModuleNotFoundError", "ImportError")
_sharing: WeakSet[SparkSession] = WeakSet()


def prepare_workers(spark: SparkSession) -> None:
    """Make the data source `eventlog` available to Spark in this thread.

    See `eventlog.readers.spark.activate`, which does this first. On Spark Connect it does nothing.

    Raises:
        InvalidInput: the Python that was named for the workers of a local session cannot load
            eventlog.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is not None:
        jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - as PySpark does
        # On a cluster the driver's Python may not exist.
        if str(spark.sparkContext.master).split("[")[0] == "local":
            _share_python(spark)


def _share_python(spark: SparkSession) -> None:
    """Make the workers of a local session run the driver's Python, unless another one is set."""
    context: Any = spark.sparkContext
    if "PYSPARK_PYTHON" in os.environ or context.pythonExec not in (_DEFAULT, sys.executable):
        _check(context.pythonExec)
    elif spark not in _sharing and not _is_this(context.pythonExec):
        context.pythonExec = sys.executable
        if has_data_sources():
            # Data sources that Spark discovers itself keep the Python that was set when it started.
            try:
                spark.dataSource.register(importlib.import_module(_SOURCE).DefaultSource)
            except AnalysisException as error:
                # 4.0 does not replace what it discovered. The functions do without it.
                if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                    raise
        _sharing.add(spark)


@cache
def _check(program: str) -> None:
    """Check that a Python that somebody chose can load eventlog.

    Raises:
        InvalidInput: it cannot.
    """
    if _is_this(program):
        return
    command = [program, "-c", "import eventlog.readers"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - as Spark starts it
    except OSError as error:
        raise InvalidInput(f"{_ADVICE}; {program} does not start: {error}") from error
    if result.returncode:
        why = result.stderr.strip().splitlines() or [f"nothing, and ended with {result.returncode}"]
        raise InvalidInput(f"{_ADVICE}; {program} reports: {why[-1][:300]}")


def has_data_sources() -> bool:
    """Return whether this PySpark has data sources in Python: 4.0 and later have."""
    return importlib.util.find_spec("pyspark.sql.datasource") is not None


def keeps_rows_without_columns() -> bool:
    """Return whether this PySpark counts the rows of data sources without columns: from 4.1 on."""
    datasource = importlib.import_module("pyspark.sql.datasource")
    return hasattr(datasource, "DataSourceStreamArrowWriter")  # came with the same version


@contextmanager
def explained() -> Iterator[None]:
    """Raise a helpful error if Spark's Python lacks a package.

    Raises:
        InvalidInput: that Python has no eventlog, or lacks a package that eventlog needs.
    """
    try:
        yield
    except (AnalysisException, PythonException) as error:
        message = str(error)
        if not any(sign in message for sign in _SIGNS):
            raise
        why = [line.strip() for line in message.splitlines() if "Error: " in line] or [message]
        raise InvalidInput(f"{_ADVICE}; {why[-1][:300]}") from error


def _is_this(program: str) -> bool:
    """Return whether a command starts this Python, with the same packages."""
    command, own = shutil.which(program), Path(sys.executable)
    if command is None:
        return False
    # Two environments may link to one interpreter but have different packages.
    other = Path(command)
    return other == own or (other.parent == own.parent and other.samefile(own))
