"""Long work that executors do: the same reports, copies and publications as in one process."""

import json
from unittest import mock

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from spark.hourly_rows import SCHEMA, rows

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import DataLoss, InvalidInput
from eventlog.format import keys
from eventlog.fsck import check
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.publishing.positions import KeyMerge
from eventlog.readers.spark import executors
from eventlog.replication import backfill, follow
from eventlog.replication.pipeline import Pipeline
from eventlog.writers import append, delete, upsert

IN_FILES = {"inline_bytes": "0"}  # executors read files, and some are damaged here


@pytest.fixture
def plain(tmp_path):
    """A table of nine days, with deleted rows, an older version held by a pin."""
    made = Table.create(
        (tmp_path / "plain").as_uri(), SCHEMA, time_column="ts", properties=IN_FILES
    )
    append(made, rows(range(200)))
    made.pin("old")
    delete(made, where="id >= 24 and id < 50")
    return made


@pytest.fixture
def keyed(tmp_path):
    """A keyed table of some upserts."""
    made = Table.create(
        (tmp_path / "keyed").as_uri(), SCHEMA, time_column="ts", key="id", buckets=4,
        properties=IN_FILES,
    )  # fmt: skip
    for first in (0, 20, 40):
        upsert(made, rows(range(first, first + 30)))
    return made


def reports(table):
    """The report of the executors, after a check that this process has the same."""
    here = fsck(Table(table.store), checksums=True)
    with mock.patch.object(check, "read_segments", side_effect=AssertionError("in this process")):
        there = fsck(Table(table.store), checksums=True, driver="spark")
    assert there == here
    assert here.checksummed
    return there


def damage(table, number, change):
    """Change the object of a segment."""
    segment = table.refresh().segments()[number]
    key = keys.key_of(segment)
    body = change(table.store.get(key))
    table.store.delete([key])
    if body is not None:
        table.store.put_if_absent(key, body)
    return key


def test_executors_find_what_one_process_finds(spark, plain, keyed, monkeypatch):
    monkeypatch.setattr(executors, "SHARE_BYTES", 2 * 2**20)  # some segments a task
    assert reports(plain).ok
    assert reports(keyed).ok
    flipped = damage(plain, 0, lambda body: body[:50] + bytes([body[50] ^ 1]) + body[51:])
    cut = damage(plain, 2, lambda body: body[:-9])
    gone = damage(plain, 4, lambda body: None)
    report = reports(plain)
    assert {flipped, cut, gone} <= {finding.key for finding in report.findings}
    damage(keyed, 1, lambda body: body[:-1] + b"x")
    assert not reports(keyed).ok


def under(store, *prefixes):
    """The objects below some prefixes, by key."""
    return {row.key: store.get(row.key) for prefix in prefixes for row in store.list(prefix)}


def run(*command):
    return CliRunner().invoke(build(), [*map(str, command), "--driver", "spark", "--json"])


def test_executors_copy_what_one_process_copies(spark, plain, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "SHARE_BYTES", 2 * 2**20)
    here = tmp_path / "here"
    alone = follow(plain, here.as_uri())
    copy = (tmp_path / "there").as_uri()
    with mock.patch.object(Pipeline, "results", side_effect=AssertionError("in this process")):
        done = run("replicate", plain.uri, copy, "--from", "keyframe", "--backfill")
    assert done.exit_code == 0, done.output
    found, made = json.loads(done.stdout), Table.open(copy)
    assert found["version"] == alone.version
    prefixes = (keys.LOG_PREFIX, keys.SEGMENTS_PREFIX)
    assert under(made.store, *prefixes) == under(plain.store, *prefixes)
    assert fsck(made, checksums=True).ok
    damaged = damage(plain, 3, lambda body: body[:-1] + b"x")
    done = run("replicate", plain.uri, (tmp_path / "other").as_uri())
    assert done.exit_code == 4  # an error of a task is an error of ours
    assert damaged in done.stderr
    assert "other bytes than the log describes" in done.stderr


def test_executors_publish_what_one_process_publishes(spark, keyed, monkeypatch):
    monkeypatch.setattr(executors, "SHARE_BYTES", 1)
    publish(keyed, "iceberg")
    alone = under(keyed.store, "metadata/")
    unpublish(keyed, "iceberg", dry_run=False)
    with mock.patch.object(KeyMerge, "vectors", side_effect=AssertionError("in this process")):
        done = run("publish", "iceberg", keyed.uri)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["last"] == keyed.refresh().version
    assert under(keyed.store, "metadata/") == alone
    gone = damage(keyed, 0, lambda body: None)
    with pytest.raises(DataLoss) as error:
        publish(keyed, "delta", driver="spark")
    assert error.value.key == gone


def test_a_driver_that_there_is_not_is_refused(plain, monkeypatch):
    with pytest.raises(InvalidInput, match="driver must be one of local, spark, not 'dask'"):
        fsck(plain, checksums=True, driver="dask")
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    for call in (
        lambda: fsck(plain, checksums=True, driver="spark"),
        lambda: follow(plain, "memory://copy", driver="spark"),
        lambda: backfill(plain, "memory://copy", driver="spark"),
        lambda: publish(plain, "delta", driver="spark"),
    ):
        with pytest.raises(InvalidInput, match="needs an active SparkSession"):
            call()


def test_the_program_has_the_driver(spark, plain):
    gone = damage(plain, 4, lambda body: None)
    command = ["fsck", plain.uri, "--checksums", "--driver", "spark", "--json"]
    done = CliRunner().invoke(build(), command)
    assert done.exit_code == 4
    found = json.loads(done.stdout)
    assert [one["key"] for one in found["findings"]] == [gone]
    assert found["checksummed"] == fsck(Table(plain.store), checksums=True).checksummed
