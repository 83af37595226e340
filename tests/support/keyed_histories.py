"""Keyed tables with a history, and what must not change however they are compacted."""

import random

import pyarrow as pa
from support.keyed_tables import SCHEMA, WITH_OP, model_of, ordered, properties_of, row_of, rule_at

from eventlog import Table
from eventlog.format.frames import entry_columns
from eventlog.keyed import placement
from eventlog.readers import scan
from eventlog.writers import upsert


def written(uri, kind, *, upserts=5, rows=8):
    """A table under a merge rule of `KINDS`, and its answer at each version: the model's."""
    key = ["k", "s"]
    table = Table.create(
        uri,
        SCHEMA,
        time_column="at",
        key=key,
        buckets=4,
        order_by="o" if kind in ("last", "partial") else None,
        properties=properties_of(kind, key),
    )
    chance, given, answers = random.Random(kind), [], [[]]
    for _ in range(upserts):
        deletes = "u" if kind == "aggregate" else chance.choice("uud")
        fresh = [row_of(chance) | {"_op": chance.choice(["u", deletes])} for _ in range(rows)]
        upsert(table, pa.Table.from_pylist(fresh, schema=WITH_OP))
        given += fresh
        answers.append(ordered(model_of(given, rule_at(table.session.head())).values()))
    return table, answers


def check_answers(table, answers):
    """Every version has its answer, and all later ones the last of them."""
    for version in range(table.refresh().version + 1):
        found = scan(table, version=version).to_table().to_pylist()
        assert ordered(found) == answers[min(version, len(answers) - 1)], version


def shapes(table):
    """What each live segment is, without what is drawn: its place, its rows and their versions."""
    return sorted(
        (s.chunk, place.kind, place.first, place.last, *placement.span(s), s.rows)
        for s in entry_columns.to_segments(table.refresh().entries())
        for place in [placement.slice_of(s)]
    )
