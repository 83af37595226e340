"""Tests a bundle: makes a small table in a folder, publishes and compacts it with the function.

Run by `eventlog.compaction.aws.bundle`, importing from the bundle only. It fails with a traceback
if something is missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow.fs import S3FileSystem

from eventlog import Table
from eventlog.compaction.lambda_handler import handler
from eventlog.errors import DataLoss
from eventlog.readers import scan
from eventlog.staging.encoding import Recipe
from eventlog.staging.stager import Stager
from eventlog.store.s3.adapter import S3Store

_SEGMENTS = 3


class _Invocation:
    """A stand-in for the context that Lambda hands to a function."""

    aws_request_id = "bundle-check"
    memory_limit_in_mb = 1024

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


def main() -> None:
    """Publish three segments, and compact them into one; check that the rows are unchanged.

    Raises:
        DataLoss: they changed, or it is not one segment, or nothing is published.
    """
    with TemporaryDirectory(prefix="eventlog-check-") as folder:
        table = Table.create(Path(folder) / "table", _SCHEMA, time_column="at")
        for number in range(_SEGMENTS):
            _append(table, number)
        before = scan(table).to_table()
        os.environ["EVENTLOG_TABLES"] = table.uri
        os.environ["EVENTLOG_PUBLISH"] = '["delta", "iceberg"]'
        handler({"tables": [table.uri]}, _Invocation())
        segments = table.refresh().totals.segments
        if segments != 1 or scan(table).to_table().sort_by("number") != before.sort_by("number"):
            raise DataLoss(f"{_SEGMENTS} segments became {segments}", table=table.uri)
        for prefix in ("_delta_log/", "metadata/"):
            if not [*table.store.list(prefix, limit=1)]:
                raise DataLoss(f"nothing is published under {prefix}", table=table.uri)
    # What a table on S3 needs, as far as it can be tested without a bucket.
    S3Store("s3://bucket/table")
    S3FileSystem(anonymous=True, region="us-east-1")


_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("number", pa.int64())])


def _append(table: Table, number: int) -> None:
    head = table.refresh()
    rows = pa.table([[number], [number]], names=_SCHEMA.names).cast(_SCHEMA)
    with Stager(table.store, table.clock, Recipe.of(head)) as stager:
        for batch in rows.to_batches():
            stager.write(batch)
        adds = stager.finish()
    table.commit(table.transaction("append", adds, read_version=head.version))


if __name__ == "__main__":
    main()
