"""What a second implementation compares itself with: an answer for every version of every table.

    .venv/bin/python tests/golden/vectors.py

writes `vectors.json`; `README.md` says what its fields mean. A test computes the same again.
"""

import hashlib
import json
import re
import struct
import sys
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import UnsetType

from eventlog import Table
from eventlog.errors import DataLoss, VersionCut, VersionNotReplicated, VersionVacuumed
from eventlog.format.frames import entry_columns
from eventlog.log import spills
from eventlog.model.decimals import to_units
from eventlog.model.records import Commit, Transaction
from eventlog.readers import scan
from eventlog.state import fold
from eventlog.store.port import ObjectStore

HERE = Path(__file__).parent
TABLES = HERE / "tables"
VECTORS = HERE / "vectors.json"
RULE = "void by"


def plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value as the digest of rows takes it: exact, and without floats."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [plain(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [[plain(k, kind.key_type), plain(v, kind.item_type)] for k, v in value]
    if pa.types.is_struct(kind):
        return [plain(value[field.name], field.type) for field in kind]
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 - NaN, of which there are many
            return "nan"
        return struct.pack(">d", value).hex()
    if isinstance(value, Decimal):
        return to_units(value, kind.scale)
    return value


def rows_digest(rows: pa.Table) -> dict[str, Any]:
    """Return the number of rows and the sha256 over them, whatever their order."""
    whole = []
    for field in rows.schema:
        column = rows.column(field.name)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date(field.type):
            column = column.cast(pa.int32())
        kind = column.type
        whole.append([plain(value, kind) for value in column.to_pylist()])
    encode = lambda row: json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    lines = sorted(encode(row).encode() for row in zip(*whole, strict=True))
    return {"rows": len(lines), "digest": hashlib.sha256(b"\n".join(lines)).hexdigest()}


def effect_of(table: Table, commit: Commit) -> fold.Effect | None:
    """Return what a commit did; None where the version before is absent, as above a gap."""
    try:
        return table.session.log.effect(commit)
    except (VersionCut, VersionNotReplicated):
        return None


def outcomes(transactions: tuple[Transaction, ...], effect: fold.Effect | None) -> list[str]:
    """Return, for each transaction of a commit, `accepted` or the rule that makes it void."""
    said = [transaction.info.get(RULE, "accepted") for transaction in transactions]
    if effect is None:
        return said
    taken = [t.id for t, one in zip(transactions, said, strict=True) if one == "accepted"]
    assert taken == list(effect.accepted)
    assert {t.id for t, one in zip(transactions, said, strict=True) if one != "accepted"} == set(
        effect.void
    )
    return said


def rows_of(table: Table, version: int) -> Any:
    """Return the rows of a version as a digest, or why they cannot be read."""
    try:
        return rows_digest(scan(table, version=version).to_table())
    except VersionVacuumed:
        return "vacuumed"
    except DataLoss:
        return "lost"


def answer(table: Table, version: int, effect: fold.Effect | None = None) -> dict[str, Any]:
    """Return what a reader finds at one version."""
    snapshot = table.snapshot(version)
    commit, _ = table.session.log.read(version)
    totals = snapshot.totals
    deleted = [] if isinstance(totals.deleted, UnsetType) else [totals.deleted]
    whole = spills.unpack(commit, table.session.log.spill)
    live = sorted(s.id for s in entry_columns.to_segments(snapshot.entries()))
    effect = effect or effect_of(table, commit)
    return {
        "version": version,
        "commit": snapshot.commit_hash,
        "key_frame": snapshot.header.keyframe,
        "state_hash": snapshot.header.state_hash,
        "totals": [totals.segments, totals.rows, totals.bytes, *deleted],
        "live": " ".join(one[:8] for one in live),
        "transactions": outcomes(whole.transactions, effect),
        "rows": rows_of(table, version),
    }


def ended(table: Table, version: int) -> dict[str, Any]:
    """Return what a reader finds at a version below the cut of the log."""
    return {"version": version, "commit": table.session.log.commit_hash(version), "cut": True}


def compute(name: str, store: ObjectStore | None = None) -> list[dict[str, Any]]:
    """Return the answers of all versions of a golden table."""
    table = Table.open(TABLES / name if store is None else store.uri, store=store)
    table.refresh()
    found = []
    for version in range(table.session.head().version + 1):
        with suppress(VersionNotReplicated):
            try:
                found.append(answer(table, version))
            except VersionCut:
                found.append(ended(table, version))
    return found


def names() -> list[str]:
    """Return the names of all tables, and the roots of their branches, without ids."""
    tables = sorted(path.name for path in TABLES.iterdir())
    forks = (fork.parent.relative_to(TABLES).as_posix() for fork in TABLES.rglob("_fork.json"))
    return [*tables, *sorted(re.sub("/[0-9a-f]{32}(?=/)", "", fork) for fork in forks)]


def main() -> int:
    """Write the answers of all tables, one line a version."""
    parts = []
    for name in names():
        lines = [json.dumps(one, separators=(",", ":")) for one in compute(name)]
        parts.append(f"{json.dumps(name)}: [\n " + ",\n ".join(lines) + "\n]")
    VECTORS.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
