"""Write, audit, publish: the example, with readers beside it."""

import importlib.util
import threading
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from eventlog import Table
from eventlog.readers import count, scan

EXAMPLE = Path(__file__).parents[2] / "examples" / "write_audit_publish.py"
SCHEMA = pa.schema(
    [
        ("time_hour", pa.timestamp("us", "UTC")),
        ("origin", pa.string()),
        ("dep_delay", pa.float64()),
    ]
)
DAY, NEXT = date(2013, 1, 7), date(2013, 1, 8)
ROWS = 1440


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("write_audit_publish", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Readers:
    """Reads a table over and over, and notes what it saw."""

    def __init__(self, uri):
        self.uri, self.seen, self.errors = uri, [], []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _read(self):
        while not self._end.is_set():
            try:
                self.seen.append(count(self.uri))
            except Exception as error:  # noqa: BLE001 - a reader that waits or fails is the finding
                self.errors.append(error)


def test_readers_see_a_day_as_a_whole_and_wait_for_nothing(spark, local_uri, example):
    table = Table.create(local_uri, SCHEMA, time_column="time_hour")
    with Readers(local_uri) as readers:
        version = example.load(spark, local_uri, DAY, example.flights_of(spark, DAY))
    assert not readers.errors
    assert set(readers.seen) <= {0, ROWS}  # 0 s without a whole answer
    assert len(readers.seen) > 3
    assert count(table, version=version) == ROWS
    assert count(table, version=version - 1) == 0
    assert not table.branches()
    # Again, as after a failure: nothing twice.
    example.load(spark, local_uri, DAY, example.flights_of(spark, DAY))
    assert count(local_uri) == ROWS

    bad = example.flights_of(spark, NEXT).withColumn("dep_delay", F.lit(-500.0))
    wrong = example.load(spark, local_uri, NEXT, bad)
    assert wrong == [f"{ROWS} flights left two hours early"]
    assert count(local_uri) == ROWS
    (branch,) = Table.open(local_uri).branches()
    assert branch.name == f"load-{NEXT}"
    left = scan(Table.open(local_uri, branch=branch.name), where="dep_delay < -120")
    assert left.count() == ROWS
    told = example.refusal(local_uri, NEXT, wrong)
    assert f"`eventlog branch {local_uri} {branch.name} --delete`" in told
    Table.open(local_uri).delete_branch(branch.name)  # as it says, and then once more
    assert example.load(spark, local_uri, NEXT, example.flights_of(spark, NEXT)) > version
    assert count(local_uri) == 2 * ROWS
