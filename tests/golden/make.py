"""Write the golden tables and what they are expected to answer. Run by hand, once a format.

    .venv/bin/python tests/golden/make.py

The tables under `tables/` are never written again by a release that reads the same format: that
their bytes and their answers stay is the test. Key frames and spills are made small on purpose.
"""

import datetime as dt
import hashlib
import io
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from support.intents import Intents

from eventlog import Ms, Table
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.format.frames import entry_columns
from eventlog.model.actions import (
    Ack,
    Add,
    Assess,
    Attach,
    ChunkChange,
    Detach,
    Fence,
    Horizon,
    Replace,
)
from eventlog.model.entries import Analysed, ChunkState, ColumnStats
from eventlog.staging.encoding import Recipe
from eventlog.staging.stager import Stager
from eventlog.state.delta import drop_of
from eventlog.store.local import LocalStore
from eventlog.writers import append, overwrite

HERE = Path(__file__).parent
TABLES = HERE / "tables"
EXPECTED = HERE / "expected.json"
NAMES = ("all", "clocks", "hour", "kept", "leaves", "month", "shared", "typed", "year")
START_MS = 1_357_000_000_000
DAY_US = 86_400_000_000

ALL_TYPES = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ("truth", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("number", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(20, 4)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int64()), ("name", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
PLAIN = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])


def typed_rows(first: int, count: int) -> pa.Table:
    """Rows of every column type, some of them null, over three days of 2013."""
    rows = []
    for n in range(first, first + count):
        at = dt.datetime(2013, 1, 1 + n % 3, n % 24, n % 60, 7, n, tzinfo=dt.UTC)
        row = {
            "at": at,
            "truth": n % 2 == 0,
            "tiny": n % 128,
            "short": -n,
            "number": n * 100_000,
            "large": 2**53 + n,
            "single": n / 4,
            "double": float("nan") if n == 3 else -n / 3,
            "text": f"größe {n} " + "long " * (8 * (n % 2)),
            "bytes": bytes([n, 0, 255]),
            "day": at.date(),
            "local": at.replace(tzinfo=None),
            "price": Decimal(n) / 4,
            "tags": ["a", None, f"t{n}"],
            "place": {"x": n, "name": "\x7f列"},
            "counts": [(f"k{n}", n)],
        }
        rows.append(row if n % 7 else {"at": at})
    return pa.Table.from_pylist(rows, schema=ALL_TYPES)


@contextmanager
def writing(*names: str, **sizes: int) -> Iterator[None]:
    """Write tables once more: each time with the same ids, as the same writer.

    Args:
        names: of the tables; what is there is deleted.
        sizes: of key frames, instead of those in `eventlog.state.keyframe`.
    """
    for name in names:
        shutil.rmtree(TABLES / name, ignore_errors=True)
    with ExitStack() as stack:
        # One upload at a time: the ids of segments come from one sequence.
        stack.enter_context(patch("eventlog.staging.stager._UPLOADS", 1))
        for place in ("session.session", "table.pins_and_claims"):
            stack.enter_context(patch(f"eventlog.{place}.writer_name", lambda: "golden@example"))
        # Small segments are objects, except in tables that say otherwise.
        stack.enter_context(patch("eventlog.table.creation.INLINE_BYTES", 0))
        # A vacuum's record names the place of its table, which is not that of this folder.
        root = lambda uri: uri.replace(TABLES.as_uri(), "golden:")
        stack.enter_context(patch("eventlog.store.location.real_root", root))
        if sizes:
            stack.enter_context(patch.multiple("eventlog.state.keyframe", **sizes))
        yield
    for name in names:
        shutil.rmtree(TABLES / name / ".tmp", ignore_errors=True)


def open_at(name: str, schema: pa.Schema, clock: ManualClock, **options: object) -> Table:
    """Create one golden table."""
    if "key" not in options:
        options = {"granularity": "day"} | options
    store = LocalStore(TABLES / name, ManualClock(seed=1))  # names of temporary files
    return Table.create("", schema, time_column="at", store=store, clock=clock, **options)


def make_typed(clock: ManualClock) -> None:
    """Every column type, properties, schema evolution, app marks, drops, an inlined key frame."""
    properties = {"keyframe_commits": "4", "user.owner": "größe \"'\\", "stats_columns": "14"}
    t = open_at("typed", ALL_TYPES, clock, order_by=["text", "at"], properties=properties)
    append(t, typed_rows(0, 12), app_id="loader", app_seq=3)
    clock.advance(1000)
    append(t, typed_rows(12, 6))
    t.set_properties({"user.owner": None, "user.note": "second"})
    t.add_columns(ALL_TYPES.append(pa.field("added", pa.string())))
    wide = typed_rows(18, 4).append_column("added", pa.array(["x", None, "y", "z"]))
    append(t, wide, app_id="loader", app_seq=4)
    clock.advance(-10_000)  # a clock that runs backwards does not
    start = dt.datetime(2013, 1, 2, tzinfo=dt.UTC)
    end = start + dt.timedelta(days=1)
    overwrite(t, typed_rows(31, 1), start=start, end=end, missing="null")
    t.commit(t.transaction("fence", [Fence(4)]))
    append(t, typed_rows(40, 2))


