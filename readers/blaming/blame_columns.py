"""The columns of what `blame` returns: names and types that do not change.

`kind` of a segment is `written` (it has new rows), `rewritten` (those of its `inputs`, and no
others), `restored` (the input is the same segment), or `merged`: its rows were written in another
log, `origin`, and merged up to its version `origin_version`. It is null where this copy of the
table lacks the commit.

`_time`, `_operation`, `_writer`, `_app_id` and `_app_seq` of a row are those of `_version`; if that
is null, what all of `_versions` have in common. `_segment` has the row. `_op` of a stored row of a
key is `upsert` or `delete`, `_kind` that of its segment, and `_live` is whether a scan reads it. Of
rows that a merge made of several, `_version` is the newest that wrote one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from eventlog.model.records import Transaction
from eventlog.readers.blaming.segment_lineage import LineageStep
from eventlog.table.inspection.columns import TIME

SEGMENT_COLUMNS = pa.schema(
    [
        ("depth", pa.int64()),
        ("segment", pa.string()),
        ("chunk", pa.string()),
        ("rows", pa.int64()),
        ("kind", pa.string()),
        ("version", pa.int64()),
        ("time", TIME),
        ("operation", pa.string()),
        ("writer", pa.string()),
        ("app_id", pa.string()),
        ("app_seq", pa.int64()),
        ("inputs", pa.list_(pa.string())),
        ("origin", pa.string()),
        ("origin_version", pa.int64()),
    ]
)
# Of rows, behind the table's columns.
ROW_COLUMNS = pa.schema(
    [
        ("_version", pa.int64()),
        ("_versions", pa.list_(pa.int64())),
        ("_time", TIME),
        ("_operation", pa.string()),
        ("_writer", pa.string()),
        ("_app_id", pa.string()),
        ("_app_seq", pa.int64()),
        ("_segment", pa.string()),
    ]
)
# Of the stored rows of a key, behind those.
KEY_COLUMNS = pa.schema([("_op", pa.string()), ("_kind", pa.string()), ("_live", pa.bool_())])


def step_row(step: LineageStep, depth: int) -> dict[str, Any]:
    """Return a step as a row of `SEGMENT_COLUMNS`."""
    entry, transaction = step.entry, step.transaction
    origin, version = _origin(transaction) if step.kind == "merged" else (None, None)
    return {
        "depth": depth,
        "segment": entry.id,
        "chunk": entry.chunk,
        "rows": entry.live_rows,
        "kind": step.kind,
        "version": entry.version,
        "time": step.time_ms,
        **_facts(transaction),
        "inputs": [*(one.id for one in step.inputs), *step.unknown],
        "origin": origin,
        "origin_version": version,
    }


def writer_columns(
    rows: Sequence[tuple[int | None, Sequence[LineageStep], str | None]],
) -> pa.Table:
    """Return the columns `ROW_COLUMNS` of rows.

    Args:
        rows: for each the version that wrote it, None if that is not certain; the steps that may
            have written it; and the id of the segment that has it.
    """
    return pa.Table.from_pylist([_writer_row(*row) for row in rows], ROW_COLUMNS)


def _writer_row(
    version: int | None, steps: Sequence[LineageStep], segment: str | None
) -> dict[str, Any]:
    versions = sorted({step.entry.version for step in steps} | _known(version))
    certain = [step for step in steps if version in (None, step.entry.version)]
    facts = [{"time": step.time_ms, **_facts(step.transaction)} for step in certain]
    # What all candidates have in common is certain, too.
    shared = {
        f"_{name}": value
        for name, value in (facts[0] if facts else {}).items()
        if all(other[name] == value for other in facts)
    }
    return {"_version": version, "_versions": versions, **shared, "_segment": segment}


def _known(version: int | None) -> set[int]:
    return set() if version is None else {version}


def _facts(transaction: Transaction | None) -> dict[str, Any]:
    if transaction is None:
        return dict.fromkeys(("operation", "writer", "app_id", "app_seq"))
    app = transaction.app
    return {
        "operation": transaction.operation,
        "writer": transaction.writer,
        "app_id": None if app is None else app.id,
        "app_seq": None if app is None else app.seq,
    }


def _origin(transaction: Transaction | None) -> tuple[str | None, int | None]:
    """Return the root of the log that a merge read, and its version, as the merge noted them."""
    info = {} if transaction is None else transaction.info
    version = info.get("version", "")
    return info.get("from"), int(version) if version.isdecimal() and len(version) < 19 else None


def taken_names(names: Iterable[str], more: Iterable[str]) -> list[str]:
    """Return the names of a table's columns that a result has for columns of its own.

    Names that differ in capitals only count as the same, as in Spark.
    """
    own = {*more}
    return [name for name in names if name.lower() in own]
