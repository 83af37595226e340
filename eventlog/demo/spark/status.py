"""The demo's third part: two jobs upsert the status of flights, each its own columns of a row.

Needs the extra `demo`. One job has the messages of departures, the other one those of arrivals.
Neither knows of the other, and messages come in any order: of each flight the last one of each job
counts, by its number. Compaction runs beside them. The final rows are compared with the flights
themselves, which the jobs' messages were made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Table
from eventlog.compaction import run
from eventlog.demo import flights
from eventlog.demo.spark import spark_jobs
from eventlog.readers import changes, scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAYS = timedelta(days=3)  # before and after the storm
BATCHES = 4
_STRIDE = 7919  # a prime, which no number of messages is a multiple of
_TEXT, _INT = pa.string(), pa.int32()
_KEYS = [flights.SCHEMA.field(name) for name in flights.KEY]
SCHEMA = pa.schema(
    [
        *_KEYS,
        ("departure", _TEXT),  # scheduled, departed or cancelled
        ("dep_delay", _INT),
        ("dep_message", _INT),  # the number of the message with this delay
        ("arrival", _TEXT),  # expected, landed or diverted
        ("arr_delay", _INT),
        ("arr_message", _INT),
    ]
)
_PROPERTIES = {
    "merge": "partial",
    "merge.group.dep_message": "departure, dep_delay",
    "merge.group.arr_message": "arrival, arr_delay",
}
_STATES = ("departed", "cancelled", "landed")


@dataclass(slots=True)
class Status:
    """The result of the upserts.

    Attributes:
        flights: number of flights.
        messages: number of messages that were upserted.
        upserts: number of upserts that were committed.
        failed_upserts: number of jobs that failed.
        compactions: number of merges that were committed.
        conflicts: number of merges that were not, for any reason.
        exact: whether each flight has the last message of both jobs.
        replayed: whether the changes since a version lead from its rows to those of the newest one.
        versions: the number of flights by state, at several versions.
        kinds: the number of changes of each kind since the first of these versions.
        story: what happened to one flight: version, change, departure, delay, arrival, delay.
    """

    flights: int = 0
    messages: int = 0
    upserts: int = 0
    failed_upserts: int = 0
    compactions: int = 0
    conflicts: int = 0
    exact: bool = False
    replayed: bool = False
    versions: dict[int, dict[str, int]] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    story: list[tuple[object, ...]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the rows are right, and neither side had a conflict."""
        return self.exact and self.replayed and not (self.conflicts or self.failed_upserts)


def create_status_table(uri: str) -> Table:
    """Create the table of the status, one row a flight.

    Raises:
        AlreadyExists: there is already a table.
    """
    return Table.create(
        uri, SCHEMA, time_column=flights.TIME_COLUMN, key=flights.KEY, properties=_PROPERTIES
    )


def upsert_beside(
    spark: SparkSession, t: Table, source: pa.Table, done: Callable[[], None]
) -> Status:
    """Upsert the messages of both jobs, compact meanwhile, and look at what came of it.

    Args:
        spark: the session of the jobs.
        t: the table that `create_status_table` made.
        source: flights; those of some days around the storm are taken.
        done: called when a batch was upserted, of 2 times `BATCHES`.
    """
    taken = _around(source)
    feeds = [_mixed(_departures(taken)), _mixed(_arrivals(taken))]
    status = Status(len(taken), sum(len(batch) for feed in feeds for batch in feed))
    options = {"merge": "partial"}
    running = spark_jobs.append_late(spark, feeds, t.uri, done=done, options=options)
    while not all(job.done() for job in running):
        _compact(t, status)
    for job in running:
        if job.exception() is None:
            status.upserts += job.result()
        else:
            status.failed_upserts += 1
    _compact(t, status)
    stored = scan(t).to_table().sort_by(_order())
    status.exact = stored.equals(_expected(taken).sort_by(_order()))
    _look_back(t, status, taken)
    return status


def _compact(t: Table, status: Status) -> None:
    outcomes = run(t).outcomes
    status.compactions += sum(outcome.status == "done" for outcome in outcomes)
    status.conflicts += sum(outcome.status != "done" for outcome in outcomes)


