"""The Lambda function publishes what it is told of, and compacts whatever becomes of that."""

import logging

import pyarrow as pa
import pytest
from support import builders
from support.lambda_queue import Invocation
from support.published import objects_of

from eventlog import Table
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.compaction.lambda_handler import Container
from eventlog.compaction.policy import Policy
from eventlog.errors import EventLogError
from eventlog.format import keys
from eventlog.publishing import publish, unpublish
from eventlog.writers import append, upsert

LOOSE = pa.schema([f.with_nullable(f.name == "value") for f in builders.SCHEMA])
BOTH = ("delta", "iceberg")
PREFIX = {"delta": "_delta_log/", "iceberg": "metadata/"}


@pytest.fixture
def root(tmp_path):
    return (tmp_path / "tables").as_uri()


@pytest.fixture
def table(root):
    t = Table.create(f"{root}/one", builders.SCHEMA, time_column="at")
    for number in range(3):
        append(t, builders.events(2, first=100 * number))
    return t


@pytest.fixture
def sent():
    return []


@pytest.fixture
def container(root, sent):
    settings = Settings(
        allowed=(root,), policy=Policy(small_task_bytes=0), queue_url="q", publish=BOTH
    )
    return Container(settings, lambda *given: sent.append(given))


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="eventlog.compaction")
    return lambda event: [r.facts for r in caplog.records if r.getMessage() == event]


def look(table):
    return {"tables": [table.uri]}


def segments(table):
    return table.refresh().totals.segments


class Late(Invocation):
    """Its time is over once it has looked."""

    def __init__(self, looks=1):
        super().__init__()
        self._looks = looks

    def get_remaining_time_in_millis(self):
        self._looks -= 1
        return 0 if self._looks < 0 else super().get_remaining_time_in_millis()


def test_each_commit_is_published_in_each_format(container, table, lines):
    container.respond(look(table), Invocation())
    assert segments(table) == 1
    assert [(line["format"], line["last"], line["put"]) for line in lines("published")] == [
        ("delta", 3, 4),
        ("iceberg", 3, 4),
    ]
    container.respond(look(table), Invocation())  # the compaction's own commits
    for name in BOTH:
        found = objects_of(table, PREFIX[name])
        assert publish(table, name).put == 0
        unpublish(table, name, dry_run=False)
        publish(table, name)
        assert objects_of(table, PREFIX[name]) == found


def test_a_publication_that_fails_holds_nothing_up_and_comes_again(container, table, lines):
    key = f"_delta_log/{1:020d}.json"
    table.store.put_if_absent(key, b"{}")
    with pytest.raises(EventLogError, match="the event failed"):
        container.respond(look(table), Invocation())
    assert segments(table) == 1
    assert [line["format"] for line in lines("published")] == ["iceberg"]
    assert key in lines("publication failed")[0]["why"]
    unpublish(table, "iceberg", dry_run=False)
    table.store.delete([*objects_of(table)])
    container.respond(look(table), Invocation())
    assert [line["last"] for line in lines("published")[1:]] == [table.refresh().version] * 2


def test_a_version_that_a_format_cannot_say_is_logged_and_not_delivered_again(
    container, table, lines
):
    table.rename_column("value", "price")
    append(table, builders.events(1).rename_columns({"value": "price"}))
    assert container.respond(look(table), Invocation()) == {"batchItemFailures": []}
    assert segments(table) == 1
    assert "'price' was renamed" in lines("not published")[0]["why"]
    assert [line["format"] for line in lines("published")] == ["iceberg"]


def test_what_there_is_no_time_to_publish_is_asked_for_again(container, table, sent, lines):
    container.respond(look(table), Late())
    assert [line["last"] for line in lines("published")] == [1, 0]
    assert len(sent) == 1
    container.respond({"Records": [
        {"eventSource": "aws:sqs", "messageId": "m", "body": sent[0][1]}
    ]}, Invocation())  # fmt: skip
    assert [line["last"] for line in lines("published")[2:]] == [3, 3]


def test_versions_that_are_passed_over_are_not_asked_for_again(root, sent, lines):
    t = Table.create(f"{root}/made", LOOSE, time_column="at", key="name", buckets=1,
                     granularity="all", properties={"merge": "partial"})  # fmt: skip
    upsert(t, builders.events(3))
    upsert(t, builders.events(1))
    settings = Settings(allowed=(root,), queue_url="q", publish=("iceberg",))
    container = Container(settings, lambda *given: sent.append(given))
    container.respond(look(t), Invocation())
    assert [line["last"] for line in lines("published")] == [0]
    assert sent == []
    container.respond(look(t), Invocation())
    assert [line["last"] for line in lines("published")] == [0, t.refresh().version]


def test_branches_are_left_out(container, table, lines):
    table.branch("audit")
    container.respond({"tables": [f"{table.uri}/_branches/audit"]}, Invocation())
    assert not lines("published")
    assert not lines("publication failed")


def test_announcements_of_what_is_published_send_nothing(bucket, s3, lines):
    t = Table.create(f"s3://{bucket}/tables/one", builders.SCHEMA, time_column="at")
    version = append(t, builders.events(2))
    container = Container(Settings(allowed=(f"s3://{bucket}/tables",), publish=BOTH))
    event = {"source": "aws.s3", "detail-type": "Object Created",
             "detail": {"bucket": {"name": bucket},
                        "object": {"key": f"tables/one/{keys.commit_key(version)}"}}}  # fmt: skip
    container.respond(event, Invocation())
    assert len(lines("published")) == 2
    with s3.measure() as counts:
        container.respond(event, Invocation())
    assert counts.total == 0
    append(t, builders.events(2))
    event["detail"]["object"]["key"] = f"tables/one/{keys.commit_key(t.refresh().version)}"
    container.respond(event, Invocation())
    assert [line["put"] for line in lines("published")[2:]] == [2, 2]  # with the planner's record
