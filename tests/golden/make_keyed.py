"""Write the golden keyed tables: `keyed`, `joined` and `rolled`.

    .venv/bin/python tests/golden/make_keyed.py

Like the other tables they are written once a format (`make.py` says why). Their merges are made
here, step by step as FORMAT.md says, and not by what compacts tables.
"""

import datetime as dt
import io
import random
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from golden import make, make_whole
from msgspec import UNSET

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format.buckets import buckets_of
from eventlog.format.frames import entry_columns
from eventlog.inline.inline_objects import get_object
from eventlog.keyed import key_lookup, log_rows, placement, row_merging, slices
from eventlog.keyed.rule import OP, VERSION, MergeRule
from eventlog.model import stats
from eventlog.model.actions import (
    Action,
    Add,
    Merge,
    Replace,
    SetGranularity,
    SetSchema,
)
from eventlog.model.columns.evolution import successor
from eventlog.model.columns.ids import TOP, added_id
from eventlog.model.entries import Segment, Slice
from eventlog.model.records import Transaction
from eventlog.staging import upsert_rows
from eventlog.staging.encoding import Recipe, encode_segment, make_add, put_segment
from eventlog.state import fold
from eventlog.state.delta import drop_of
from eventlog.writers import delete, upsert

NAMES = ("keyed", "joined", "rolled")
HOUR_MS = 3_600_000
START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
put, void = make_whole.put, make_whole.void

KEYED = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
    ]
)
JOINED = pa.schema(
    [
        ("place", pa.string()),
        ("day", pa.date32()),
        pa.field("at", pa.timestamp("us"), nullable=False),
        ("seen", pa.int64()),
        ("birds", pa.int32()),
        ("measured", pa.timestamp("us", tz="UTC")),
        ("celsius", pa.float64()),
        ("note", pa.string()),
    ]
)
ROLLED = pa.schema(
    [
        ("kind", pa.binary()),
        ("price", pa.decimal128(6, 2)),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ("seen", pa.int64()),
        ("n", pa.int64()),
        ("total", pa.int64()),
        ("units", pa.decimal128(12, 3)),
        ("low", pa.float64()),
        ("high", pa.float32()),
        ("word", pa.string()),
        ("begun", pa.string()),
        ("ended", pa.string()),
    ]
)


def live(t: Table) -> list[Segment]:
    """Return the live segments."""
    return entry_columns.to_segments(t.session.head().entries())


def rule_of(t: Table) -> MergeRule:
    """Return the merge rule of a table."""
    head = t.session.head()
    rule = head.merge_rule
    assert rule is not None
    return rule


def stored_rows(t: Table, segment: Segment, buckets: set[int]) -> pa.Table:
    """Return the rows of a segment in some buckets, each delete with its commit."""
    rows = pq.read_table(io.BytesIO(get_object(t.store, segment)))
    rule = rule_of(t)
    wanted = pa.schema([*t.session.head().schema, (OP, pa.string()), (VERSION, pa.int64())])
    columns = [
        rows.column(f.name) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in wanted
    ]
    rows = pa.table(columns, schema=pa.schema([f.with_nullable(True) for f in wanted]))
    deletes = pc.fill_null(pc.equal(rows.column(OP), "d"), False)
    own = pc.if_else(deletes, placement.span(segment)[0], pa.nulls(rows.num_rows, pa.int64()))
    at = rows.schema.get_field_index(VERSION)
    rows = rows.set_column(at, VERSION, pc.coalesce(rows.column(VERSION), own))
    here = buckets_of(rows, rule.key, rule.buckets, rule.splits)
    return rows.filter(pc.is_in(here, value_set=pa.array(sorted(buckets), pa.int32())))


def store(t: Table, rows: pa.Table, chunk: str, place: Slice) -> Add:
    """Store a segment, and return what adds it."""
    recipe, schema, rule = Recipe.of(t.session.head()), t.session.head().schema, rule_of(t)
    rows, _ = log_rows.in_key_order(rows, rule)
    if VERSION in rows.column_names and rows.column(VERSION).null_count == rows.num_rows:
        rows = rows.drop_columns([VERSION])
    rows = upsert_rows.stored(rows, schema)
    column_stats = stats.compute(rows, recipe.stats_columns)
    encoded = encode_segment(rows, recipe.schema)
    add = make_add(
        recipe,
        t.clock,
        chunk,
        encoded,
        rows=rows.num_rows,
        column_stats=column_stats,
        place=place,
    )
    put_segment(t.store, t.clock, add, encoded.body)
    return add


