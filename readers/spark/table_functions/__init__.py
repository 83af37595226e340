"""Functions of SQL that return a table's versions, segments and changes, as rows.

    log_functions     eventlog_history, eventlog_segments
    change_function   eventlog_changes
    analysis          the columns of a call, its arguments, and the version that it is pinned to

Imports eventlog, readers and pyspark (extra `spark`). The guide of PySpark lists the arguments of
the functions, which are given by place or by name. One task computes the rows of a call.

When Spark analyses a query it asks Python for the columns: there an argument that is wrong is an
error, and the table and its version are pinned. Arguments may also be columns of another table
(LATERAL), except those of changes; they are then looked at in the task. Spark 3.5 does not analyse:
errors come with the first action, and there are no changes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf

from eventlog.readers.spark.table_functions.analysis import HAS_ANALYSIS
from eventlog.readers.spark.table_functions.change_function import EventLogChanges
from eventlog.readers.spark.table_functions.log_functions import (
    EventLogHistory,
    EventLogSegments,
)
from eventlog.readers.spark.types import to_spark
from eventlog.table.inspection.columns import HISTORY, SEGMENTS

_registered: WeakSet[SparkSession] = WeakSet()


def register_functions(spark: SparkSession) -> None:
    """Register the functions in a session, unless it has them already."""
    if spark in _registered:
        return
    register: Any = spark.udtf.register
    for name, function, schema in (
        ("eventlog_history", EventLogHistory, HISTORY),
        ("eventlog_segments", EventLogSegments, SEGMENTS),
    ):
        fixed = None if HAS_ANALYSIS else to_spark(schema)
        register(name, udtf(function, returnType=fixed, useArrow=False))
    if HAS_ANALYSIS:
        register("eventlog_changes", udtf(EventLogChanges, useArrow=False))
    _registered.add(spark)
