"""Streaming queries without Spark: the calls of its driver and its tasks, with their pickling."""

import json
import pickle

from pyspark.sql.datasource import DataSourceStreamReader

from eventlog.readers.spark.source import load_schema
from eventlog.readers.spark.streaming.stream_source import make_stream_reader

TOLD = hasattr(DataSourceStreamReader, "getDefaultReadLimit")  # where batches begin: Spark 4.2


class Died(Exception):
    """A query was killed."""


class Query:
    """What Spark does with a source: a checkpoint, which outlives runs, and a reader for each run.

    Attributes:
        ends: the end of each batch, as in the log of offsets.
        done: how many batches the sink has.
        rows: what each batch had, a dict of each row.
    """

    def __init__(self, uri, *, told=True, **options):
        self.options = {"path": uri, **options}
        self.told = told  # Spark 4.2 and later tell where the last batch ended
        self.ends, self.rows, self.done = [], {}, 0
        self.reader = None

    @property
    def ids(self):
        """The ids that each batch had."""
        return {batch: sorted(row["id"] for row in rows) for batch, rows in self.rows.items()}

    @property
    def all_ids(self):
        return sorted(n for batch in self.ids.values() for n in batch)

    def start(self):
        pinned, schema = load_schema(self.options)
        self.reader = make_stream_reader(self.options, schema, pinned)
        if len(self.ends) > self.done:
            self._run()
        return self

    def trigger(self, dies=None):
        """Plan and run a batch; return whether there was one."""
        if self.told:
            begin = self._begin(len(self.ends))
            limit = self.reader.getDefaultReadLimit() if TOLD else None
            end = self.reader.latestOffset(begin, limit)
            if end == begin:
                return False
        else:
            end = self.reader.latestOffset()
            if self.ends and end == self.ends[-1]:
                return False
        self.ends.append(json.loads(json.dumps(end)))
        self._run(dies)
        return True

    def drain(self):
        while self.trigger():
            pass
        return self

    def _begin(self, batch):
        return (
            self.ends[batch - 1] if batch else json.loads(json.dumps(self.reader.initialOffset()))
        )

    def _run(self, dies=None):
        batch = len(self.ends) - 1
        if dies == "before":
            raise Died
        found = []
        for partition in self.reader.partitions(self._begin(batch), self.ends[batch]):
            task = pickle.loads(pickle.dumps(self.reader))
            for read in task.read(pickle.loads(pickle.dumps(partition))):
                found += read.to_pylist()
        found.sort(key=repr)
        # A batch that is run again has the rows that it had.
        assert self.rows.setdefault(batch, found) == found
        if dies == "after":
            raise Died
        self.done = batch + 1
        self.reader.commit(self.ends[batch])
