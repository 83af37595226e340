"""The stack on LocalStack: its CloudFormation, S3, EventBridge and SQS, and the SAM transform."""

import itertools
import json
import os
import subprocess
import threading
from pathlib import Path

import boto3
import pytest
from support import builders, lambda_queue

from eventlog import Table
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.compaction.lambda_handler import Container, handler
from eventlog.writers import append

pytestmark = pytest.mark.localstack

# LocalStack quotes keys before it compares them with a filter or a rule, which S3 does not do: what
# has to be quoted stands below the prefix here.
PREFIX = "tables"
TABLE = "a b+c"
LOCALSTACK_PYTHON = Path(__file__).parents[2] / ".localstack" / "venv" / "bin" / "python"
_numbers = itertools.count(os.getpid())


@pytest.fixture
def endpoint(monkeypatch):
    url = os.environ.get("EVENTLOG_LOCALSTACK_ENDPOINT")
    if not url:
        pytest.skip("EVENTLOG_LOCALSTACK_ENDPOINT is not set: run `make test-localstack`")
    given = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test",
             "REGION": "us-east-1", "DEFAULT_REGION": "us-east-1"}  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    return url


@pytest.mark.parametrize("source", ["EventBridge", "S3"])
def test_s3_7_lambda_commits_come_through_localstack(source, endpoint, monkeypatch):
    bucket = f"lambda-{next(_numbers)}"
    stack = lambda_queue.deploy(bucket, PREFIX, source=source, stack=f"stack-{bucket}")
    root = f"s3://{bucket}/{PREFIX}"
    table = Table.create(f"{root}/{TABLE}", builders.SCHEMA, time_column="at")
    for number in range(4):
        append(table, builders.events(6, days=3, first=100 * number))
    rows = lambda_queue.row_list(table)
    # One delivery through the function itself, then everything twice, to two at once.
    monkeypatch.setenv("EVENTLOG_TABLES", root)
    monkeypatch.setenv("EVENTLOG_QUEUE_URL", stack.queue_url)
    with lambda_queue.logging_of_its_own():
        done = lambda_queue.drive(stack.queue_url, handler, idle_s=3)
    assert (done.failed, done.errors) == (0, [])
    assert done.received >= 5
    assert table.refresh().totals.segments == 3
    for number in range(4, 8):
        append(table, builders.events(6, days=3, first=100 * number))
    rows = lambda_queue.row_list(table)
    until(lambda: lambda_queue.waiting(stack.queue_url) >= 4)
    assert lambda_queue.copies(stack.queue_url) >= 4
    results = []

    def work():
        container = Container(Settings(allowed=(root,), queue_url=stack.queue_url))
        results.append(lambda_queue.drive(stack.queue_url, container.respond, idle_s=3))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [(done.failed, done.errors) for done in results] == [(0, []), (0, [])]
    assert table.refresh().totals.segments == 3
    assert lambda_queue.row_list(table) == rows
    assert (
        lambda_queue.waiting(stack.queue_url) == lambda_queue.waiting(stack.dead_letters_url) == 0
    )


def until(holds, seconds=30):
    waited = threading.Event()
    for _ in range(seconds * 4):
        if holds():
            return
        waited.wait(0.25)
    raise AssertionError("it never came")


def test_a_message_that_is_no_json_goes_to_the_dead_letters(endpoint):
    bucket = f"lambda-{next(_numbers)}"
    stack = lambda_queue.deploy(bucket, PREFIX, stack=f"stack-{bucket}", MaxReceiveCount="2")
    sqs = boto3.client("sqs")
    sqs.send_message(QueueUrl=stack.queue_url, MessageBody="no sense")
    respond = Container(Settings(allowed=(f"s3://{bucket}",))).respond
    done = lambda_queue.drive(stack.queue_url, respond, idle_s=3, hidden_s=0)
    assert (done.failed, done.deleted) == (2, 0)
    (dead,) = sqs.receive_message(QueueUrl=stack.dead_letters_url)["Messages"]
    assert dead["Body"] == "no sense"


TRANSFORM = """
import json, sys
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

class Policies:
    def load(self):
        return {}

given = json.load(sys.stdin)
translator = Translator(Policies().load(), Parser())
print(json.dumps(translator.translate(given["template"], given["parameters"])))
"""


def test_the_sam_transform_takes_the_template():
    """By AWS's own translator, which LocalStack brings along."""
    given = {"Bucket": "b", "Prefix": "t", "CodeBucket": "c", "CodeKey": "k"}
    done = subprocess.run(
        [LOCALSTACK_PYTHON, "-c", TRANSFORM],
        input=json.dumps({"template": lambda_queue.template(), "parameters": given}),
        capture_output=True, text=True, timeout=120,
        env={"PATH": os.environ["PATH"], "AWS_DEFAULT_REGION": "us-east-1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    resources = json.loads(done.stdout)["Resources"]
    (function,) = (r for r in resources.values() if r["Type"] == "AWS::Lambda::Function")
    (source,) = (r for r in resources.values() if r["Type"] == "AWS::Lambda::EventSourceMapping")
    assert function["Properties"]["Role"] == {"Fn::GetAtt": ["Role", "Arn"]}
    assert function["Properties"]["Code"] == {
        "S3Bucket": {"Ref": "CodeBucket"},
        "S3Key": {"Ref": "CodeKey"},
    }
    assert source["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["Properties"]["EventSourceArn"] == {"Fn::GetAtt": ["Queue", "Arn"]}
    # It made no role of its own, which would be allowed more.
    assert [name for name, r in resources.items() if r["Type"] == "AWS::IAM::Role"] == ["Role"]
