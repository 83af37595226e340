"""Keyed tables for tests: rows and rules at random, predicates, and a merge of slices by hand.

The merge is the simplest that the format allows: it reads whole segments and writes one base (or
log) and at most one `late` segment for its buckets. What a real compaction does differs in cost
only, so it stands for any.
"""

import random
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET
from support.keyed_book import model_of

from eventlog import Table
from eventlog.format.buckets import buckets_of
from eventlog.format.frames import entry_columns
from eventlog.inline.inline_objects import get_object
from eventlog.keyed import key_lookup, log_rows, placement, row_merging, slices
from eventlog.keyed.rule import OP, VERSION
from eventlog.model import stats
from eventlog.model.actions import Merge
from eventlog.model.entries import Slice
from eventlog.staging import upsert_rows
from eventlog.staging.encoding import Recipe, encode_segment, make_add, put_segment
from eventlog.state.delta import drop_of

__all__ = ["model_of"]

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("o", pa.int32()),
        ("g", pa.int32()),
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.int32()),
    ]
)
WITH_OP = SCHEMA.append(pa.field(OP, pa.string()))
DAY = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = ("last", "first", "partial", "groups", "aggregate")
FUNCTIONS = {"o": "last", "g": "max", "a": "sum", "b": "first", "c": "min", "at": "last"}


def row_of(chance, *, keys_of=6, days=1, free_time=True):
    """A row: few keys and values, so that they meet. The day of a key is always the same."""
    k, s = chance.randrange(keys_of), chance.choice("xy")
    day = DAY + timedelta(days=(k * 2 + (s == "y")) % days)
    at = day + timedelta(hours=chance.randrange(20) if free_time else k % 20)
    return {
        "k": k,
        "s": s,
        "at": at,
        "o": chance.randrange(5),
        "g": chance.choice([None, 0, 1, 2, 3]),
        "a": chance.choice([None, 1, 2, 3, 7]),
        "b": chance.choice([None, "", "p", "q", "r"]),
        "c": chance.choice([None, 5, 6]),
    }


def properties_of(kind, key):
    """The properties of a table with a merge rule of `KINDS`."""
    if kind == "groups":
        return {"merge": "partial", "merge.group.g": "a, b"}
    if kind == "aggregate":
        named = {f"merge.{n}": f for n, f in FUNCTIONS.items() if n not in key}
        return {"merge": "aggregate", **named}
    return {"merge": kind}


def rule_at(snapshot):
    """The merge rule of a keyed table."""
    rule = snapshot.merge_rule
    assert rule is not None
    return rule


def ordered(rows):
    """Rows in an order that depends on their values alone."""
    return sorted(rows, key=lambda row: [(v is None, str(v)) for v in row.values()])


def runs_of(snapshot):
    """The runs of slices of a version."""
    return slices.runs(entry_columns.to_segments(snapshot.entries()), rule_at(snapshot).splits)


def merged(  # noqa: PLR0917 - the run
    table: Table,
    snapshot,
    chunk: str,
    first: int,
    last: int,
    low: int,
    high: int,
    *,
    wide=True,
    spoil=lambda rows, kind: rows,
):
    """The transaction that merges a run of slices of a version; None if nothing lies in it.

    Args:
        table: the table.
        snapshot: the version that it is planned at.
        chunk: the time chunk.
        first: the first bucket.
        last: the last bucket.
        low: the first version.
        high: the last version.
        wide: one segment for all buckets, else one each.
        spoil: what a wrong program would write in place of the rows of a kind.
    """
    rule = rule_at(snapshot)
    live = [s for s in entry_columns.to_segments(snapshot.entries()) if s.chunk == chunk]
    here = [r for r in slices.runs(live, rule.splits) if r.first <= last and first <= r.last]
    counting = {s.id: s for run in here for s in run.segments}.values()
    inputs = [s for s in counting if low <= placement.span(s)[0] and placement.span(s)[1] <= high]
    if not inputs:
        return None
    bottom = all(placement.span(s)[1] >= low for s in counting)
    if not bottom and any(placement.slice_of(s).kind == "base" for s in inputs):
        return None  # its late rows would become rows that count
    level = 1 + max(placement.slice_of(s).level for s in inputs)
    read = {s.id: _rows_of(table, s, snapshot, here, rule, (first, last)) for s in inputs}
    before = sum(read[s.id].num_rows for s in inputs if placement.slice_of(s).kind != "late")
    rows = _below_late(inputs, read, rule)
    kept = row_merging.condensed(rows, rule, bottom=bottom)
    recipe = Recipe.of(snapshot)
    outputs = [(kept, "log")]
    if bottom:
        late = row_merging.residue(kept, rule)
        outputs = [(row_merging.visible(kept, rule), "base"), (late, "late")]
    adds = []
    for part, kind in outputs:
        part, buckets = log_rows.in_key_order(part, rule)  # noqa: PLW2901
        for f, e in [(first, last)] if wide else [(b, b) for b in range(first, last + 1)]:
            mask = pc.and_(pc.greater_equal(buckets, f), pc.less_equal(buckets, e))
            mine = spoil(part.filter(mask), kind)
            if kind != "late" or mine.num_rows:
                place = Slice(kind, f, e, low, high, level, None, rule.splits or UNSET)
                adds.append(stored(table, recipe, snapshot, chunk, mine, place))
    after = sum(a.rows for a in adds if a.slice.kind != "late")
    names = tuple(sorted(s.id for s in inputs))
    merge = Merge(
        snapshot.version, chunk, first, last, low, high, names, before, before - after,
        rule.splits or UNSET,
    )  # fmt: skip
    gone = _spent(live, adds, rule.splits)
    actions = [merge, *map(drop_of, gone), *adds]
    return table.transaction("compact", actions, read_version=snapshot.version)


