"""From a commit to a compacted chunk: the bucket, EventBridge or S3, the queue, the function.

The stack is that of compaction/aws/ without its function; that runs in this process, fed by what
stands for Lambda's event source mapping. moto's servers, and nothing of them faked.
"""

import itertools
import json
import threading

import boto3
import pytest
from support import builders, lambda_queue

from eventlog import Table
from eventlog.compaction.aws import work as lambda_work
from eventlog.compaction.aws.events import parse_event
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.compaction.lambda_handler import Container, handler
from eventlog.writers import append

# What moto's CloudFormation does not know, it passes over with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS::")

PREFIX = "tables/a b+c"  # what has to be quoted, or must not be
_numbers = itertools.count(1)


class Place:
    """A bucket with a deployed stack."""

    def __init__(self, bucket, source):
        self.bucket, self.source = bucket, source
        self.stack = lambda_queue.deploy(
            bucket, PREFIX, source=source, stack=f"stack-{next(_numbers)}"
        )
        self.queue, self.dead = self.stack.queue_url, self.stack.dead_letters_url

    def table(self, below=""):
        return Table.create(
            f"s3://{self.bucket}/{PREFIX}{below}", builders.SCHEMA, time_column="at"
        )

    def settings(self, **more):
        return Settings(allowed=(f"s3://{self.bucket}/{PREFIX}",), queue_url=self.queue, **more)

    def drive(self, respond, **options):
        return lambda_queue.drive(self.queue, respond, **{"idle_s": 0.3, **options})


@pytest.fixture(params=["EventBridge", "S3"])
def place(request, bucket):
    return Place(bucket, request.param)


@pytest.fixture
def bridged(bucket):
    return Place(bucket, "EventBridge")


def fill(table, times=3, days=2):
    for number in range(times):
        append(table, builders.events(2 * days, days=days, first=100 * number))
    return lambda_queue.row_list(table)


@pytest.mark.verify
def test_a_commit_comes_through_the_queue_and_its_chunks_are_compacted(place, monkeypatch):
    monkeypatch.setenv("EVENTLOG_TABLES", f"s3://{place.bucket}/{PREFIX}")
    monkeypatch.setenv("EVENTLOG_QUEUE_URL", place.queue)
    table = place.table()
    rows = fill(table)
    assert table.session.head().totals.segments == 6
    with lambda_queue.logging_of_its_own():
        done = place.drive(handler)
    assert table.refresh().totals.segments == 2
    assert lambda_queue.row_list(table) == rows
    assert (done.failed, done.errors) == (0, [])
    assert done.deleted == done.received >= 4
    # What it committed itself was announced too, and called for nothing.
    head = table.session.head().version
    with lambda_queue.logging_of_its_own():
        place.drive(handler)
    assert table.refresh().version == head
    assert lambda_queue.waiting(place.queue) == lambda_queue.waiting(place.dead) == 0


@pytest.mark.verify
def test_a_folder_of_tables_has_one_function(bridged):
    container = Container(bridged.settings())
    tables = [bridged.table(f"/t{number}") for number in range(2)]
    rows = [fill(table, days=1) for table in tables]
    bridged.drive(container.respond)
    assert [table.refresh().totals.segments for table in tables] == [1, 1]
    assert [lambda_queue.row_list(table) for table in tables] == rows


@pytest.mark.verify
def test_deliveries_that_come_twice_and_at_once_have_one_effect(place):
    """Hazard I4: two functions at once on the same messages, each message there twice."""
    table = place.table()
    rows = fill(table)
    assert lambda_queue.copies(place.queue) >= 4
    results = []

    def work():
        container = Container(place.settings())  # each a container of its own
        results.append(place.drive(container.respond, idle_s=1.0))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert [(done.failed, done.errors) for done in results] == [(0, []), (0, [])]
    assert table.refresh().totals.segments == 2
    assert lambda_queue.row_list(table) == rows
    assert 1 <= lambda_queue.commits(table, "compact") <= 2  # of two chunks, each at most once
    assert lambda_queue.waiting(place.queue) == 0


def test_a_message_that_is_no_json_goes_to_the_dead_letters_and_blocks_no_other(bridged):
    table = bridged.table()
    rows = fill(table, days=1)
    sqs = boto3.client("sqs")
    sqs.send_message(QueueUrl=bridged.queue, MessageBody="{")
    done = bridged.drive(Container(bridged.settings()).respond, hidden_s=0)
    assert table.refresh().totals.segments == 1
    assert lambda_queue.row_list(table) == rows
    (dead,) = sqs.receive_message(QueueUrl=bridged.dead)["Messages"]
    assert dead["Body"] == "{"
    assert done.failed == 5  # MaxReceiveCount
    assert lambda_queue.waiting(bridged.queue) == 0


