"""Why Spark's own Parquet reader is not used; decided without a session."""

import pyarrow as pa
import pytest
from support.builders import create, events

from eventlog.readers import scan
from eventlog.readers.scanner import plan_scan
from eventlog.writers import append, overwrite

pytest.importorskip("pyspark")

from eventlog.readers.spark.jvm import obstacle


class NoSession:
    """A Spark session that is asked for its configuration alone."""

    class conf:  # noqa: N801 - as in Spark
        @staticmethod
        def get(name):
            return "true"


def test_spark_s_own_reader_is_refused_where_names_do_not_show_the_columns():
    table = create()
    append(table, events(3))
    plan = lambda: plan_scan(table.session.head())
    table.add_columns([pa.field("more", pa.int8())])
    assert obstacle(NoSession, table.uri, plan()) is None
    table.rename_column("name", "title")
    assert "finds columns by name" in obstacle(NoSession, table.uri, plan())
    seen = table.refresh().version
    overwrite(table, scan(table), read_version=seen)
    assert obstacle(NoSession, table.uri, plan()) is None
