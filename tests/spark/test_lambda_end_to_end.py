"""A Spark job writes, S3 says so, the Lambda function compacts, and Spark reads the same rows.

Scenario S3.7. The servers are moto's, in this process; the stack is compaction/aws/template.yaml
without its function, which runs here.
"""

import itertools
import json
import threading

import boto3
import pytest
from support import lambda_queue

from eventlog import Table
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.compaction.lambda_handler import Container, handler

pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS::")

PREFIX = "tables/a b+c"
DAYS, JOBS = 3, 4
_numbers = itertools.count(1)


@pytest.fixture
def root(bucket):
    return f"s3://{bucket}/{PREFIX}"


@pytest.fixture
def stack(request, bucket, root, monkeypatch):
    """The stack, and what it sets for the function; EventBridge unless told otherwise."""
    source = getattr(request, "param", "EventBridge")
    made = lambda_queue.deploy(bucket, PREFIX, source=source, stack=f"spark-{next(_numbers)}")
    monkeypatch.setenv("EVENTLOG_TABLES", root)
    monkeypatch.setenv("EVENTLOG_QUEUE_URL", made.queue_url)
    return made


def jobs(events, save, uri, first=0, count=JOBS):
    """So many Spark jobs, each of which writes some rows of each of the days."""
    for number in range(first, first + count):
        # Two partitions, so that a job makes two segments of some days.
        rows = events(10 * DAYS, first=0).selectExpr(f"id + {1000 * number} as id", "ts", "name")
        save(rows, uri)


def in_order(rows):
    return sorted((row["id"], row["ts"], row["name"]) for row in rows.collect())


@pytest.mark.long  # what queue tests show without Spark
@pytest.mark.scenario("S3.7")
@pytest.mark.parametrize(
    "stack", ["EventBridge", pytest.param("S3", marks=pytest.mark.soak)], indirect=True
)
def test_s3_7_lambda_compacts_what_a_spark_job_appended(stack, root, events, save, load):
    jobs(events, save, root)
    rows = in_order(load(root))
    table = Table.open(root)
    before = table.session.head()
    assert before.totals.segments >= DAYS * JOBS
    with lambda_queue.logging_of_its_own():
        done = lambda_queue.drive(stack.queue_url, handler, idle_s=0.5)
    after = table.refresh()
    assert (done.failed, done.errors) == (0, [])
    assert done.deleted == done.received >= JOBS
    assert after.totals.segments == DAYS
    assert after.totals.rows == before.totals.rows == 10 * DAYS * JOBS
    assert in_order(load(root)) == rows
    # The version before it is there as it was.
    assert in_order(load(root, version=before.version)) == rows


@pytest.mark.soak  # what queue tests show without Spark
@pytest.mark.scenario("S3.7")
def test_s3_7_lambda_deliveries_twice_and_at_once_beside_a_spark_job(
    stack, root, events, save, load
):
    """Hazard I4. Every message twice, two functions at once, and a Spark job that goes on."""
    jobs(events, save, root)
    assert lambda_queue.copies(stack.queue_url) >= JOBS
    results, stop = [], threading.Event()

    def work():
        container = Container(Settings(allowed=(root,), queue_url=stack.queue_url))
        while not stop.is_set():
            results.append(lambda_queue.drive(stack.queue_url, container.respond, idle_s=0.3))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        jobs(events, save, root, first=JOBS, count=3)
    finally:
        stop.set()
        for thread in threads:
            thread.join(240)
    last = Container(Settings(allowed=(root,), queue_url=stack.queue_url))
    results.append(lambda_queue.drive(stack.queue_url, last.respond, idle_s=0.5))
    assert {(done.failed, tuple(done.errors)) for done in results} == {(0, ())}
    table = Table.open(root)
    assert table.session.head().totals.segments == DAYS
    rows = in_order(load(root))
    assert [row[0] for row in rows] == sorted(
        1000 * job + n for job in range(JOBS + 3) for n in range(10 * DAYS)
    )
    assert lambda_queue.commits(table, "append") == JOBS + 3
    assert (
        lambda_queue.waiting(stack.queue_url) == lambda_queue.waiting(stack.dead_letters_url) == 0
    )


@pytest.mark.soak  # what a queue test shows without Spark
def test_s3_7_lambda_schedule_catches_up_where_announcements_were_lost(
    stack, root, events, save, load
):
    jobs(events, save, root, count=3)
    assert lambda_queue.copies(stack.queue_url, times=0) >= 3
    rows = in_order(load(root))
    boto3.client("sqs").send_message(
        QueueUrl=stack.queue_url, MessageBody=json.dumps({"tables": [root]})
    )
    container = Container(Settings(allowed=(root,)))
    lambda_queue.drive(stack.queue_url, container.respond, idle_s=0.3)
    assert Table.open(root).session.head().totals.segments == DAYS
    assert in_order(load(root)) == rows
