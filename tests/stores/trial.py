"""What one store does: the probe, races for a key, many writers beside compaction, conditions.

`try_store` asks a store that is there; the judgement of what came is `verdict`, without I/O.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError
from support import racers, workloads

from eventlog import Table
from eventlog.compaction import vacuum
from eventlog.errors import EventLogError, InvalidInput
from eventlog.fsck.check import fsck
from eventlog.readers import scan

RACERS = 8
ROUNDS = 200
WRITERS = 8
ROWS = 100  # of an append
BUCKET = "stores"
# `yes`: tables may lie there. `no vacuum`: it deletes nothing by DeleteObjects. `races`: a key was
# created twice. `loses`: rows or commits are wrong. `refused`: eventlog creates no table there.
Verdict = Literal["yes", "no vacuum", "races", "loses", "refused"]


@dataclass
class Found:
    """What a store did; None or empty: it was not asked, because of what it did before."""

    refused: str = ""  # why no table was created
    double: int | None = None  # races with more than one winner
    unwon: int | None = None  # races without one
    appends: int | None = None  # acknowledged, beside compaction
    commits: int | None = None
    compactions: Counter = field(default_factory=Counter)  # tasks by status
    lost: int | None = None  # rows that were acknowledged and are not there
    doubled: int | None = None  # rows that are there twice
    problems: list[str] = field(default_factory=list)  # of `fsck`, and errors
    no_vacuum: str = ""  # why nothing was deleted
    conditions: dict[str, str] = field(default_factory=dict)


def verdict(found):
    """Return whether tables may lie in the store, and if not, the first reason."""
    if found.refused:
        return "refused"
    if found.double or found.unwon:
        return "races"
    if found.lost or found.doubled or found.problems:
        return "loses"
    return "no vacuum" if found.no_vacuum else "yes"


def try_store(client, options, environment, seconds):
    """Return what a store does that has one bucket, `BUCKET`.

    Args:
        client: of boto3.
        options: storage options of eventlog.
        environment: of the processes.
        seconds: how long the writers write.
    """
    found = Found(conditions=conditions(client))
    try:
        create(f"s3://{BUCKET}/probe", options)
    except InvalidInput as error:
        found.refused = str(error)
        return found
    except EventLogError as error:
        found.problems.append(f"create: {error}")
        return found
    for part in (_race, _beside_compaction):
        try:
            part(found, options, environment, seconds)
        except (EventLogError, AssertionError) as error:
            found.problems.append(f"{part.__name__[1:]}: {str(error).strip().splitlines()[-1]}")
    return found


def create(uri, options):
    """Create the table of the trial."""
    return Table.create(
        uri, workloads.SCHEMA, time_column="at", granularity="day", storage_options=options
    )


def _race(found, options, environment, seconds):
    """Let processes create the same key at once, again and again."""
    where = (f"s3://{BUCKET}/race", options, ROUNDS)
    won = racers.run(racers.race_for_slots, RACERS, *where, environment=environment)
    winners = Counter(turn for turns in won for turn in turns)
    found.double = sum(count > 1 for count in winners.values())
    found.unwon = ROUNDS - len(winners)


def _beside_compaction(found, options, environment, seconds):
    """Let processes append while one compacts, without a pause; then compare every row."""
    uri = f"s3://{BUCKET}/table"
    create(uri, options)
    *blocks, compactions = racers.run(
        workloads.work,
        WRITERS + 1,
        *(WRITERS, workloads.Seconds(seconds), uri, options, ROWS),
        environment=environment,
    )
    found.appends, found.compactions = sum(blocks), Counter(compactions.statuses)
    table = Table.open(uri, options)
    _compare(found, table, blocks)
    found.commits = table.session.head().version
    found.problems += [str(finding) for finding in fsck(table).findings]
    try:
        vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    except InvalidInput as error:
        found.no_vacuum = str(error)
    _compare(found, Table.open(uri, options), blocks)


def _compare(found, table, blocks):
    wanted = {n for w, count in enumerate(blocks) for n in workloads.ids_of(w, count, ROWS)}
    rows = Counter(scan(table, columns=["id"]).to_table().column("id").to_pylist())
    found.lost = (found.lost or 0) + len(wanted - rows.keys())
    found.doubled = (found.doubled or 0) + sum(count > 1 for count in rows.values())


def conditions(client):
    """Return what a store does with conditions that eventlog does not need, by name.

    `kept` and `ignored` are about the object; anything else is the error's code.
    """
    where = {"Bucket": BUCKET, "Key": "conditions"}
    client.put_object(**where, Body=b"first")
    wrong = '"00000000000000000000000000000000"'
    source = {"Bucket": BUCKET, "Key": "source"}
    client.put_object(**source, Body=b"source")
    return {
        "PUT If-Match": _tried(
            client, lambda: client.put_object(**where, Body=b"x", IfMatch=wrong)
        ),
        "COPY If-None-Match": _tried(
            client, lambda: client.copy_object(**where, CopySource=source, IfNoneMatch="*")
        ),
        "DELETE If-Match": _tried(client, lambda: client.delete_object(**where, IfMatch=wrong)),
    }


def _tried(client, request):
    """Send a request whose condition does not hold; return what became of the object."""
    where = {"Bucket": BUCKET, "Key": "conditions"}
    code = ""
    try:
        request()
    except ClientError as error:
        code = error.response["Error"].get("Code", "") or "error"
    kept = False
    with suppress(BotoCoreError, ClientError):
        kept = client.get_object(**where)["Body"].read() == b"first"
    client.put_object(**where, Body=b"first")
    if not kept:
        return "ignored"
    return "kept" if code in ("PreconditionFailed", "412") else f"not there ({code or 'no error'})"