def merging_of(
    t: Table,
    chunk: str,
    buckets: tuple[int, int],
    versions: tuple[int, int],
    *,
    each: bool = False,
    forget: int = -1,
) -> tuple[Merge, list[Add]]:
    """Merge a run of slices, and return what says so and what is added.

    Args:
        t: the table, at the version at which the merge is planned.
        chunk: the chunk.
        buckets: the first and the last bucket.
        versions: the first and the last version.
        each: whether each bucket gets a segment of its own.
        forget: leave deletes of versions up to this one out of what is kept beside a base.
    """
    rule = rule_of(t)
    (first, last), (low, high) = buckets, versions
    here = [
        run
        for run in slices.runs((s for s in live(t) if s.chunk == chunk), rule.splits)
        if run.first <= last and first <= run.last
    ]
    bottom = all(placement.span(s)[1] >= low for run in here for s in run.segments)
    found: dict[str, tuple[Segment, set[int]]] = {}
    for run in here:
        for segment in run.segments:
            if low <= placement.span(segment)[0] and placement.span(segment)[1] <= high:
                own = set(range(max(first, run.first), min(last, run.last) + 1))
                found.setdefault(segment.id, (segment, set()))[1].update(own)
    inputs = sorted((segment for segment, _ in found.values()), key=placement.applied)
    read = {s.id: stored_rows(t, s, found[s.id][1]) for s in inputs}
    kinds = {s.id: placement.slice_of(s).kind for s in inputs}
    late = [read[s.id] for s in inputs if kinds[s.id] == "late"]
    told = key_lookup.distinct(pa.concat_tables(late), rule.key) if late else None
    parts = []
    for segment in inputs:
        rows = read[segment.id]
        if kinds[segment.id] == "base" and told is not None:
            rows = rows.filter(pc.invert(key_lookup.among(rows, told, rule.key)))
        parts.append(rows)
    kept = row_merging.condensed(pa.concat_tables(parts), rule, bottom=bottom)
    level = 1 + max(placement.slice_of(s).level for s in inputs)
    out: list[tuple[str, pa.Table]] = [("log", kept)]
    if bottom:
        beside = row_merging.residue(kept, rule)
        gone = pc.fill_null(pc.less_equal(beside.column(VERSION), forget), False)
        out = [("base", row_merging.visible(kept, rule)), ("late", beside.filter(pc.invert(gone)))]
    adds = []
    for kind, rows in out:
        groups = [(b, b) for b in range(first, last + 1)] if each else [(first, last)]
        for begin, end in groups:
            own = buckets_of(rows, rule.key, rule.buckets, rule.splits)
            some = rows.filter(pc.and_(pc.greater_equal(own, begin), pc.less_equal(own, end)))
            if some.num_rows or kind != "late":
                place = Slice(kind, begin, end, low, high, level, None, rule.splits or UNSET)
                adds.append(store(t, some, chunk, place))
    rows_in = sum(read[s.id].num_rows for s in inputs if kinds[s.id] != "late")
    rows_out = sum(add.rows for add in adds if add.slice.kind != "late")
    named = tuple(sorted(s.id for s in inputs))
    merge = Merge(
        t.session.head().version, chunk, first, last, low, high, named, rows_in, rows_in - rows_out,
        rule.splits or UNSET,
    )  # fmt: skip
    return merge, adds


def merged(t: Table, *args: object, **options: object) -> int:
    """Commit the merge of a run, with drops of what counts nowhere after it."""
    merge, adds = merging_of(t, *args, **options)
    after = [s for s in live(t) if s.chunk == merge.chunk]
    known = {s.id for s in after}
    version = t.session.head().version + 1
    after += [fold.segment_of(add, version, n) for n, add in enumerate(adds)]
    counting = {s.id for run in slices.runs(after, rule_of(t).splits) for s in run.segments}
    drops = [drop_of(s) for s in after if s.id in known - counting]
    read = t.session.head().version
    return t.commit(t.transaction("compact", [merge, *drops, *adds], read_version=read))


