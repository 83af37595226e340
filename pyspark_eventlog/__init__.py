"""What Spark finds by itself: `spark.read.format("eventlog")` without registration.

Spark looks for a `DefaultSource` in every top-level module whose name starts with `pyspark_`, at
the first use of any Python data source, so that this import stays light: the reader and the writer
are imported when they are asked for. Executors need the distribution installed, as classes travel
by name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from eventlog.readers.spark.source import Pinned


class DefaultSource(DataSource):
    """The data source `eventlog`: batch reads and writes of tables by path.

    Options: `eventlog` reads and writes share one set, see `eventlog.readers.spark` and
    `eventlog.writers.spark`.
    """

    # Set at load(), before Spark ships this object: the plan and every action see one version.
    _pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "eventlog"

    def schema(self) -> StructType:
        """Pin the table and its version; return its schema, or that of option `columns`."""
        with _explained():
            from eventlog.readers.spark.source import load_schema  # noqa: PLC0415 - see the module's docstring

        self._pinned, schema = load_schema(self.options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the pinned version; a schema given by the user is a projection."""
        with _explained():
            from eventlog.readers.spark.source import make_reader  # noqa: PLC0415 - see the module's docstring

        return make_reader(self.options, schema, self._pinned)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of one job."""
        with _explained():
            from eventlog.writers.spark import make_writer  # noqa: PLC0415 - see the module's docstring

        return make_writer(self.options, schema, overwrite=overwrite)


@contextmanager
def _explained() -> Iterator[None]:
    """Say which Python lacks a package: Spark may run another one than the driver is."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{sys.executable}, which Spark runs, lacks what eventlog needs ({error}): set "
            "PYSPARK_PYTHON, before the session starts, to a Python that has it; on a cluster send "
            "an environment along (spark.archives)"
        ) from None
