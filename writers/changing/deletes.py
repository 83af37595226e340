"""`delete` of the rows that a predicate selects, in a table without a key."""

from __future__ import annotations

from eventlog import Snapshot, Table
from eventlog.arguments import choice
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.model.records import App
from eventlog.query.predicate import Where, parse_predicate
from eventlog.writers.batch import skipped
from eventlog.writers.changing.finding import Search
from eventlog.writers.changing.landing import (
    ISOLATIONS,
    Isolation,
    Request,
    RowChange,
    arrivals_of,
    land,
    would_change,
)


def delete_where(
    t: Table,
    start: Snapshot,
    where: Where,
    *,
    isolation: Isolation,
    app: App | None,
    dry_run: bool,
    search: Search,
) -> RowChange:
    """Delete the rows that a predicate selects in the newest version.

    Args:
        t: the table.
        start: its newest version.
        where: the predicate.
        isolation: see `eventlog.writers.delete`.
        app: the idempotence key, if there is one.
        dry_run: see `eventlog.writers.delete`.
        search: finds the rows of the predicate.

    Raises: as `eventlog.writers.delete`.
    """
    if keyed_of(start.layout) is not None:
        raise InvalidInput("the table has a key: give the keys to delete")
    done = skipped(t, start, app)
    if done is not None:
        return RowChange(done)
    request = request_of(start, "delete", where, isolation, app, search.memory_bytes)
    if dry_run:
        return would_change(search.find(start))
    return land(t, request, start, search, lambda _: ((), None))


def request_of(  # noqa: PLR0917 - what the verbs have in common
    start: Snapshot,
    operation: str,
    where: Where | None,
    isolation: str,
    app: App | None,
    memory_bytes: int,
    span: tuple[int, int] = (MIN_MS, MAX_MS),
) -> Request:
    """Return the request of a change of the rows that a predicate selects, or else of a range.

    Raises:
        InvalidInput: the predicate or the isolation is wrong.
    """
    choice(isolation, "isolation", ISOLATIONS)
    time_column = start.layout.time_column
    if where is not None:
        predicate = parse_predicate(where, start.stored_schema)
        span = span if time_column is None else predicate.interval(time_column)
    return Request(operation, where, span, arrivals_of(isolation), app, memory_bytes)