def table_of(rows: Sequence[dict[str, object]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table, with `_op` if one of them has it."""
    deletes = any(OP in row for row in rows)
    return pa.Table.from_pylist(
        list(rows), schema=schema.append(pa.field(OP, pa.string())) if deletes else schema
    )


def items(ids: Sequence[int], hour: int, word: str, **more: object) -> pa.Table:
    """Rows of `keyed`: some ids, at an hour."""
    at = START + dt.timedelta(hours=hour)
    return table_of(
        [
            {"id": n, "at": at, "name": f"{word} {n}" if n % 5 else None, "price": Decimal(n) / 4}
            | more
            for n in ids
        ],
        KEYED,
    )


def voids(t: Table) -> list[Transaction]:
    """Return transactions that may not change slices, or the key; and one that takes effect."""
    head = t.session.head()
    version, schema = head.version + 1, head.stored_schema
    here = [s for s in live(t) if placement.slice_of(s).kind == "log"]
    base = next(s for s in live(t) if placement.slice_of(s).kind == "base")
    low, high = min(s.version for s in here), max(s.version for s in here)
    plain = Slice("log", 0, 3, None, None, 0)
    fresh = lambda place=plain, **f: make_whole._add(t, **{"chunk": "all", "slice": place} | f)
    named = tuple(sorted(s.id for s in here))
    total = sum(s.rows for s in here)
    change = msgspec.structs.replace
    good = Merge(head.version, "all", 0, 3, low, high, named, total, total - 1)
    out = fresh(Slice("log", 0, 3, low, high, 1))
    column = change(schema.columns[-1], id=added_id(TOP, OP, ()), name=OP)
    reserved = change(schema, id=schema.id + 1, columns=(*schema.columns, column))
    loose = change(
        schema,
        id=schema.id + 1,
        columns=tuple(change(c, nullable=True) for c in schema.columns),
    )
    one = lambda **f: change(good, **f)
    across = one(low=placement.span(base)[1], inputs=tuple(sorted(s.id for s in live(t))))
    bare = change(fresh(), slice=UNSET)
    cases: list[tuple[str, list[Action]]] = [
        ("F4", [SetSchema(reserved)]),
        ("F4", [SetSchema(loose)]),
        ("R14.4", [SetGranularity("all", "day")]),
        # R15.10: what is added.
        ("F11", [bare]),
        ("F11", [fresh(Slice("log", 2, 1, None, None, 0))]),
        ("F11", [fresh(Slice("log", 0, 4, None, None, 0))]),
        ("F11", [fresh(Slice("log", 0, 3, version, version - 1, 0))]),
        ("F11", [fresh(Slice("log", 0, 3, version, version + 1, 0))]),
        ("F11", [fresh(Slice("log", 0, 3, 1, 1, 0))]),
        ("F11", [fresh(Slice("base", 0, 3, None, None, 0))]),
        ("F11", [fresh(Slice("late", 0, 3, None, None, 0))]),
        ("F11", [fresh(Slice("log", 0, 3, None, None, 1))]),
        ("F11", [Replace(head.version, 0), drop_of(base), fresh(rows=base.rows)]),
        ("F11", [drop_of(base), fresh()]),  # a part of what its chunk had
        # R15.11: merges.
        ("F11", [one(version=version), out]),
        ("F11", [one(low=high, high=low), out]),
        ("F11", [one(version=high - 1), out]),
        ("F11", [one(first=3, last=0), out]),
        ("F11", [good, one(first=3), out]),
        ("F11", [one(inputs=named[::-1]), out]),
        ("F11", [one(inputs=(named[0], *named)), out]),
        ("F11", [one(inputs=()), out]),
        ("F11", [one(inputs=named[1:]), out]),
        ("F11", [one(inputs=tuple(sorted((*named, base.id)))), out]),
        ("F11", [across, fresh(Slice("base", 0, 3, across.low, high, 9))]),
        ("F11", [good, fresh(Slice("log", 0, 3, low, high, 2))]),
        ("F11", [good, fresh(Slice("log", 0, 3, low, high, 0))]),
        ("F11", [good, fresh(Slice("base", 0, 3, low, high, 1))]),
        ("F11", [good, fresh(Slice("log", 0, 2, low, high, 1))]),
        ("F11", [good, out, fresh()]),
        ("F11", [one(superseded=total), out]),
        ("F11", [one(rows=total + 1, superseded=total), out]),
        ("F11", [one(rows=total - 1, superseded=total - 2), out]),
        ("F11", [good, out, drop_of(base)]),
        ("F11", [good]),
    ]
    accepted = t.transaction("upsert", stage(t, items([40, 41], 90, "beside")))
    return [*(void(t, rule, actions) for rule, actions in cases), accepted]


def stage(t: Table, data: pa.Table) -> tuple[Add, ...]:
    """Store rows as log segments at the head that the handle knows."""
    return make_whole.staged(t, data)


def make_keyed(clock: ManualClock) -> None:
    """The greatest event time wins: deletes of both kinds, merges, what is void."""
    properties = {"keyframe_commits": "5", "bucket_bytes": "1024", "tombstone_hours": "24"}
    options = {"key": "id", "buckets": 4, "order_by": "at", "properties": properties}
    t = make.open_at("keyed", KEYED, clock, **options)
    upsert(t, items(range(8), 10, "first"), app_id="loader", app_seq=1)
    deletes = table_of(
        [
            {"id": 1, "at": START + dt.timedelta(hours=20), OP: "d"},
            {"id": 2, "at": START + dt.timedelta(hours=5), OP: "d"},  # older than its row
            {"id": 3, "at": START + dt.timedelta(hours=20), "name": "second 3", OP: "u"},
            {"id": 4, "at": START + dt.timedelta(hours=10), "name": "same hour", OP: None},
        ],
        KEYED,
    )
    upsert(t, deletes)
    delete(t, keys=pa.table({"id": pa.array([5, 6, 99])}))  # barriers
    clock.advance(1000)
    with patch("eventlog.log.spills.SPILL_BYTES", 900):
        upsert(t, items(range(4, 40), 8, "many"))  # a segment a bucket
    merged(t, "all", (0, 3), (1, 4), each=True)
    upsert(t, items([1, 2, 5], 15, "late"))  # 1 stays deleted
    upsert(t, items([5, 5, 7, 8, 50], 16, "next"))
    delete(t, where="name = 'many 9'")
    merged(t, "all", (0, 1), (6, 8))  # logs become a log; buckets 2 and 3 still need them
    merged(t, "all", (0, 0), (1, 8))
    merged(t, "all", (1, 3), (1, 8))  # now they can go
    upsert(t, items([1, 2, 3], 30, "third"))
    upsert(t, table_of([{"id": 10, "at": START + dt.timedelta(hours=60), OP: "d"}], KEYED))
    put(t, voids(t))
    several = [
        t.transaction("upsert", stage(t, items([10, 11, 12], 50, "one"))),
        t.transaction("upsert", stage(t, items([11, 12, 13], 50, "two"))),
    ]
    put(t, several)
    t.add_columns(t.session.head().schema.append(pa.field("added", pa.string())))
    wide = items([12, 14], 55, "wide").append_column("added", pa.array(["x", None]))
    upsert(t, wide)
    merged(t, "all", (0, 3), (1, t.session.head().version))
    upsert(t, items([10], 59, "older than its delete"), missing="null")
    clock.advance(30 * HOUR_MS)
    # The delete is 30 hours old, and forgotten.
    merged(t, "all", (0, 3), (1, t.session.head().version), forget=t.session.head().version - 1)
    upsert(t, items([10], 58, "later than the hours of deletes"), missing="null")
    gone = [drop_of(s) for s in live(t)]
    whole = items([70, 71], 1, "new").append_column("added", pa.nulls(2, pa.string()))
    t.commit(t.transaction("overwrite", [*gone, *stage(t, whole)]))
    upsert(t, items([71, 72], 0, "old"), missing="null")
    t.restore(t.session.head().version - 3)
    upsert(t, items([72], 61, "after the restore"), missing="null")
    t.write_keyframe()


def make_joined(clock: ManualClock) -> None:
    """Partial rows of two sources, each with its own order, in chunks of a month."""
    rng = random.Random(12)
    properties = {
        "keyframe_commits": "6",
        "stats_columns": "at",
        "merge": "partial",
        "merge.group.seen": "birds",
        "merge.group.measured": "celsius",
    }
    options = {"key": ["place", "day"], "buckets": 8, "granularity": "month"}
    t = make.open_at("joined", JOINED, clock, properties=properties, **options)

    def rows(count: int, *, deletes: bool) -> pa.Table:
        made: list[dict[str, object]] = []
        for _ in range(count):
            day = dt.date(2013, 1, 30) + dt.timedelta(rng.randrange(4))
            row = {"place": rng.choice(["Oslo", "größe", ""]), "day": day}
            row["at"] = dt.datetime(day.year, day.month, day.day)
            if deletes and rng.random() < 0.3:
                made.append(row | {OP: "d"})
                continue
            if rng.random() < 0.6:
                row |= {"seen": rng.choice([None, 1, 2, 3]), "birds": rng.choice([None, 7, 8, 9])}
            if rng.random() < 0.6:
                measured = START + dt.timedelta(hours=rng.randrange(4))
                row |= {"measured": measured, "celsius": rng.choice([None, -1.5, 4.0])}
            made.append(row | {"note": rng.choice([None, "a", "b"])})
        return table_of(made, JOINED)

    for step in range(10):
        upsert(t, rows(7, deletes=step % 3 == 1))
        clock.advance(50)
        for chunk in ("2013-01", "2013-02"):
            spans = sorted({placement.span(s) for s in live(t) if s.chunk == chunk})
            if step in (3, 8) and spans:  # all of it
                merged(t, chunk, (0, 7), (spans[0][0], spans[-1][1]))
            if step == 6 and len(spans) > 2:  # what lies above
                merged(t, chunk, (0, 3), (spans[1][0], spans[-1][1]))
    schema = t.session.head().stored_schema
    hashed = [
        msgspec.structs.replace(c, type="timestamp_ntz") if c.name == "day" else c
        for c in schema.columns
    ]
    put(t, [void(t, "F4", [SetSchema(successor(schema, hashed))])])


def make_rolled(clock: ManualClock) -> None:
    """Sums, bounds, counts, first and last values of rows that are never kept themselves."""
    rng = random.Random(13)
    functions = {
        "n": "count",
        "total": "sum",
        "units": "sum",
        "low": "min",
        "high": "max",
        "word": "max",
        "begun": "first",
        "ended": "last",
        "seen": "max",
    }
    settings = {"keyframe_commits": "6", "stats_columns": "at", "merge": "aggregate"}
    properties = settings | {f"merge.{name}": function for name, function in functions.items()}
    options = {"key": ["kind", "price"], "buckets": 3, "order_by": "seen"}
    t = make.open_at("rolled", ROLLED, clock, properties=properties, **options)
    nan = float("nan")

    def rows(count: int) -> pa.Table:
        return table_of(
            [
                {
                    "kind": rng.choice([b"", b"\x00\xff"]),
                    "price": rng.choice([Decimal("1.50"), Decimal("-0.01")]),
                    "at": START + dt.timedelta(hours=rng.randrange(9)),
                    "seen": rng.randrange(6),
                    "n": rng.choice([None, None, 5]),
                    "total": rng.choice([None, 1, -(2**62), 2**61]),
                    "units": rng.choice([None, Decimal("0.125"), Decimal(7)]),
                    "low": rng.choice([None, nan, -0.0, 0.0, 1.5]),
                    "high": rng.choice([None, nan, nan, -0.0, -2.5]),
                    "word": rng.choice([None, "z", "ä", "\U0001f426", ""]),
                    "begun": rng.choice([None, "a", "b", "c"]),
                    "ended": rng.choice([None, "a", "b", "c"]),
                }
                for _ in range(count)
            ],
            ROLLED,
        )

    one = {"kind": b"\x01", "price": Decimal(0), "at": START, "seen": 1}
    upsert(t, table_of([one | {"low": nan, "high": -0.0}], ROLLED))
    for step in range(9):
        upsert(t, rows(6))
        spans = sorted({placement.span(s) for s in live(t)})
        if step in (3, 8):
            merged(t, "all", (0, 2), (spans[0][0], spans[-1][1]))
        if step == 6:
            merged(t, "all", (1, 2), (spans[1][0], spans[-1][1]))


def main() -> int:
    """Write the tables."""
    leaves = {"INLINE_SEGMENTS": 8, "LEAF_TARGET": 5, "LEAF_SMALL": 2, "LEAF_MAX": 20}
    with make.writing(*NAMES):
        with patch.multiple("eventlog.state.keyframe", **leaves):
            make_keyed(ManualClock(make.START_MS, seed=2018))
        make_joined(ManualClock(make.START_MS, seed=2019))
        make_rolled(ManualClock(make.START_MS, seed=2020))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