def make_granularities(clock: ManualClock) -> None:
    """One small table a granularity, across the turn of a year and before 1970."""
    at = [-1, 0, 3_600_000_000, 31 * DAY_US, 365 * DAY_US - 1, 365 * DAY_US]
    rows = pa.table([at, range(len(at))], schema=PLAIN)
    for granularity in ("hour", "month", "year", "all"):
        t = open_at(granularity, PLAIN, clock, granularity=granularity)
        append(t, rows)
        t.write_keyframe()
        append(t, rows.slice(2))


def make_leaves(clock: ManualClock) -> None:
    """Key frames of many leaves, of one version after another, and spilled adds and drops.

    The segments have no objects: these are about the log alone.
    """
    properties = {"keyframe_commits": "3", "keyframe_bytes": "4096"}
    t = open_at("leaves", PLAIN, clock, properties=properties)

    def staged(day: int, n: int) -> Add:
        stats = (ColumnStats(1, day * DAY_US, day * DAY_US + n, 0), ColumnStats(2, None, n, n % 3))
        chunk = (dt.date(2013, 1, 1) + dt.timedelta(day)).isoformat()
        checksum = hashlib.sha256(f"{day} {n}".encode()).hexdigest()
        epoch = t.session.head().version
        return Add(
            clock.random_id(), chunk, epoch, 10 + n, 1000 + n, checksum, 1, stats[: 1 + n % 2]
        )

    t.commit(t.transaction("append", [staged(day, n) for day in range(30) for n in range(2)]))
    for day in (3, 4, 29, 40):
        clock.advance(500)
        t.commit(t.transaction("append", [staged(day, n) for n in range(5)]))
    live = entry_columns.to_segments(t.session.head().entries())
    gone = [drop_of(s) for s in live if s.chunk < "2013-01-20"]
    t.commit(t.transaction("replace", [*gone, staged(7, 0)]))
    t.commit(t.transaction("append", [staged(50, 0)]))
    t.commit(t.transaction("append", [staged(51, 0)]))


