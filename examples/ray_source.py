"""A version of a table as a data set of Ray: columns are pushed into the scan.

    python examples/ray_source.py s3://bucket/weather

Prints the schema and the number of rows.
"""

import sys
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from eventlog.readers import Scan, scan


class VersionSource(Datasource):
    """The rows of a scan, in parts that Ray reads in parallel. Each part is pickled to its task."""

    def __init__(self, rows: Scan) -> None:
        super().__init__()
        self.rows = rows
        self._projection_map = None  # Ray's, for its `apply_projection`

    def supports_projection_pushdown(self) -> bool:
        """Return True: only the columns that a query needs are read."""
        return True

    def estimate_inmemory_data_size(self) -> int | None:
        """Return None: the log records the sizes of files, not of their rows in memory."""
        return None

    def get_read_tasks(self, parallelism: int, **_hints: object) -> list[ReadTask]:
        """Return one task a part."""
        names = self._get_data_columns()
        rows = self.rows if names is None else self.rows.of_columns(names)
        return [_task(part) for part in rows.parts(max(1, parallelism))]


def _task(part: Scan) -> ReadTask:
    facts = BlockMetadata(
        num_rows=part.plan.count(), size_bytes=None, input_files=None, exec_stats=None
    )
    return ReadTask(partial(_tables, part), facts, part.schema)


def _tables(part: Scan) -> Iterator[pa.Table]:
    for batch in part.to_batches():
        yield pa.Table.from_batches([batch])


def read_version(
    uri: str, columns: list[str] | None = None, where: str | None = None
) -> ray.data.Dataset:
    """Return the newest version of a table as a data set of Ray."""
    return ray.data.read_datasource(VersionSource(scan(uri, columns, where)))


if __name__ == "__main__":
    found = read_version(sys.argv[1])
    print(found.schema())  # noqa: T201
    print(found.count())  # noqa: T201