def _look_back(t: Table, status: Status, taken: pa.Table) -> None:
    """Look at several versions, and at what changed since the first of them."""
    written = [e.version for e in t.history() if e.operation in ("append", "upsert")]
    written.sort()
    seen = dict.fromkeys([written[0], written[len(written) // 2], t.session.head().version])
    for version in seen:
        rows = scan(t, version=version).to_table()
        counts = Counter(rows.column("departure").to_pylist())
        counts += Counter(rows.column("arrival").to_pylist())
        status.versions[version] = {"flights": len(rows), **{s: counts[s] for s in _STATES}}
    first = written[0]
    found = changes(t, first).to_table()
    status.kinds = dict(Counter(found.column("_change").to_pylist()))
    status.replayed = _replayed(scan(t, version=first).to_table(), found).equals(
        scan(t).to_table().sort_by(_order())
    )
    changed = changes(t, 0).to_table()
    status.story = _story(changed, taken)


def _replayed(rows: pa.Table, found: pa.Table) -> pa.Table:
    """Return rows with changes applied to them."""
    names = [f.name for f in _KEYS]
    state = {tuple(row[n] for n in names): row for row in rows.to_pylist()}
    changes_ = found.sort_by([("_version", "ascending")]).to_pylist()
    for change in changes_:
        if change["_change"] == "delete":
            del state[tuple(change[n] for n in names)]
        elif change["_change"] != "update_before":
            state[tuple(change[n] for n in names)] = {n: change[n] for n in SCHEMA.names}
    return pa.Table.from_pylist(list(state.values()), schema=rows.schema).sort_by(_order())


def _story(changed: pa.Table, taken: pa.Table) -> list[tuple[object, ...]]:
    """Return the changes of the flight with the most of them, in order."""
    names = [f.name for f in _KEYS]
    counted = changed.group_by(names).aggregate([([], "count_all")])
    order = [("count_all", "descending"), *((name, "ascending") for name in names)]
    one = counted.sort_by(order).slice(0, 1).to_pylist()[0]
    mine = [
        row
        for row in changed.sort_by([("_version", "ascending")]).to_pylist()
        if all(row[name] == one[name] for name in names) and row["_change"] != "update_before"
    ]
    (dest,) = (
        row["dest"] for row in taken.to_pylist() if all(row[name] == one[name] for name in names)
    )
    name = f"{one['carrier']} {one['flight']} {one['origin']}-{dest}"
    columns = ("_version", "_change", "departure", "dep_delay", "arrival", "arr_delay")
    return [(name, *(row[column] for column in columns)) for row in mine]


def _around(source: pa.Table) -> pa.Table:
    time = source.column(flights.TIME_COLUMN)
    first, last = (pa.scalar(flights.STORM + by) for by in (-_DAYS, _DAYS + timedelta(days=1)))
    first, last = (edge.cast(pa.timestamp("us")).cast(time.type) for edge in (first, last))
    return source.filter(pc.and_(pc.greater_equal(time, first), pc.less(time, last)))


def _departures(taken: pa.Table) -> pa.Table:
    cancelled = pc.is_null(taken.column("dep_time"))
    last = pc.if_else(cancelled, "cancelled", "departed")
    return _messages(taken, ("departure", "dep_delay", "dep_message"), "scheduled", last)


def _arrivals(taken: pa.Table) -> pa.Table:
    """Return the messages of arrivals; a cancelled flight has none but that it is expected."""
    flown = taken.filter(pc.is_valid(taken.column("dep_time")))
    diverted = pc.is_null(flown.column("arr_delay"))
    last = pc.if_else(diverted, "diverted", "landed")
    names = ("arrival", "arr_delay", "arr_message")
    first, second = _both(taken, flown, names, "expected", last)
    return pa.concat_tables([first, second])


def _messages(taken: pa.Table, names: tuple[str, str, str], first: str, last: pa.Array) -> pa.Table:
    return pa.concat_tables(_both(taken, taken, names, first, last))


def _both(
    every: pa.Table, some: pa.Table, names: tuple[str, str, str], first: str, last: pa.Array
) -> list[pa.Table]:
    """Return the first message of every flight, and the second one of some."""
    state, delay, number = names
    tables = []
    for place, rows in enumerate((every, some), 1):
        columns = {name: rows.column(name) for name in flights.KEY}
        columns[state] = pa.repeat(first, len(rows)) if place == 1 else last
        columns[delay] = pa.nulls(len(rows), _INT) if place == 1 else rows.column(delay)
        columns[number] = pa.repeat(pa.scalar(place, _INT), len(rows))
        tables.append(pa.table(columns))
    return tables


def _mixed(messages: pa.Table) -> list[pa.Table]:
    """Return the messages in batches, mixed: a flight's last may come before its first."""
    count = len(messages)
    places = [at * _STRIDE % count for at in range(count)]
    size = -(-count // BATCHES)
    return [messages.take(places[at : at + size]) for at in range(0, count, size)]


def _expected(taken: pa.Table) -> pa.Table:
    """Return what the rows must be, from the flights themselves."""
    flown = pc.is_valid(taken.column("dep_time"))
    landed = pc.is_valid(taken.column("arr_delay"))
    columns = {name: taken.column(name) for name in flights.KEY}
    columns["departure"] = pc.if_else(flown, "departed", "cancelled")
    columns["dep_delay"] = taken.column("dep_delay")
    columns["dep_message"] = pa.repeat(pa.scalar(2, _INT), len(taken))
    columns["arrival"] = pc.if_else(flown, pc.if_else(landed, "landed", "diverted"), "expected")
    columns["arr_delay"] = taken.column("arr_delay")
    columns["arr_message"] = pc.if_else(flown, pa.scalar(2, _INT), pa.scalar(1, _INT))
    return pa.table(columns).cast(SCHEMA)


def _order() -> Sequence[tuple[str, str]]:
    return [(name, "ascending") for name in flights.KEY]
