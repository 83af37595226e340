"""Odd arguments of the public functions: an error of eventlog's own, and nothing is committed."""

import datetime as dt
import itertools
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support import repeatable
from support.builders import create, events

from eventlog import Table, compaction, errors, replication
from eventlog.cli.program import build
from eventlog.model.properties import SETTINGS
from eventlog.readers import count, scan
from eventlog.writers import Appender, append, overwrite

LONE = "\ud800"


def by_appender(table, rows, **unit):
    """Append rows by an appender."""
    with table.appender() as out:
        out.append(rows, **unit)


NUMBERS = itertools.count()  # of copies
ODD = [
    True, False, -1, 0, 1, 7, 2**31, 10**12, 2**63 - 1, 2**63, -(2**63), 10**400, 0.0, 1.0, 1.5,
    -0.0, 1e300, math.nan, math.inf, Decimal(1), Decimal("NaN"), Fraction(1, 2), 1j,
    np.int64(1), np.int64(-1), np.uint64(2**64 - 1), np.float64(1), np.bool_(True),
    np.datetime64("NaT"), np.array([1, 2]),
    pd.NA, pd.NaT, "", " ", "1", "-1", "1e3", "10GB", "1_000", "\u0661", "x", "x" * 300, LONE, "\0",
    "at", "name", "nobody", "2013", "2013-01-07", "' OR 1=1 --", b"", b"at", bytearray(b"1"),
    [], [1], ["at"], ["at", "at"], [None], [LONE], [["at"]], (), ("at",), {}, {"at": 1},
    {1: "x"}, {"x": None}, {"user.x": 1}, {"user.x": LONE}, {LONE: "x"}, {"retention_hours": 1},
    {"retention_hours": "1.5"}, {"retention_hours": True}, set(), frozenset(["at"]), range(3),
    object(), object, lambda: 1, Exception("x"), dt.date(2013, 1, 7), dt.timedelta(1),
    dt.datetime(2013, 1, 7), Path("x"), iter(["at"]), (n for n in [1]), slice(1), ...,
    pa.schema([]), pa.schema([("at", pa.int8())]), pa.int8(), pa.scalar(1), pa.array([1]),
    pc.field("at"), pc.field("nobody"), pc.field("at") > 5, pc.scalar(None), pc.field(99) == 1,
]  # fmt: skip
# What is no argument of another's mistake: a mapping of a function's parameters to the calls.
CALLS = {
    "open.uri": lambda t, v: Table.open(v),
    "open.storage_options": lambda t, v: Table.open("memory://nowhere", v),
    "create.uri": lambda t, v: Table.create(v, t.session.head().schema, time_column="at"),
    "create.schema": lambda t, v: create(schema=v),
    "create.time_column": lambda t, v: create(time_column=v),
    "create.granularity": lambda t, v: create(granularity=v),
    "create.order_by": lambda t, v: create(order_by=v),
    "create.properties": lambda t, v: create(properties=v),
    "create.storage_options": lambda t, v: Table.create(
        "memory://", t.session.head().schema, time_column="at", storage_options=v),
    "create.key": lambda t, v: create(key=v),
    "create.buckets": lambda t, v: create(buckets=v),
    "snapshot.version": lambda t, v: t.snapshot(v),
    "snapshot.timestamp": lambda t, v: t.snapshot(timestamp=v),
    "snapshot.both": lambda t, v: t.snapshot(v, v),
    "segments.where": lambda t, v: t.snapshot().segments(v),
    "segments.chunks": lambda t, v: t.snapshot().segments(None, v),
    "history.start": lambda t, v: list(t.history(v)),
    "history.limit": lambda t, v: list(t.history(limit=v)),
    "diff.a": lambda t, v: t.diff(v, 1),
    "diff.b": lambda t, v: t.diff(0, v),
    "restore.version": lambda t, v: t.restore(v),
    "find_transaction.id": lambda t, v: t.find_transaction(v),
    "find_transaction.start": lambda t, v: t.find_transaction("0" * 32, v),
    "find_transaction.until": lambda t, v: t.find_transaction("0" * 32, 0, v),
    "pin.name": lambda t, v: t.pin(v),
    "pin.version": lambda t, v: t.pin("p", v),
    "pin.owner": lambda t, v: t.pin("p", owner=v),
    "unpin.name": lambda t, v: t.unpin(v),
    "unpin.owner": lambda t, v: t.unpin("p", owner=v),
    "break_pin.name": lambda t, v: t.break_pin(v),
    "claim.start": lambda t, v: t.claim(v, "2013-01-07"),
    "claim.end": lambda t, v: t.claim("2013-01-07", v),
    "claim.segments": lambda t, v: t.claim(segments=v),
    "claim.kind": lambda t, v: t.claim(kind=v),
    "claim.priority": lambda t, v: t.claim(priority=v),
    "claim.group": lambda t, v: t.claim(group=v),
    "claim.owner": lambda t, v: t.claim(owner=v),
    "break_claim.id": lambda t, v: t.break_claim(v),
    "break_claim.silent_s": lambda t, v: t.break_claim("0" * 32, silent_s=v),
    "set_properties": lambda t, v: t.set_properties(v),
    "set_granularity": lambda t, v: t.set_granularity(v),
    "set_buckets": lambda t, v: t.set_buckets(v),
    "add_columns": lambda t, v: t.add_columns(v),
    "add_columns.defaults": lambda t, v: t.add_columns([pa.field("z", pa.int8())], v),
    "add_columns.within": lambda t, v: t.add_columns([pa.field("z", pa.int8())], within=v),
    "drop_columns": lambda t, v: t.drop_columns(v),
    "rename_column.old": lambda t, v: t.rename_column(v, "z"),
    "rename_column.new": lambda t, v: t.rename_column("name", v),
    "widen_column.name": lambda t, v: t.widen_column(v, pa.int64()),
    "widen_column.to": lambda t, v: t.widen_column("name", v),
    "reorder_columns": lambda t, v: t.reorder_columns(v),
    "relax_columns": lambda t, v: t.relax_columns(v),
    "drop_segments.segments": lambda t, v: t.drop_segments(v, reason="lost"),
    "merge.branch": lambda t, v: t.merge(v),
    "follow.name": lambda t, v: replication.follow(t, f"memory://odd-{next(NUMBERS)}", name=v),
    "detach.table": lambda _, v: replication.detach(v, "x"),
    "detach.name": replication.detach,
    "break_replica.table": lambda _, v: replication.break_replica(v, "x"),
    "break_replica.name": replication.break_replica,
    "replicas.table": lambda _, v: replication.replicas(v),
    "append.data": append,
    "append.t": lambda t, v: append(v, pa.table({"at": [0]})),
    "overwrite.t": lambda t, v: overwrite(v, pa.table({"at": [0]})),
    "scan.t": lambda t, v: scan(v),
    "count.t": lambda t, v: count(v),
    "append.app_id": lambda t, v: append(t, events(1), app_id=v, app_seq=1),
    "append.app_seq": lambda t, v: append(t, events(1), app_id="a", app_seq=v),
    "append.memory_bytes": lambda t, v: append(t, events(1), memory_bytes=v),
    "appender.t": lambda _, v: Appender(v),
    "appender.app_id": lambda t, v: t.appender(app_id=v),
    "appender.max_rows": lambda t, v: t.appender(max_rows=v),
    "appender.max_bytes": lambda t, v: t.appender(max_bytes=v),
    "appender.max_delay_s": lambda t, v: t.appender(max_delay_s=v),
    "appender.buffer_bytes": lambda t, v: t.appender(buffer_bytes=v),
    "appender.retry_s": lambda t, v: t.appender(retry_s=v),
    "appender.missing": lambda t, v: t.appender(missing=v),
    "appender.append": by_appender,
    "appender.append.app_seq": lambda t, v: by_appender(t, events(1), app_id="a", app_seq=v),
    "appender.append.timeout_s": lambda t, v: by_appender(t, events(1), timeout_s=v),
    "appender.committed": lambda t, v: t.appender().committed(v),
    "overwrite.start": lambda t, v: overwrite(t, events(0), start=v),
    "overwrite.end": lambda t, v: overwrite(t, events(0), end=v),
    "overwrite.isolation": lambda t, v: overwrite(t, events(0), isolation=v),
    "overwrite.read_version": lambda t, v: overwrite(t, events(0), read_version=v),
    "overwrite.app_seq": lambda t, v: overwrite(t, events(0), app_id="a", app_seq=v),
    "overwrite.memory_bytes": lambda t, v: overwrite(t, events(0), memory_bytes=v),
    "scan.columns": lambda t, v: scan(t, v).to_table(),
    "scan.where": lambda t, v: scan(t, where=v).to_table(),
    "scan.version": lambda t, v: scan(t, version=v),
    "scan.timestamp": lambda t, v: scan(t, timestamp=v),
    "scan.batch_rows": lambda t, v: scan(t, batch_rows=v).to_table(),
    "count.where": count,
    **{
        f"policy.{name}": lambda t, v, name=name: compaction.plan(t, compaction.Policy(**{name: v}))
        for name in compaction.Policy.__struct_fields__
    },
    "plan.version": lambda t, v: compaction.plan(t, version=v),
    "explain.chunk": compaction.explain,
    "explain.version": lambda t, v: compaction.explain(t, "1970-01-01", version=v),
    "vacuum.retention": lambda t, v: compaction.vacuum(t, retention=v),
    "vacuum.staging": lambda t, v: compaction.vacuum(t, staging=v),
    "count.version": lambda t, v: count(t, version=v),
}  # fmt: skip


