"""A version of a table as a data frame of Daft: columns are pushed into the scan.

    python examples/daft_source.py s3://bucket/weather

Shows the first rows.
"""

import sys
from collections.abc import AsyncIterator

import daft
import pyarrow as pa
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch

from eventlog.readers import Scan, scan

PARTS = 16


class VersionTask(DataSourceTask):
    """Reads a part of a scan, in whatever process it is sent to."""

    def __init__(self, part: Scan) -> None:
        self.part = part

    @property
    def schema(self) -> daft.Schema:
        """The columns of the rows."""
        return daft.Schema.from_pyarrow_schema(self.part.schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        """Yield the rows."""
        for batch in self.part.to_batches():
            yield RecordBatch.from_arrow_table(pa.Table.from_batches([batch]))


class VersionSource(DataSource):
    """The rows of a scan. Daft applies filters and limits itself, to what it is given."""

    def __init__(self, rows: Scan) -> None:
        self.rows = rows

    @property
    def name(self) -> str:
        """The table and its version."""
        return f"version {self.rows.version} of {self.rows.snapshot.header.table}"

    @property
    def schema(self) -> daft.Schema:
        """The columns of the rows."""
        return daft.Schema.from_pyarrow_schema(self.rows.schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[VersionTask]:
        """Yield a task for each part, with the columns that the query needs."""
        wanted = pushdowns.columns
        if wanted is not None:
            wanted = {*wanted, *pushdowns.filter_required_column_names()}
            wanted = [name for name in self.rows.schema.names if name in wanted]
        rows = self.rows if wanted is None else self.rows.of_columns(wanted)
        for part in rows.parts(PARTS):
            yield VersionTask(part)


def read_version(
    uri: str, columns: list[str] | None = None, where: str | None = None
) -> daft.DataFrame:
    """Return the newest version of a table as a Daft data frame."""
    return VersionSource(scan(uri, columns, where)).read()


if __name__ == "__main__":
    read_version(sys.argv[1]).show()
