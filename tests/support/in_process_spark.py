"""A Spark session without a JVM: its tasks run in the process that collects their results.

It has what the writers of `eventlog.writers.spark` call where Spark joins nothing. Driver and tasks
share one store and one clock, so that a program with both can die at any call of that store.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa

from eventlog import Table
from eventlog.readers.spark.types import to_spark
from eventlog.session import session
from eventlog.writers import spark
from eventlog.writers.spark import jobs, save_target


class InProcessSpark:
    """The session."""

    def createDataFrame(self, rows: list[tuple[Any, ...]], schema: str, **_: Any) -> Frame:
        """Return a frame of a column of bytes, each row in a partition of its own."""
        name, _, kind = schema.partition(" ")
        assert kind == "binary"
        parts = [pa.record_batch([pa.array([bytes(one)], pa.binary())], [name]) for (one,) in rows]
        return Frame(self, parts)

    def frame_of(self, rows: pa.Table) -> Frame:
        """Return a frame of rows, in a partition for each of their batches."""
        return Frame(self, rows.to_batches())


@dataclass(frozen=True)
class Frame:
    """A DataFrame: its partitions, each as a batch, and the task that makes its rows of them."""

    sparkSession: InProcessSpark  # noqa: N815 - PySpark's name
    parts: list[pa.RecordBatch]
    task: Callable[..., Any] = field(default=lambda batches: batches)

    @property
    def schema(self) -> Any:
        """The schema of the partitions, as Spark spells it."""
        return to_spark(self.parts[0].schema)

    @property
    def columns(self) -> list[str]:
        """The names of their columns."""
        return list(self.parts[0].schema.names)

    def toDF(self, *names: str) -> Frame:
        """Return the same rows with other names of columns."""
        return Frame(self.sparkSession, [part.rename_columns(names) for part in self.parts])

    def mapInArrow(self, task: Callable[..., Any], schema: str) -> Frame:
        """Return the rows that a task makes of each partition."""
        return Frame(self.sparkSession, self.parts, task)

    def collect(self) -> list[SimpleNamespace]:
        """Run the task for each partition, and return the rows of all results."""
        made = [batch for part in self.parts for batch in self.task(iter([part]))]
        return [SimpleNamespace(**row) for batch in made for row in batch.to_pylist()]


def update_by_tasks(t: Table, *given: Any, **options: Any) -> Any:
    """Do the same as `eventlog.writers.update`, by tasks of a session without a JVM."""
    return with_store_of(t, lambda uri: spark.update(uri, InProcessSpark(), *given, **options))


def with_store_of(t: Table, call: Callable[[str], Any]) -> Any:
    """Call a function that opens tables by their place, all of which are the table of a handle."""
    with ExitStack() as stack:
        for module in (spark, jobs, save_target):
            opened = mock.patch.object(module, "open_store", return_value=t.store)
            stack.enter_context(opened)
        clock = mock.patch.object(session, "SystemClock", return_value=t.session.clock)
        stack.enter_context(clock)
        return call(t.uri)
