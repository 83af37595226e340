"""Compaction's queue on a local server: deploy it, and drive the function from it.

    localstack/deploy --bucket flights --prefix tables/flights
    localstack/drive

A local server runs no Lambda function without Docker. So `deploy` takes the template in
compaction/aws/ as it is, leaves out the function and what refers to it, and creates the rest:
queues, rules, policies, role, log group, alarms. `drive` is what stands between a queue and a
function on AWS, the event source mapping: it receives batches, calls the handler in this process,
and deletes what the handler did not report as failed. Tests use both. Traffic goes where
AWS_ENDPOINT_URL says, and only to 127.0.0.1.
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
RECEIVE = 10  # the most that one request to SQS brings

Handler = Callable[[Any, Any], dict[str, Any] | None]


# --------------------------------------------------------------------------------- the deployment


@dataclass(frozen=True)
class Deployment:
    """What a stack made."""

    queue_url: str
    queue_arn: str
    dead_letters_url: str
    role_arn: str


def deploy(
    bucket: str, prefix: str, *, source: str = "EventBridge", stack: str = STACK, **more: str
) -> Deployment:
    """Create the stack without its function, and have the bucket announce what happens in it.

    Args:
        bucket: made if it is not there.
        prefix: of a table, or of a folder of tables.
        source: EventBridge or S3.
        stack: its name; one that exists is left as it is.
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
    """Return what a bucket has to be told so that commits reach the queue."""
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


def without_function(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the template without its function, what refers to it, and the SAM transform."""
    parts = {name: part for name, part in whole.items() if name != "Transform"}
    gone = {name for name, part in whole["Resources"].items() if part["Type"] == FUNCTION}
    for section in ("Resources", "Outputs"):
        parts[section] = {
            name: part
            for name, part in whole[section].items()
            if name not in gone and not gone & references(part)
        }
    used = (
        references(parts["Resources"])
        | references(parts["Outputs"])
        | references(parts["Conditions"])
    )
    parts["Parameters"] = {n: part for n, part in whole["Parameters"].items() if n in used}
    return parts


def references(part: Any) -> set[str]:
    """Return the names that a part of a template refers to."""
    if isinstance(part, list):
        return set().union(*(references(item) for item in part))
    if not isinstance(part, dict):
        return set()
    found: set[str] = set()
    for name, value in part.items():
        if name == "Ref":
            found.add(value)
        elif name == "Fn::GetAtt":
            found.add(value[0] if isinstance(value, list) else value.partition(".")[0])
        elif name == "Fn::Sub":
            text, inner = (value, {}) if isinstance(value, str) else value
            found |= {piece.partition("}")[0] for piece in text.split("${")[1:]} | references(inner)
        else:
            found |= references(value)
    return found


def check_endpoint() -> None:
    """Refuse to go anywhere but to a server on this machine."""
    if urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname not in ("127.0.0.1", "localhost"):
        sys.exit("AWS_ENDPOINT_URL has to name a server on 127.0.0.1: see localstack/README.md")


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
    (found,) = formation.describe_stacks(StackName=stack)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}


# -------------------------------------------------------------------------------------- the drive


@dataclass
class Driven:
    """What a drive did.

    Attributes:
        batches: invocations.
        received: deliveries; one that failed and came again counts twice.
        deleted: messages that were dealt with.
        failed: deliveries that the handler reported, or that were in a batch in which it raised.
        errors: texts of what it raised.
    """

    batches: int = 0
    received: int = 0
    deleted: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass
class Invocation:
    """The context of an invocation: it has `timeout_s` from now on."""

    timeout_s: float = 300.0
    memory_limit_in_mb: int = 2048
    aws_request_id: str = "local"
    _started: float = field(default_factory=time.monotonic)

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds that are left."""
        return max(0, round(1000 * (self._started + self.timeout_s - time.monotonic())))


def drive(
    queue_url: str,
    handler: Handler,
    *,
    idle_s: float | None = 1.0,
    hidden_s: int | None = None,
    timeout_s: float = 300.0,
) -> Driven:
    """Call the handler with the messages of a queue until none comes for a while.

    Args:
        queue_url: the queue.
        handler: called as Lambda calls it; never told anything but the event and the context.
        idle_s: end after so many seconds without a message; None never ends.
        hidden_s: how long a message is hidden once received; the queue's setting if None.
        timeout_s: the time of an invocation.
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
    """Return the messages of a batch that were dealt with."""
    done.batches += 1
    done.received += len(messages)
    event = {"Records": [record_of(message) for message in messages]}
    try:
        answer = handler(event, Invocation(timeout_s)) or {}
    except Exception as error:  # noqa: BLE001 - as on AWS: the whole batch comes again
        done.errors.append(f"{type(error).__name__}: {error}")
        done.failed += len(messages)
        return []
    failures = {item["itemIdentifier"] for item in answer.get("batchItemFailures", [])}
    unknown = failures - {message["MessageId"] for message in messages}
    if unknown:
        # AWS then takes the whole batch for failed.
        done.errors.append(f"reported messages that are not of the batch: {sorted(unknown)}")
        done.failed += len(messages)
        return []
    done.failed += len(failures)
    return [message for message in messages if message["MessageId"] not in failures]


def record_of(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of SQS as a record of the event that Lambda hands over."""
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
    """Run as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("deploy", help="create queues, rules, policies and the role")
    made.add_argument("--bucket", required=True)
    made.add_argument("--prefix", required=True, help="of a table, or of a folder of tables")
    made.add_argument("--source", choices=("EventBridge", "S3"), default="EventBridge")
    driven = verbs.add_parser("drive", help="call the function with what comes through the queue")
    driven.add_argument("--idle", type=float, help="end after so many seconds without a message")
    driven.add_argument("--timeout", type=float, default=300.0, help="of an invocation, in seconds")
    for verb in (made, driven):
        verb.add_argument("--stack", default=STACK, help=f"its name (default {STACK})")
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
    """Drive the function with the settings that the stack gives it."""
    check_endpoint()
    try:
        (found,) = boto3.client("cloudformation").describe_stacks(StackName=options.stack)["Stacks"]
    except ClientError as error:
        print(f"no stack {options.stack}: {error}; run localstack/deploy first", file=sys.stderr)
        return 1
    outputs = {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}
    given = {p["ParameterKey"]: p["ParameterValue"] for p in found["Parameters"]}
    os.environ.setdefault("EVENTLOG_TABLES", f"s3://{given['Bucket']}/{given['Prefix']}")
    os.environ.setdefault("EVENTLOG_QUEUE_URL", outputs["QueueUrl"])
    from eventlog.compaction.lambda_handler import handler  # noqa: PLC0415 - deploy needs none of it

    with contextlib.suppress(KeyboardInterrupt):
        done = drive(outputs["QueueUrl"], handler, idle_s=options.idle, timeout_s=options.timeout)
        print(json.dumps(vars(done)), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
