"""`delete` of the rows that a predicate selects, in a table without a key."""

from __future__ import annotations

from typing import Literal

from eventlog import Snapshot, Table
from eventlog.arguments import choice
from eventlog.model.records import App
from eventlog.query.predicate import Where, parse_predicate
from eventlog.writers.changing.finding import find_rows
from eventlog.writers.changing.landing import Change, Request, land

Isolation = Literal["snapshot", "serializable"]
ISOLATIONS = ("snapshot", "serializable")


def delete_where(
    t: Table,
    where: Where,
    *,
    isolation: Isolation,
    app: App | None,
    memory_bytes: int,
    dry_run: bool,
) -> Change:
    """Delete the rows that a predicate selects in the newest version.

    See `eventlog.writers.delete` for the arguments and the errors.
    """
    start = t.head()
    request = request_of(start, "delete", where, isolation, app, memory_bytes)
    if dry_run:
        return would_delete(t, start, request)
    return land(t, request, start, lambda _: ((), None))


def request_of(  # noqa: PLR0917 - what the verbs have in common
    start: Snapshot,
    operation: str,
    where: Where,
    isolation: str,
    app: App | None,
    memory_bytes: int,
) -> Request:
    """Return the request of a change of the rows that a predicate selects.

    Raises:
        InvalidInput: the predicate or the isolation is wrong.
    """
    choice(isolation, "isolation", ISOLATIONS)
    predicate = parse_predicate(where, start.stored_schema)
    span = predicate.interval(start.layout.time_column)
    return Request(operation, where, span, isolation == "serializable", app, memory_bytes)


def would_delete(t: Table, start: Snapshot, request: Request) -> Change:
    """Return what a request would delete, committing nothing; `bytes` is 0."""
    found = find_rows(t, start, request.where, lambda _: True, {}, request.memory_bytes)
    whole = sum(one.positions is None for one in found.selected)
    return Change(
        start.version,
        deleted=found.rows,
        dropped=whole,
        changed=len(found.selected) - whole,
    )