def make_kept(clock: ManualClock) -> None:
    """A table that was kept: pins, claims, a rewrite of hours to a day, notes of an analysis."""
    t = open_at("kept", PLAIN, clock, granularity="hour", properties={"keyframe_commits": "4"})
    rows = pa.table([[n * 3_600_000_000 for n in range(6)], range(6)], schema=PLAIN)
    append(t, rows)
    append(t, rows.slice(2, 2))
    t.pin("first", 1, owner="golden")
    read = entry_columns.to_segments(t.session.head().entries())
    planned = t.session.head().version
    lease = t.claim(Ms(0), Ms(DAY_US // 1000), group="rewrite", owner="golden")
    t.claim(
        Ms(DAY_US // 1000), Ms(2 * DAY_US // 1000), kind="shared", group="other", owner="golden"
    )
    lease.renew()
    t.set_granularity("day")
    append(t, rows.slice(5))  # comes while the rewrite is under way, at another granularity
    with Stager(t.store, t.clock, Recipe.of(t.session.head())) as stager:
        for segment in read:
            body = t.store.get(keys.key_of(segment))
            for batch in pq.read_table(io.BytesIO(body), schema=PLAIN).to_batches():
                stager.write(batch)
        adds = stager.finish()
    actions = [Replace(planned, 0), *(drop_of(s) for s in read), *adds]
    t.commit(t.transaction("compact", actions, read_version=planned, claim=lease.token))
    lease.release()
    analysed = Analysed(t.session.head().version, "cd" * 32)
    states = (
        ChunkChange("1970-01-01", ChunkState("unstable", t.session.head().version, 2, 1, START_MS)),
        ChunkChange("1970-01-02", ChunkState("deferred", 1, 1)),
    )
    t.commit(t.transaction("assess", [Assess(None, analysed, states)]))
    t.commit(
        t.transaction("assess", [Assess(analysed, analysed, (ChunkChange("1970-01-02", None),))])
    )
    t.unpin("first", owner="golden")
    t.pin("second", 4, owner="golden")
    t.commit(t.transaction("vacuum", [Fence(3), Horizon(2)]))
    t.restore(4)
    t.break_claim(next(iter(t.claims())))
    append(t, rows.slice(4))


def make_shared(clock: ManualClock) -> None:
    """A table of several: a commit of three writers, replicas, and vacuums with their records."""
    t = open_at("shared", PLAIN, clock, properties={"keyframe_commits": "5"})
    hour = 3_600_000
    rows = pa.table([[n * DAY_US for n in range(6)], range(6)], schema=PLAIN)
    append(t, rows)
    t.commit(t.transaction("attach", [Attach("mirror", 0, "golden"), Attach("gone", 1, "golden")]))
    token = t.session.head().meta.replicas["mirror"].token
    t.commit(t.transaction("ack", [Ack("mirror", token, 2), Detach("gone", token)]))
    overwrite(t, rows.slice(1, 1), start="1970-01-02", end="1970-01-03", isolation="serializable")
    publish(t, rows.slice(2, 1))
    publish(t, rows.slice(3, 2))
    append(t, rows.slice(5))  # takes them along
    t.commit(t.transaction("ack", [Ack("mirror", token, 4)]))
    clock.advance(30 * hour)
    overwrite(t, rows.slice(0, 1), start="1970-01-01", end="1970-01-02")
    vacuum(t, dry_run=False, retention=dt.timedelta(hours=1), staging=dt.timedelta(hours=1))
    clock.advance(30 * hour)
    t.commit(t.transaction("detach", [Detach("mirror", token)]))
    publish(t, rows.slice(4, 1))
    append(t, rows.slice(1, 1))
    vacuum(t, dry_run=False, retention=dt.timedelta(hours=40), staging=dt.timedelta(hours=1))
    append(t, rows.slice(2, 1), app_id="loader", app_seq=1)


def publish(t: Table, rows: pa.Table) -> None:
    """Publish an append, as a writer that lost does; the next commit of `t` takes it along."""
    with Stager(t.store, t.clock, Recipe.of(t.session.head())) as stager:
        for batch in rows.to_batches():
            stager.write(batch)
        adds = stager.finish()
    own = t.transaction("append", adds, info={"of": "another writer"})
    offered = msgspec.structs.replace(own, until=t.session.head().version + 8)
    Intents(t.store, t.clock).publish(offered, t.id)
    # How long it waits, and when others look for it, is no part of the format.
    t.session.committer.writer.taken.append(offered)


def make_clocks(clock: ManualClock) -> None:
    """A table that was made in 1970, was nine years ahead later, and was set right both times."""
    t = open_at("clocks", PLAIN, clock, properties={"keyframe_commits": "3"})
    rows = pa.table([[0, DAY_US], range(2)], schema=PLAIN)
    append(t, rows, app_id="loader", app_seq=1)
    clock.advance(START_MS)
    t.set_clock()
    append(t, rows, app_id="loader", app_seq=2)
    clock.advance(9 * 365 * 86_400_000)
    append(t, rows, app_id="ahead", app_seq=1)
    clock.advance(-9 * 365 * 86_400_000 + 60_000)
    append(t, rows)
    t.set_clock()
    append(t, rows, app_id="another", app_seq=1)


def rows_of(table: Table) -> list[str]:
    """All rows of the newest version as text, sorted; empty where segments have no objects."""
    rows = []
    for segment in entry_columns.to_segments(table.session.head().entries()):
        body = table.store.get(keys.key_of(segment))
        rows += [repr(sorted(r.items())) for r in pq.read_table(io.BytesIO(body)).to_pylist()]
    return sorted(rows)


def answers(table: Table, *, rows: bool) -> dict[str, object]:
    """What a reader of the table must find, at every version."""
    versions = []
    for entry in table.history():
        snapshot = table.snapshot(entry.version)
        live = sorted(s.id for s in entry_columns.to_segments(snapshot.entries()))
        versions.append(
            {
                "version": entry.version,
                "time": entry.time.isoformat(),
                "operation": entry.operation,
                "writer": entry.writer,
                "adds": entry.adds,
                "drops": entry.drops,
                "rows": snapshot.totals.rows,
                "bytes": snapshot.totals.bytes,
                "segments": snapshot.totals.segments,
                "live": hashlib.sha256(" ".join(live).encode()).hexdigest(),
                "chunks": [f"{c.chunk.name} {c.segments} {c.rows}" for c in snapshot.chunks()],
                "state_hash": snapshot.header.state_hash,
                "commit_hash": snapshot.commit_hash,
                "key_frame": snapshot.header.keyframe,
                "schema": str(snapshot.schema),
                "properties": dict(snapshot.properties),
                "apps": {name: mark.seq for name, mark in snapshot.meta.apps.items()},
            }
        )
    return {"id": table.id, "rows": rows_of(table) if rows else [], "versions": versions}


def main() -> int:
    """Write all tables of this module once more, and what a reader finds in them."""
    clock = ManualClock(START_MS, seed=2013)
    small = patch.multiple(
        "eventlog.state.keyframe", INLINE_SEGMENTS=20, LEAF_TARGET=12, LEAF_SMALL=4, LEAF_MAX=40
    )
    with writing(*NAMES):
        make_typed(clock)
        make_granularities(clock)
        make_kept(clock)
        with small, patch("eventlog.log.spills.SPILL_BYTES", 6000):
            make_leaves(clock)
        make_shared(ManualClock(START_MS, seed=2014))
        make_clocks(ManualClock(1_000, seed=2015))
    found = {name: answers(Table.open(TABLES / name), rows=name != "leaves") for name in NAMES}
    EXPECTED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
