"""What Ctrl-C left behind: whether the rows are committed. Needs the extra `cli`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eventlog import Table
from eventlog.cli import terminal
from eventlog.display import command
from eventlog.errors import EventLogError


@contextmanager
def ctrl_c_explained(table: Table) -> Iterator[None]:
    """A context in which Ctrl-C says what was committed, and ends the program as before."""
    before, earlier = table.session.head().version, table.session.attempted
    try:
        yield
    except KeyboardInterrupt:
        attempted = table.session.attempted
        begun = attempted is not None and attempted is not earlier
        terminal.note(left_behind(table, attempted.id if begun and attempted else None, before))
        raise


def left_behind(table: Table, transaction: str | None, before: int) -> str:
    """Return what an interrupted write left behind, as a sentence.

    Args:
        table: the table.
        transaction: the id of the transaction whose commit had begun, if any had.
        before: the newest version before it.
    """
    if transaction is None:
        return (
            "interrupted before the commit: nothing was committed, and the input is as it was; "
            "what was uploaded goes with a later `eventlog vacuum`"
        )
    try:
        version = table.find_transaction(transaction, before + 1)
    except EventLogError:  # the store does not answer, or there is no later version yet
        version = None
    if version is not None:
        return f"interrupted after the commit: version {version} has all rows, do not repeat it"
    return (
        "interrupted while it was committed: no version has the rows yet, but a request that was "
        f"under way may still arrive. See {command('log', table.uri)} before you repeat it; with "
        "--app-id and --app-seq repeating is always safe"
    )
