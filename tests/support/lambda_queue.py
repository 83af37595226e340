"""`localstack/lambda_queue.py`, loaded by its path: that folder is not a package."""

import importlib.util
import logging
import sys
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from eventlog.readers import scan

_PATH = Path(__file__).parents[2] / "localstack" / "lambda_queue.py"


def _load():
    spec = importlib.util.spec_from_file_location("lambda_queue", _PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


_module = sys.modules.get("lambda_queue") or _load()

STACK = _module.STACK
TEMPLATE = _module.TEMPLATE
Deployment = _module.Deployment
Driven = _module.Driven
Invocation = _module.Invocation
deploy = _module.deploy
drive = _module.drive
notifications = _module.notifications
record_of = _module.record_of
references = _module.references
template = _module.template
without_function = _module.without_function


@contextmanager
def logging_of_its_own():
    """Let the handler configure loggers as in Lambda, and restore them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("eventlog",):
            logger = logging.getLogger(name)
            patch.setattr(logger, "handlers", [])
            patch.setattr(logger, "propagate", logger.propagate)
            patch.setattr(logger, "level", logger.level)
        yield


def row_list(table):
    """All rows of the newest version, in an order independent of the segments."""
    rows = scan(table).to_table()
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).to_pylist()


def commits(table, operation):
    """The number of commits in the history with this operation."""
    return sum(entry.operation == operation for entry in table.history())


def waiting(queue_url):
    """The number of messages in a queue, received or not."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible",
             "ApproximateNumberOfMessagesDelayed"]  # fmt: skip
    answer = boto3.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
    return sum(int(answer["Attributes"][name]) for name in names)


def copies(queue_url, times=2):
    """Receive all messages of a queue, and send each of them `times` times as a new one."""
    sqs = boto3.client("sqs")
    bodies = []
    while found := sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10).get("Messages"):
        for message in found:
            bodies.append(message["Body"])
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    for body in bodies * times:
        sqs.send_message(QueueUrl=queue_url, MessageBody=body)
    return len(bodies)