def _rows_of(table, segment, snapshot, here, rule, bounds):  # noqa: PLR0917 - one segment
    """The rows of a segment that count between two buckets, with `_op` and `_version`."""
    rows = pq.read_table(BytesIO(get_object(table.store, segment)))
    version = pa.repeat(pa.scalar(segment.version, pa.int64()), rows.num_rows)
    if VERSION not in rows.column_names:
        rows = rows.append_column(VERSION, version)
    if OP not in rows.column_names:
        rows = rows.append_column(OP, pa.repeat(pa.scalar("u"), rows.num_rows))
    fields = [f.with_nullable(True) for f in snapshot.schema]
    schema = pa.schema([*fields, pa.field(OP, pa.string()), pa.field(VERSION, pa.int64())])
    for field in schema:
        if field.name not in rows.column_names:  # added since
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    rows = rows.select(schema.names).cast(schema)
    mine = {
        b
        for run in here
        if segment in run.segments
        for b in range(max(run.first, bounds[0]), min(run.last, bounds[1]) + 1)
    }
    buckets = buckets_of(rows, rule.key, rule.buckets, rule.splits)
    return rows.filter(pc.is_in(buckets, value_set=pa.array(sorted(mine), pa.int32())))


def _below_late(inputs, read, rule):
    """All rows in commit order; a base's row does not count where a late one has its key."""
    parts = {"base": [], "late": [], "log": []}
    for segment in sorted(inputs, key=placement.applied):
        parts[placement.slice_of(segment).kind].append(read[segment.id])
    empty = next(iter(read.values())).slice(0, 0)
    base, late, logs = (pa.concat_tables([empty, *parts[k]]) for k in ("base", "late", "log"))
    known = key_lookup.among(base, key_lookup.distinct(late, rule.key), rule.key)
    return pa.concat_tables([base.filter(pc.invert(known)), late, logs]).combine_chunks()


def stored(table, recipe, snapshot, chunk, rows, place):  # noqa: PLR0917 - one segment
    """Store a segment with these rows, as they are; return its add."""
    if place.kind == "base":
        rows = rows.select(snapshot.schema.names).cast(snapshot.schema)
    else:
        rows = upsert_rows.stored(rows, snapshot.schema)
    encoded = encode_segment(rows, recipe.schema)
    add = make_add(
        recipe,
        table.clock,
        chunk,
        encoded,
        rows=rows.num_rows,
        column_stats=stats.compute(rows, recipe.stats_columns),
        place=place,
    )
    put_segment(table.store, table.clock, add, encoded.body)
    return add


def _spent(live, adds, splits):
    """The live segments that count in no slice once these are added."""
    version = 1 + max(s.version for s in live)
    after = [*live, *(_as_entry(a, version, n) for n, a in enumerate(adds))]
    counting = {s.id for run in slices.runs(after, splits) for s in run.segments}
    return [s for s in live if s.id not in counting]


def _as_entry(add, version, partition):
    from eventlog.state.fold import segment_of  # noqa: PLC0415

    return segment_of(add, version, partition)


# ------------------------------------------------------------------------------------ predicates


def predicate(chance: random.Random, depth=2):
    """A predicate: SQL text, and a function from a row to True, False or None (NULL)."""
    if depth and chance.random() < 0.5:
        left, right = predicate(chance, depth - 1), predicate(chance, depth - 1)
        kind = chance.choice(["AND", "OR", "NOT"])
        if kind == "NOT":
            return f"NOT ({left[0]})", lambda row: _not(left[1](row))
        join = _and if kind == "AND" else _or
        return f"({left[0]}) {kind} ({right[0]})", lambda row: join(left[1](row), right[1](row))
    name = chance.choice(["k", "k", "s", "o", "g", "a", "b", "c", "at"])
    values = {
        "k": range(-1, 8), "s": "xyz", "o": range(-1, 6), "g": range(5), "a": range(9),
        "b": ["", "p", "q", "z"], "c": [4, 5, 6],
        "at": [DAY + timedelta(hours=6 * n) for n in range(14)],
    }[name]  # fmt: skip
    match chance.choice(["in", "null", "compare", "compare", "="]):
        case "in":
            some = chance.sample(list(values), min(len(values), chance.randrange(1, 4)))
            null = chance.random() < 0.2
            listed = ", ".join([*map(_literal, some), *(["NULL"] if null else [])])
            if chance.random() < 0.3:
                return f"{name} NOT IN ({listed})", lambda r: _not(_in(r[name], some, null))
            return f"{name} IN ({listed})", lambda row: _in(row[name], some, null)
        case "null":
            return f"{name} IS NULL", lambda row: row[name] is None
        case "=":
            value = chance.choice(list(values))
            return f"{name} = {_literal(value)}", lambda r: _compare("=", r[name], value)
        case _:
            op, value = chance.choice(["<", "<=", ">", ">=", "<>"]), chance.choice(list(values))
            return f"{name} {op} {_literal(value)}", lambda r: _compare(op, r[name], value)


def _literal(value):
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat()}'"
    return repr(value)


def _in(value, some, null):
    if value is None:
        return None
    return True if value in some else (None if null else False)


def _compare(op, value, other):
    if value is None:
        return None
    return {
        "=": value == other, "<>": value != other, "<": value < other,
        "<=": value <= other, ">": value > other, ">=": value >= other,
    }[op]  # fmt: skip


def _not(value):
    return None if value is None else not value


def _and(a, b):
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _or(a, b):
    if a is True or b is True:
        return True
    return None if a is None or b is None else False
