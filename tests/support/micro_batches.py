"""Micro-batches of a streaming query without Spark: the same calls, with the same pickling."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from pyspark import TaskContext, cloudpickle
from pyspark.sql.types import StructType

from pyspark_eventlog import DefaultSource

SCHEMA = StructType().add("id", "long").add("ts", "timestamp")


@contextmanager
def _task_of(query_id):
    """Be a task of a query: a worker of Spark tells it the query's id as a local property."""
    context = TaskContext._getOrCreate()
    context._localProperties = {"sql.streaming.queryId": query_id}
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def plan(options, schema=SCHEMA):
    """The writer that Spark sends to the tasks of a micro-batch."""
    return cloudpickle.dumps(DefaultSource(options).streamWriter(schema, False))


def stage(planned, query_id, rows):
    """What one task returns for its rows."""
    with _task_of(query_id):
        return cloudpickle.dumps(pickle.loads(planned).write(iter(rows)))


def commit(options, staged, batch_id, schema=SCHEMA):
    """Commit what the tasks returned, with a writer of its own, as Spark does."""
    source = pickle.loads(cloudpickle.dumps(DefaultSource(options)))
    writer = source.streamWriter(schema=schema, overwrite=False)
    writer.commit([pickle.loads(message) for message in staged], batch_id)


def run(options, query_id, batch_id, *parts, schema=SCHEMA):
    """A whole micro-batch with one task for each part, in this process."""
    planned = plan(options, schema)
    commit(options, [stage(planned, query_id, part) for part in parts], batch_id, schema)


def _planned_and_staged(options, query_id, parts):
    planned = plan(options)
    return [stage(planned, query_id, part) for part in parts]


class TwoProcesses:
    """A query whose batches are planned in one process and committed in another, as Spark does."""

    def __init__(self, options, query_id):
        self._options, self._query_id = options, query_id
        self._planner, self._committer = (
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) for _ in range(2)
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._planner.shutdown()
        self._committer.shutdown()

    def run(self, batch_id, *parts):
        """One micro-batch."""
        tasks = self._planner.submit(_planned_and_staged, self._options, self._query_id, parts)
        self._committer.submit(commit, self._options, tasks.result(), batch_id).result()
