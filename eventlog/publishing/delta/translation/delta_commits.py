"""Delta's commit of a version: the object `_delta_log/<N>.json`. No I/O.

Source: Delta's PROTOCOL.md, "Actions" and "In-Commit Timestamps". It depends on nothing but the
version and the one before, so that every publisher writes the same bytes, wherever it began.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec import UnsetType

from eventlog.format.deletion_vectors import vector_hash
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Segment
from eventlog.publishing.delta.translation.delta_schema import metadata, one_line, protocol
from eventlog.publishing.delta.translation.delta_vectors import DeltaVector
from eventlog.publishing.delta.translation.statistics import StatisticsWriter
from eventlog.publishing.versions import Exchange, VersionStep

LOG_PREFIX = "_delta_log/"
TABLE, COMMIT, BEGINS = "eventlog.table", "eventlog.commit", "eventlog.begins"
# By key and hash of the bitmap, which `vector_name` returns.
Vectors = Mapping[tuple[str, str], DeltaVector]

_COMMIT_KEY = re.compile(r"_delta_log/(\d{20})\.json", re.ASCII)
_CHECKPOINT_KEY = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet", re.ASCII)


def delta_commit_key(version: int) -> str:
    """Return the key of Delta's commit of a version."""
    return f"{LOG_PREFIX}{version:020d}.json"


def checkpoint_key(version: int) -> str:
    """Return the key of Delta's checkpoint of a version."""
    return f"{LOG_PREFIX}{version:020d}.checkpoint.parquet"


def parse_delta_key(key: str) -> tuple[int, bool] | None:
    """Return (version, is a checkpoint) of a key in a Delta log; None for others."""
    for pattern, is_checkpoint in ((_COMMIT_KEY, False), (_CHECKPOINT_KEY, True)):
        if match := pattern.fullmatch(key):
            return int(match[1]), is_checkpoint
    return None


def in_commit_time(snapshot: Snapshot) -> int:
    """Return the time of a version in ms UTC, which rises with every version.

    It is that of the commit; after the clock was set back, the milliseconds above the times before.
    """
    version, time_ms = snapshot.version, snapshot.header.time
    before = (fix for fix in snapshot.meta.clock if fix.version < version)
    # against delta-times-that-fall
    return max([time_ms, *(fix.old + version - fix.version for fix in before)])


def beginning(step: VersionStep) -> bytes:
    """Return Delta's commit of a version that its publisher begins with, without files.

    Its checkpoint has them. It is marked, since another commit that lacks its files lost them.
    """
    # against lost-files-taken-for-a-beginning
    return delta_commit(replace(step, exchanges=()), {}, {BEGINS: True})


def delta_commit(
    step: VersionStep, vectors: Vectors, marks: Mapping[str, Any] = MappingProxyType({})
) -> bytes:
    """Return the bytes of Delta's commit of a version.

    Args:
        step: the version, and its difference from the one before.
        vectors: those of the entries before and after, by `vector_name`.
        marks: further fields of its `commitInfo`.
    """
    after, before = step.after, step.before
    actions: list[dict[str, Any]] = [{"commitInfo": {**_provenance(after), **marks}}]
    for name, of in (("protocol", protocol), ("metaData", metadata)):
        if before is None or of(before) != of(after):
            actions.append({name: of(after)})
    lines = [one_line(action) for action in actions]
    statistics = StatisticsWriter(after)
    for exchange in step.exchanges:
        lines += _file_actions(exchange, in_commit_time(after), statistics, vectors)
    return "".join(f"{line}\n" for line in lines).encode()


def without_files(body: bytes) -> bytes:
    """Return the lines of a Delta commit that are no actions of files."""
    lines = body.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith((b'{"add"', b'{"remove"')))


def publisher_of(body: bytes) -> tuple[str | None, str | None]:
    """Return the ids of the table and of the commit in a Delta commit; None for what is not there.

    Args:
        body: of any program.
    """
    try:
        first = json.loads(body.partition(b"\n")[0])["commitInfo"]
        table, commit = first.get(TABLE), first.get(COMMIT)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, None
    texts = [value if isinstance(value, str) else None for value in (table, commit)]
    return texts[0], texts[1]


def add_action(
    segment: Segment, key: str, time_ms: int, statistics: StatisticsWriter, vectors: Vectors
) -> dict[str, Any]:
    """Return the fields of an action `add`, without `dataChange`."""
    fields: dict[str, Any] = {
        "path": key,
        "partitionValues": {},
        "size": segment.bytes,
        "modificationTime": time_ms,
        "stats": statistics.text(segment),
    }
    return fields | _vector_field(segment, key, vectors)


def vector_name(segment: Segment, key: str) -> tuple[str, str] | None:
    """Return what names the vector of an entry in `Vectors`; None if it has none."""
    if isinstance(segment.vector, UnsetType):
        return None
    return key, vector_hash(segment.vector)


def _provenance(after: Snapshot) -> dict[str, Any]:
    return {
        "inCommitTimestamp": in_commit_time(after),
        "timestamp": in_commit_time(after),
        "operation": after.header.changes.operation,
        "operationParameters": {},
        "engineInfo": "eventlog",
        TABLE: after.header.table,
        COMMIT: after.commit_hash,
    }


def _file_actions(
    exchange: Exchange, time_ms: int, statistics: StatisticsWriter, vectors: Vectors
) -> Iterator[str]:
    old, new, key = exchange.before, exchange.after, exchange.key
    # One commit must not remove and add a path with the same vector: only its version changed.
    same = old and new and vector_name(old, key) == vector_name(new, key)
    if same:  # against path-removed-and-added
        return
    if old is not None:
        fields = {
            "path": key,
            "deletionTimestamp": time_ms,
            "dataChange": exchange.rows_changed,
            "extendedFileMetadata": True,
            "partitionValues": {},
            "size": old.bytes,
        }
        yield one_line({"remove": fields | _vector_field(old, key, vectors)})
    if new is not None:
        fields = add_action(new, key, time_ms, statistics, vectors)
        yield one_line({"add": {**fields, "dataChange": exchange.rows_changed}})


def _vector_field(segment: Segment, key: str, vectors: Vectors) -> dict[str, Any]:
    name = vector_name(segment, key)
    return {} if name is None else {"deletionVector": vectors[name].descriptor()}
