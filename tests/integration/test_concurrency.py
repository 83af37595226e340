"""Real processes on one table: nothing is lost, nothing is doubled, and the log is one chain."""

import os
import uuid

import boto3
import pytest
from support import builders, racers
from support.builders import SCHEMA, fold_all

from eventlog import Table
from eventlog.store.location import open_store

PROCESSES = 8
APPENDS = 50  # of each process on LocalStack
FEWER = 10  # on disk
FEWEST = 5  # on moto, which is one process


def check_appends(uri, options, acknowledged, appends):
    """Every append that was acknowledged is in the log once, and so are its rows."""
    table = Table.open(uri, options)
    steps = fold_all(table.store)
    head = table.session.head()
    total = PROCESSES * appends
    # Appends may share a commit, so that there can be fewer commits than appends.
    accepted = [t for _, effect in steps[1:] for t in effect.accepted]
    assert len(accepted) == len(set(accepted)) == total
    assert not [void for _, effect in steps for void in effect.void]
    assert head.version == steps[-1][0].version
    assert (head.totals.segments, head.totals.rows) == (total, total)
    builders.check_snapshot(head, steps[-1][0])
    assert len(acknowledged) == total
    assert set(acknowledged) == set(range(1, head.version + 1))
    for version in (head.version // 3, head.version // 2):
        builders.check_snapshot(table.snapshot(version), steps[version][0])
    return table


def append_from_many(uri, options, *, appends=APPENDS, environment=None, seconds=280):
    Table.create(uri, SCHEMA, time_column="at", granularity="month", storage_options=options)
    arguments = (uri, options, appends)
    found = racers.run(
        racers.append_rows, PROCESSES, *arguments, environment=environment, seconds=seconds
    )
    versions = [version for versions in found for version in versions]
    table = check_appends(uri, options, versions, appends)
    names = builders.row_names(table)
    wanted = {f"row {p * 10_000 + n}" for p in range(PROCESSES) for n in range(appends)}
    assert len(names) == len(wanted)
    assert set(names) == wanted
    for versions in found:
        assert versions == sorted(versions)  # no process saw its own appends out of order


def race_many(uri, options, rounds, processes=16, environment=None):
    found = racers.run(
        racers.race_for_slots, processes, uri, options, rounds, environment=environment
    )
    assert sorted(turn for won in found for turn in won) == list(range(rounds))
    store = open_store(uri, options)
    for number, won in enumerate(found):
        for turn in won:
            assert store.get(f"race/{turn:06d}", length=4) == f"{number:04d}".encode()
    assert len(list(store.list("race/"))) == rounds


def test_many_processes_append_to_a_directory(tmp_path):
    append_from_many(str(tmp_path / "table"), None, appends=FEWER)


@pytest.mark.parametrize("processes", [8])
def test_many_processes_race_for_slots_in_a_directory(tmp_path, processes):
    race_many(str(tmp_path / "slots"), None, rounds=50, processes=processes)


@pytest.mark.verify
def test_many_processes_append_to_s3(s3, bucket):
    append_from_many(
        f"s3://{bucket}/table", s3.storage_options(), appends=FEWEST, environment=s3.environment()
    )


@pytest.mark.verify
def test_many_processes_race_for_slots_on_s3(s3, bucket):
    race_many(
        f"s3://{bucket}/slots", s3.storage_options(), 25, processes=8, environment=s3.environment()
    )


@pytest.fixture
def localstack():
    """Storage options of a LocalStack server, and a fresh bucket there."""
    endpoint = os.environ.get("EVENTLOG_LOCALSTACK_ENDPOINT")
    if not endpoint:
        pytest.skip("EVENTLOG_LOCALSTACK_ENDPOINT is not set: run `make test-localstack`")
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    options = {
        "endpoint_url": endpoint,
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
    }
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=name)
    return name, options


@pytest.mark.localstack
def test_many_processes_append_to_localstack(localstack):
    bucket, options = localstack
    append_from_many(f"s3://{bucket}/table", options, seconds=280)


@pytest.mark.localstack
def test_sixteen_processes_race_for_slots_on_localstack(localstack):
    bucket, options = localstack
    race_many(f"s3://{bucket}/slots", options, rounds=200)
