"""The Python that Spark runs beside the driver: it has to have eventlog too.

Imports eventlog and pyspark (extra `spark`). Spark starts `python3` from the path unless
PYSPARK_PYTHON names another one, whatever Python the driver is.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from eventlog.errors import InvalidInput

_DEFAULT = "python3"  # what Spark starts where nothing names another
_ADVICE = (
    "the Python that Spark runs cannot load eventlog: set PYSPARK_PYTHON, before the session "
    "starts, to one that has it; on a cluster send an environment along (spark.archives)"
)
_SOURCE = "pyspark_eventlog"  # by name, as Spark finds it: it imports this package
_SIGNS = ("DATA_SOURCE_NOT_FOUND", "ModuleNotFoundError", "ImportError")
_mended: WeakSet[SparkSession] = WeakSet()


def share_python(spark: SparkSession) -> None:
    """Let the workers of a local session run the driver's Python, unless another one was chosen.

    Who sets PYSPARK_PYTHON chooses. On a cluster and on Spark Connect nothing is changed: what the
    driver runs need not be there.
    """
    remote = getattr(spark, "_jvm", None) is None
    if remote or spark in _mended or "PYSPARK_PYTHON" in os.environ:
        return
    context: Any = spark.sparkContext
    chosen = context.pythonExec not in (_DEFAULT, sys.executable)
    if context.master.split("[")[0] != "local" or chosen or _is_this(_DEFAULT):
        return
    context.pythonExec = sys.executable
    # What Spark finds by itself it runs with the Python that it knew when it started.
    spark.dataSource.register(importlib.import_module(_SOURCE).DefaultSource)
    _mended.add(spark)


@contextmanager
def explained() -> Iterator[None]:
    """Say of a failure for want of a package in Spark's Python what it is.

    Raises:
        InvalidInput: that Python has no eventlog, or lacks a package that eventlog needs.
    """
    try:
        yield
    except AnalysisException as error:
        said = str(error)
        if not any(sign in said for sign in _SIGNS):
            raise
        why = [line.strip() for line in said.splitlines() if "Error: " in line] or [said]
        raise InvalidInput(f"{_ADVICE}; {why[-1][:300]}") from error


def _is_this(program: str) -> bool:
    """Say whether a command starts the Python that runs here, with the same packages."""
    found, here = shutil.which(program), Path(sys.executable)
    if found is None:
        return False
    # Two environments may share an interpreter by links, but not its packages.
    there = Path(found)
    return there == here or (there.parent == here.parent and there.samefile(here))
