"""Compaction's queue on a local server: deploys it, and drives the function from it.

    localstack/deploy --bucket flights --prefix tables/flights
    localstack/drive

A local server runs no Lambda function without Docker. So `deploy` takes the template in
compaction/aws/, leaves out the function and everything that refers to it, and creates the rest:
queues, rules, policies, role, log group, alarms. `drive` replaces the event source mapping that
connects a queue and a function on AWS: it receives batches, calls the handler in this process, and
deletes the messages that the handler did not report as failed. Tests use both. Traffic goes to
AWS_ENDPOINT_URL, which must be on 127.0.0.1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import ClientError

TEMPLATE = Path(__file__).resolve().parent.parent / "compaction" / "aws" / "template.yaml"
STACK = "eventlog-compaction"
FUNCTION = "AWS::Serverless::Function"
RECEIVE = 10  # the most messages of one request to SQS

Handler = Callable[[Any, Any], dict[str, Any] | None]


# --------------------------------------------------------------------------------- the deployment


@dataclass(frozen=True)
class Deployment:
    """The outputs of a stack."""

    queue_url: str
    queue_arn: str
    dead_letters_url: str
    role_arn: str


def deploy(
    bucket: str, prefix: str, *, source: str = "EventBridge", stack: str = STACK, **more: str
) -> Deployment:
    """Create the stack without its function, and set up the bucket's notifications.

    Args:
        bucket: the bucket, created if it does not exist.
        prefix: the path of a table, or of a folder of tables.
        source: EventBridge or S3.
        stack: the stack's name; an existing one is not changed.
        more: other parameters of the template.
    """
    check_endpoint()
    s3 = boto3.client("s3")
    with contextlib.suppress(
        s3.exceptions.BucketAlreadyOwnedByYou, s3.exceptions.BucketAlreadyExists
    ):
        s3.create_bucket(Bucket=bucket)
    given = {"Bucket": bucket, "Prefix": prefix, "Source": source, **more}
    outputs = _create(stack, given)
    made = Deployment(
        queue_url=outputs["QueueUrl"],
        queue_arn=outputs["QueueArn"],
        dead_letters_url=outputs["DeadLettersUrl"],
        role_arn=outputs["RoleArn"],
    )
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration=notifications(source, made.queue_arn, prefix)
    )
    return made


def notifications(source: str, queue_arn: str, prefix: str) -> dict[str, Any]:
    """Return the bucket's notification configuration that sends commits to the queue."""
    if source == "EventBridge":
        return {"EventBridgeConfiguration": {}}
    rules = [{"Name": "prefix", "Value": f"{prefix}/"}, {"Name": "suffix", "Value": ".json"}]
    queue = {
        "QueueArn": queue_arn,
        "Events": ["s3:ObjectCreated:*"],
        "Filter": {"Key": {"FilterRules": rules}},
    }
    return {"QueueConfigurations": [queue]}


def template() -> dict[str, Any]:
    """Return the template, with the short forms of its functions spelled out."""
    from cfnlint.decode import cfn_yaml  # noqa: PLC0415 - comes with moto; a second to import

    plain: dict[str, Any] = json.loads(json.dumps(cfn_yaml.load(str(TEMPLATE))))
    return plain


def without_function(template: dict[str, Any]) -> dict[str, Any]:
    """Return the template without its function, references to it, and the SAM transform."""
    parts = {name: part for name, part in template.items() if name != "Transform"}
    gone = {name for name, part in template["Resources"].items() if part["Type"] == FUNCTION}
    for section in ("Resources", "Outputs"):
        parts[section] = {
            name: part
            for name, part in template[section].items()
            if name not in gone and not gone & references(part)
        }
    used = (
        references(parts["Resources"])
        | references(parts["Outputs"])
        | references(parts["Conditions"])
    )
    parts["Parameters"] = {n: part for n, part in template["Parameters"].items() if n in used}
    return parts


def references(part: Any) -> set[str]:
    """Return the names that a part of a template refers to."""
    if isinstance(part, list):
        return set().union(*(references(item) for item in part))
    if not isinstance(part, dict):
        return set()
    names: set[str] = set()
    for name, value in part.items():
        if name == "Ref":
            names.add(value)
        elif name == "Fn::GetAtt":
            names.add(value[0] if isinstance(value, list) else value.partition(".")[0])
        elif name == "Fn::Sub":
            text, inner = (value, {}) if isinstance(value, str) else value
            names |= {piece.partition("}")[0] for piece in text.split("${")[1:]} | references(inner)
        else:
            names |= references(value)
    return names


def check_endpoint() -> None:
    """Refuse any endpoint that is not on this machine."""
    if urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname not in ("127.0.0.1", "localhost"):
        sys.exit("AWS_ENDPOINT_URL must be a server on 127.0.0.1: see localstack/README.md")


def _create(stack: str, given: dict[str, str]) -> dict[str, str]:
    formation = boto3.client("cloudformation")
    body = without_function(template())
    known = {name: value for name, value in given.items() if name in body["Parameters"]}
    with contextlib.suppress(formation.exceptions.AlreadyExistsException):
        formation.create_stack(
            StackName=stack,
            TemplateBody=json.dumps(body),
            Capabilities=["CAPABILITY_IAM"],
            Parameters=[
                {"ParameterKey": name, "ParameterValue": value} for name, value in known.items()
            ],
        )
    formation.get_waiter("stack_create_complete").wait(
        StackName=stack, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    (stack_description,) = formation.describe_stacks(StackName=stack)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack_description["Outputs"]}


