"""The Lambda function that keeps copies up to date, on an S3 server."""

import json

import pytest
from support.builders import create, events
from support.copies import objects

from eventlog import Table, errors
from eventlog.compaction.aws import replicating
from eventlog.format import keys
from eventlog.store.location import open_store
from eventlog.writers import append


class Invocation:
    aws_request_id = "1"
    memory_limit_in_mb = 512

    def get_remaining_time_in_millis(self):
        return 60_000


def announced(bucket, root, version, message="m1"):
    """A batch of SQS with what S3 says of a commit."""
    record = {
        "eventSource": "aws:s3",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": bucket}, "object": {"key": f"{root}/{keys.commit_key(version)}"}},
    }
    return {"Records": [{"messageId": message, "eventSource": "aws:sqs",
                         "body": json.dumps({"Records": [record]})}]}  # fmt: skip


@pytest.fixture(autouse=True)
def plain_output(monkeypatch):
    """The handler sets loggers up for a process of its own, which this one is not."""
    monkeypatch.setattr(replicating, "write_lines", lambda *_: None)


@pytest.fixture
def places(bucket, monkeypatch):
    """A folder of tables, and the folder of their copies."""
    tables, copies = f"s3://{bucket}/tables", f"s3://{bucket}/copies"
    monkeypatch.setenv("EVENTLOG_REPLICAS", json.dumps({tables: copies}))
    monkeypatch.setattr(replicating._warm, "container", None)
    return tables, copies


def test_each_commit_is_copied_when_it_is_announced(bucket, places, monkeypatch):
    monkeypatch.setenv("EVENTLOG_REPLICA_NAME", "copy")
    tables, copies = places
    table = create(open_store(f"{tables}/one"))
    for n in range(3):
        version = append(table, events(2, first=n))
        answer = replicating.handler(announced(bucket, "tables/one", version), Invocation())
        assert answer == {"batchItemFailures": []}
        copy = Table.open(f"{copies}/one")
        assert copy.session.head().version >= version
    branch = announced(bucket, f"tables/one/_branches/audit/{'a' * 32}", 9)
    assert replicating.handler(branch, Invocation()) == {"batchItemFailures": []}
    # Late and repeated: nothing is copied twice.
    replicating.handler(announced(bucket, "tables/one", 1), Invocation())
    head = table.refresh()
    assert head.meta.replicas["copy"].owner.startswith(f"{copies}/one at http")
    assert set(objects(copy.store)) <= set(objects(table.store))


def test_a_table_that_fails_is_delivered_again_and_others_are_copied(bucket, places):
    tables, copies = places
    table = create(open_store(f"{tables}/one"))
    broken = create(open_store(f"{tables}/two"), seed=2)
    copied = create(open_store(f"{copies}/two"), seed=3)
    first = announced(bucket, "tables/two", 0, "bad")
    batch = {"Records": [*first["Records"], *announced(bucket, "tables/one", 0)["Records"],
                         *announced(bucket, "elsewhere/x", 0, "other")["Records"]]}  # fmt: skip
    answer = replicating.handler(batch, Invocation())
    assert answer == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
    assert objects(open_store(f"{copies}/one")) == objects(table.store)
    assert copied.refresh().version == broken.refresh().version == 0
    with pytest.raises(errors.EventLogError, match="failed"):
        replicating.handler({"tables": [f"{tables}/two"]}, Invocation())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not set"),
        ("[]", "JSON object"),
        ('{"s3://a/x": 1}', "JSON object"),
        ('{"s3://bucket/x": "s3://bucket/x/copy"}', "in each other"),
    ],
)
def test_a_wrong_setting_is_told(text, why, monkeypatch):
    monkeypatch.setenv("EVENTLOG_REPLICAS", text)
    with pytest.raises(errors.InvalidInput, match=why):
        replicating.handler({}, Invocation())