@pytest.mark.verify
def test_what_there_was_no_time_for_comes_back_through_the_queue(bridged, monkeypatch):
    """Each invocation has time for one task; the continuation is a real message."""
    table = bridged.table()
    rows = fill(table, days=4)
    lambda_queue.copies(bridged.queue, times=0)
    boto3.client("sqs").send_message(
        QueueUrl=bridged.queue, MessageBody=json.dumps({"tables": [table.uri]})
    )
    monkeypatch.setattr("eventlog.compaction.lambda_handler.RESUME_DELAY_S", 0)
    policy = builders.replaced(
        Settings(allowed=("x",)).policy, small_task_bytes=0, target_bytes=1 << 20
    )
    container = Container(bridged.settings(policy=policy))
    perform = lambda_work.perform
    spent = []

    def once(*args, **options):
        spent.append(True)
        return perform(*args, **options)

    monkeypatch.setattr(lambda_work, "perform", once)

    class Short(lambda_queue.Invocation):
        def get_remaining_time_in_millis(self):
            return 0 if spent else 300_000

    turns = []

    def respond(event, _context):
        spent.clear()
        answer = container.respond(event, Short())
        turns.extend(ask.turn for m in parse_event(event) for ask in m.asks if ask.turn)
        return answer

    done = bridged.drive(respond, idle_s=1.0)
    assert table.refresh().totals.segments == 4
    assert lambda_queue.row_list(table) == rows
    assert lambda_queue.commits(table, "compact") == 4
    assert max(turns) >= 3
    assert (done.failed, done.errors) == (0, [])


def test_the_rule_passes_commits_on_and_nothing_else(bridged):
    """moto takes the schedule, which has no pattern, for one that matches all: so not with it."""
    events = boto3.client("events")
    for rule in events.list_rules()["Rules"]:
        if "ScheduleExpression" in rule:
            targets = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
            events.remove_targets(Rule=rule["Name"], Ids=[target["Id"] for target in targets])
    for below in ("", "/one", "x"):
        append(bridged.table(below), builders.events(1))
    sqs = boto3.client("sqs")
    bodies = []
    while found := sqs.receive_message(QueueUrl=bridged.queue).get("Messages"):
        bodies += [json.loads(message["Body"]) for message in found]
    assert {body["detail-type"] for body in bodies} == {"Object Created"}
    asked = [ask for body in bodies for message in parse_event(body) for ask in message.asks]
    root = f"s3://{bridged.bucket}/{PREFIX}"
    assert sorted((ask.table, ask.version) for ask in asked) == [
        (root, 0), (root, 1), (f"{root}/one", 0), (f"{root}/one", 1)
    ]  # fmt: skip


# --- what stands for Lambda's event source mapping ------------------------------------------------


def test_the_driver_deletes_what_was_dealt_with_and_nothing_else(bridged):
    sqs = boto3.client("sqs")
    for number in range(3):
        sqs.send_message(QueueUrl=bridged.queue, MessageBody=str(number))

    def but_the_second(event, _context):
        failed = [r["messageId"] for r in event["Records"] if r["body"] == "1"]
        return {"batchItemFailures": [{"itemIdentifier": name} for name in failed]}

    done = bridged.drive(but_the_second)
    assert (done.received, done.deleted, done.failed) == (3, 2, 1)
    assert lambda_queue.waiting(bridged.queue) == 1


def raising(_event, _context):
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    "respond", [raising, lambda *_: {"batchItemFailures": [{"itemIdentifier": "another's"}]}]
)
def test_a_batch_whose_function_failed_comes_again_as_a_whole(respond, bridged):
    sqs = boto3.client("sqs")
    for number in range(3):
        sqs.send_message(QueueUrl=bridged.queue, MessageBody=str(number))
    done = bridged.drive(respond)
    assert (done.received, done.deleted, done.failed, len(done.errors)) == (3, 0, 3, 1)
    assert lambda_queue.waiting(bridged.queue) == 3


def test_nothing_is_deployed_beyond_this_machine(monkeypatch):
    for url in ("", "https://sqs.us-east-1.amazonaws.com", "http://127.0.0.1.example.com"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(SystemExit, match=r"127\.0\.0\.1"):
            lambda_queue.deploy("b", "t")