# -------------------------------------------------------------------------------------- the drive


@dataclass
class Driven:
    """The counts of a drive.

    Attributes:
        batches: number of invocations.
        received: number of deliveries; a redelivered message counts again.
        deleted: number of messages that were handled.
        failed: deliveries that the handler reported as failed, or in a batch for which it raised.
        errors: texts of the errors that it raised.
    """

    batches: int = 0
    received: int = 0
    deleted: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass
class Invocation:
    """The context of an invocation, which starts now and may run for `timeout_s`."""

    timeout_s: float = 300.0
    memory_limit_in_mb: int = 2048
    aws_request_id: str = "local"
    _started: float = field(default_factory=time.monotonic)

    def get_remaining_time_in_millis(self) -> int:
        """Return the remaining milliseconds."""
        return max(0, round(1000 * (self._started + self.timeout_s - time.monotonic())))


def drive(
    queue_url: str,
    handler: Handler,
    *,
    idle_s: float | None = 1.0,
    hidden_s: int | None = None,
    timeout_s: float = 300.0,
) -> Driven:
    """Call the handler with the messages of a queue until it has been empty for a while.

    Args:
        queue_url: the queue.
        handler: called as by Lambda, with the event and the context.
        idle_s: end after this many seconds without a message; never if None.
        hidden_s: seconds for which a received message is hidden; the queue's setting if None.
        timeout_s: the time limit of an invocation, in seconds.
    """
    sqs = boto3.client("sqs")
    hidden = {} if hidden_s is None else {"VisibilityTimeout": hidden_s}
    done = Driven()
    last = time.monotonic()
    while idle_s is None or time.monotonic() - last < idle_s:
        answer = sqs.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=RECEIVE,
            WaitTimeSeconds=1 if idle_s is None or idle_s >= 1 else 0,
            MessageSystemAttributeNames=["All"],
            **hidden,
        )
        messages = answer.get("Messages", [])
        if not messages:
            time.sleep(0.05)
            continue
        dealt_with = _invoke(handler, messages, timeout_s, done)
        if dealt_with:
            entries = [
                {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]}
                for n, m in enumerate(dealt_with)
            ]
            sqs.delete_message_batch(QueueUrl=queue_url, Entries=entries)
        done.deleted += len(dealt_with)
        last = time.monotonic()
    return done


def _invoke(handler: Handler, messages: list[Any], timeout_s: float, done: Driven) -> list[Any]:
    """Call the handler with a batch and return the messages that were handled."""
    done.batches += 1
    done.received += len(messages)
    event = {"Records": [record_of(message) for message in messages]}
    try:
        answer = handler(event, Invocation(timeout_s)) or {}
    except Exception as error:  # noqa: BLE001 - as on AWS: the whole batch is redelivered
        done.errors.append(f"{type(error).__name__}: {error}")
        done.failed += len(messages)
        return []
    failures = {item["itemIdentifier"] for item in answer.get("batchItemFailures", [])}
    unknown = failures - {message["MessageId"] for message in messages}
    if unknown:
        # AWS then treats the whole batch as failed.
        done.errors.append(f"reported messages that are not in the batch: {sorted(unknown)}")
        done.failed += len(messages)
        return []
    done.failed += len(failures)
    return [message for message in messages if message["MessageId"] not in failures]


def record_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of SQS as a record of Lambda's event."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:queue",
        "awsRegion": "us-east-1",
    }


# ------------------------------------------------------------------------------- the command line


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("deploy", help="create queues, rules, policies and the role")
    made.add_argument("--bucket", required=True)
    made.add_argument("--prefix", required=True, help="path of a table, or of a folder of tables")
    made.add_argument("--source", choices=("EventBridge", "S3"), default="EventBridge")
    driven = verbs.add_parser("drive", help="call the function with the queue's messages")
    driven.add_argument("--idle", type=float, help="end after this many seconds without a message")
    driven.add_argument(
        "--timeout", type=float, default=300.0, help="time limit of an invocation, in seconds"
    )
    for verb in (made, driven):
        verb.add_argument("--stack", default=STACK, help=f"name of the stack (default {STACK})")
    options = parser.parse_args()
    if options.verb == "deploy":
        print(
            json.dumps(
                vars(
                    deploy(
                        options.bucket, options.prefix, source=options.source, stack=options.stack
                    )
                ),
                indent=2,
            )
        )
        return 0
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Drive the function with the settings of the stack."""
    check_endpoint()
    try:
        (stack,) = boto3.client("cloudformation").describe_stacks(StackName=options.stack)["Stacks"]
    except ClientError as error:
        print(f"no stack {options.stack}: {error}; run localstack/deploy first", file=sys.stderr)
        return 1
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    given = {p["ParameterKey"]: p["ParameterValue"] for p in stack["Parameters"]}
    os.environ.setdefault("EVENTLOG_TABLES", f"s3://{given['Bucket']}/{given['Prefix']}")
    os.environ.setdefault("EVENTLOG_QUEUE_URL", outputs["QueueUrl"])
    from eventlog.compaction.lambda_handler import handler  # noqa: PLC0415 - deploy does not need it

    with contextlib.suppress(KeyboardInterrupt):
        done = drive(outputs["QueueUrl"], handler, idle_s=options.idle, timeout_s=options.timeout)
        print(json.dumps(vars(done)), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