@pytest.mark.hazard("W7")
@pytest.mark.parametrize("call", CALLS)
def test_w7_an_odd_argument_is_an_error_of_our_own_and_commits_nothing(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # many a text is a path
    raw = []
    table = create()
    append(table, events(3))
    for value in ODD:
        before = table.refresh().version
        try:
            CALLS[call](table, value)
        except errors.EventLogError as error:
            if table.refresh().version != before:
                raw.append(f"{value!r:.60}: committed, and raised {error!r}")
            continue
        except Exception as error:  # noqa: BLE001 - what is looked for
            raw.append(f"{value!r:.60}: {type(error).__name__}: {str(error)[:80]}")
        if table.refresh().version != before:  # it was taken: start anew
            table = create()
            append(table, events(3))
    assert not raw, "\n" + "\n".join(raw)


SIZES = ["", "nan", "inf", "-1", "1e400", "1GB", "1 h", "0x10", "1,5", "true", "None"]


@pytest.mark.hazard("W7")
@pytest.mark.parametrize(
    "words",
    [
        ["append", "{file}", "--memory-mb"],
        ["append", "{file}", "--app-id", "a", "--app-seq"],
        ["append", "{file}", "--rows"],
        ["vacuum", "--retention-hours"],
        ["vacuum", "--staging-hours"],
        ["compact", "--dry-run", "--target-mb"],
        ["compact", "--dry-run", "--memory-mb"],
        ["compact", "--dry-run", "--max-task-mb"],
        ["claims", "--break", "0" * 32, "--silent-seconds"],
        ["show", "--version"],
        ["scan", "--limit"],
        ["log", "--limit"],
        ["split"],
    ],
    ids=" ".join,
)
def test_w7_a_number_of_the_program_is_a_number(words, tmp_path):
    file = tmp_path / "rows.parquet"
    pq.write_table(events(1), file)
    table = Table.create((tmp_path / "t").as_uri(), events(1).schema, time_column="at")
    verb, *rest = [word.format(file=file) for word in words]
    # Each of the verbs with some of them, and each of them with some of the verbs.
    some = SIZES if repeatable.EXAMPLES else SIZES[crc32(words[-1].encode()) % 4 :: 4]
    for size in some:
        answer = CliRunner().invoke(build(), [verb, table.uri, *rest, size])
        assert answer.exit_code == 2, (size, answer.output)
        assert isinstance(answer.exception, SystemExit)
        assert table.refresh().version == 0


@pytest.mark.hazard("W7")
@pytest.mark.parametrize("name", [*SETTINGS, "stats_columns"])
def test_w7_a_property_is_a_number_in_its_bounds(name):
    for value in [*SIZES, "\u0661", "1.0", "+1", " 1", "1_000", "9" * 30, "01e1"]:
        for change in (lambda t, v: t.set_properties({name: v}),
                       lambda t, v: create(properties={name: v})):  # fmt: skip
            table = create()
            if name == "stats_columns" and value in ("", "9" * 30, " 1"):
                continue  # no column, all of them, the first
            with pytest.raises(errors.InvalidInput, match=name):
                change(table, value)
            assert table.refresh().version == 0
