"""The data source that Spark discovers: `spark.read.format("eventlog")` without registration.

At the first use of any Python data source Spark looks for a `DefaultSource` in every top-level
module whose name starts with `pyspark_`. So this import is kept light: the reader and the writer
are imported when they are first needed. Executors need the distribution installed, because classes
are pickled by name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from eventlog.readers.spark.shares import Pinned


class DefaultSource(DataSource):
    """The data source `eventlog`: reads, writes and streams of tables by path.

    All of them share one set of options: see `eventlog.readers.spark.source`,
    `eventlog.readers.spark.streaming.stream_source`, `eventlog.writers.spark.source` and
    `eventlog.writers.spark.stream`.
    """

    # Set at load(), before Spark pickles this object: the plan and every action see one version.
    _pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "eventlog"

    def schema(self) -> StructType:
        """Pin the table and its version. Return its schema, projected by option `columns`."""
        with _explained():
            from eventlog.readers.spark.source import load_schema  # noqa: PLC0415 - see the module's docstring

        self._pinned, schema = load_schema(self.options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the pinned version; a schema given by the user is a projection."""
        with _explained():
            from eventlog.readers.spark.source import make_reader  # noqa: PLC0415 - see the module's docstring

        return make_reader(self.options, schema, self._pinned)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Return the reader of a stream: the rows of the newest version, then appended ones."""
        with _explained():
            from eventlog.readers.spark.streaming.stream_source import (  # noqa: PLC0415 - see the module's docstring
                make_stream_reader,
            )

        return make_stream_reader(self.options, schema, self._pinned)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of one save."""
        with _explained():
            from eventlog.writers.spark.source import make_writer  # noqa: PLC0415 - see the module's docstring

        return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch; `overwrite` is set in output mode complete."""
        with _explained():
            from eventlog.writers.spark.stream import make_stream_writer  # noqa: PLC0415 - see the module's docstring

        return make_stream_writer(self.options, schema, overwrite=overwrite)


@contextmanager
def _explained() -> Iterator[None]:
    """Name the Python that lacks a package: Spark may run another one than the driver does."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{sys.executable}, which Spark runs, lacks what eventlog needs ({error}): set "
            "PYSPARK_PYTHON, before the session starts, to a Python that has it; on a cluster send "
            "an environment along (spark.archives)"
        ) from None
