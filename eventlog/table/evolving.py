"""Changes of a table's columns: each a commit of its own.

Two that were made at once both count, where they commute; else the later one is a conflict that
names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from eventlog.arguments import is_unicode, shown
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.keyed.rule import OP, keyed_of, roles_of, successor_problem
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import SetSchema
from eventlog.model.columns import edits
from eventlog.model.columns.edits import Path
from eventlog.model.columns.evolution import successor
from eventlog.model.columns.named_checks import checks_of, with_checks
from eventlog.model.columns.uniting import united_schema
from eventlog.model.entries import Schema
from eventlog.model.schema import stored_time_column, to_arrow
from eventlog.model.schema_text import given_schema
from eventlog.query.row_checks import RowChecks
from eventlog.session.session import Session

_TRIES = 20


def add_columns(
    session: Session,
    fields: pa.Schema | str | Mapping[str, str | pa.DataType] | Iterable[pa.Field],
    defaults: Mapping[str, Any] | None,
    within: Path,
) -> int:
    """See `Table.add_columns`."""
    listed = _fields(fields)
    return evolve(session, lambda schema: edits.add_fields(schema, listed, defaults, within))


def drop_columns(session: Session, names: Iterable[Path]) -> int:
    """See `Table.drop_columns`."""
    listed = _listed(names, "names")
    return evolve(session, lambda schema: edits.drop_fields(schema, listed))


def rename_column(session: Session, old: Path, new: str) -> int:
    """See `Table.rename_column`."""
    if not isinstance(new, str) or not is_unicode(new):
        raise InvalidInput(f"the new name must be text, not {shown(new)}")
    return evolve(session, lambda schema: edits.rename_field(schema, old, new))


def widen_column(session: Session, name: Path, wanted: pa.DataType) -> int:
    """See `Table.widen_column`."""
    if not isinstance(wanted, pa.DataType):
        raise InvalidInput(f"the type must be one of pyarrow's, not {shown(wanted)}")
    return evolve(session, lambda schema: edits.widen_field(schema, name, wanted))


def reorder_columns(session: Session, names: Iterable[str], within: Path) -> int:
    """See `Table.reorder_columns`."""
    listed = _texts(names)
    return evolve(session, lambda schema: edits.reorder_fields(schema, listed, within))


def relax_columns(session: Session, names: Iterable[str]) -> int:
    """See `Table.relax_columns`."""
    listed = _texts(names)
    return evolve(session, lambda schema: edits.relax_fields(schema, listed))


def drop_check(session: Session, name: str) -> int:
    """See `Table.drop_check`."""

    def without(schema: Schema) -> Schema:
        checks = checks_of(schema)
        if name not in [check.name for check in checks]:
            known = ", ".join(check.name for check in checks) or "none"
            raise InvalidInput(f"no check {shown(name)}; checks: {known}")
        left = [check for check in checks if check.name != name]
        return with_checks(successor(schema, schema.columns), left)

    return evolve(session, without)


def evolve_for(
    session: Session, incoming: Iterable[pa.Schema], check: Callable[[pa.Schema], None]
) -> int | None:
    """Give the table the columns and types that rows have besides its own, in one commit.

    In a keyed table `_op` is no column of these.

    Args:
        session: of the table.
        incoming: the columns of the rows, one schema for each part of them.
        check: called first with the schema that the table gets, so that no column is added for
            rows which it refuses.

    Returns:
        A version that has the columns; None if the table had them.

    Raises: as `evolve` and `check`.
    """
    head = session.head()
    if keyed_of(head.layout) is not None:  # against operation-that-becomes-a-column
        incoming = [
            pa.schema([f for f in rows if f.name != OP], rows.metadata) for rows in incoming
        ]
    given = tuple(incoming)
    wanted = edits.evolved_for(head.stored_schema, given)
    if wanted == head.stored_schema:
        return None
    check(to_arrow(wanted))  # against columns-of-refused-rows
    return evolve(session, lambda schema: edits.evolved_for(schema, given))


def evolve(session: Session, change: Callable[[Schema], Schema]) -> int:
    """Commit a change of the schema, and return the committed version.

    If the table has all of it, nothing is committed, and the newest version is returned.

    Args:
        session: of the table.
        change: returns the schema that follows one.

    Raises:
        CommitConflict: another writer changed the same columns; the message names both changes.
        InvalidInput: the change is not possible.
    """
    head = session.refresh()
    stored_time_column(head.stored_schema, head.layout)
    _ = head.merge_rule, to_arrow(head.stored_schema)  # they fit
    base = known = head.stored_schema
    ours = wanted = change(base)
    _check_kept(head, ours)
    if ours.columns != base.columns:
        RowChecks(ours, checks_of(ours))  # they can still be computed
    for _ in range(_TRIES):
        if wanted == known:
            return session.head().version
        if problem := successor_problem(head.meta.layout, wanted, known):
            raise InvalidInput(problem, table=session.uri)
        try:
            return session.commit(session.transaction("schema", [SetSchema(wanted)]))
        except CommitConflict:
            head = session.refresh()
            if head.stored_schema == known:
                raise
        known = head.stored_schema
        both = united_schema(base, ours, known)
        if isinstance(both, str):  # against one-of-two-changes-lost
            raise CommitConflict(
                f"the columns were changed meanwhile: {both}. Nothing was committed: read the "
                "table again and decide again",
                table=session.uri,
                version=head.version,
            )
        wanted = both
    raise CommitConflict(
        f"the columns were changed by others at each of {_TRIES} tries; nothing was committed",
        table=session.uri,
        version=head.version,
    )


def _check_kept(head: Snapshot, new: Schema) -> None:
    """Check that a schema keeps the columns by which the table arranges and merges rows."""
    kept, roles = {column.id for column in new.columns}, roles_of(head.state.stored_layout)
    for column in head.stored_schema.columns:
        if column.id in roles and column.id not in kept:
            raise InvalidInput(
                f"column {column.name!r} cannot be dropped: it is {roles[column.id]} of the table"
            )
    time = stored_time_column(head.stored_schema, head.layout)
    if time is None or time.nullable:
        return
    if any(column.id == time.id and column.nullable for column in new.columns):
        raise InvalidInput(
            f"column {time.name!r} cannot become null: it is the time column of the table"
        )


def _fields(given: Any) -> list[pa.Field]:
    """Return Arrow fields, of what makes a schema or of a list of fields or (name, type) pairs."""
    if isinstance(given, pa.Schema | str | Mapping):
        return [*given_schema(given)]
    try:
        return [*pa.schema(_listed(given, "fields"))]
    except (pa.ArrowException, TypeError, ValueError, AttributeError):
        raise InvalidInput(
            "fields must be columns as text (n bigint, m text), types by name, a pyarrow.Schema or "
            f"a list of pyarrow fields, not {shown(given)}"
        ) from None


def _texts(names: Iterable[str]) -> list[str]:
    listed = _listed(names, "names")
    if wrong := [name for name in listed if not isinstance(name, str)]:
        raise InvalidInput(f"names must be text, not {shown(wrong[0])}")
    return listed


def _listed(given: Any, name: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable) or isinstance(given, set | dict):
        raise InvalidInput(f"{name} must be a list, not {shown(given)}")
    return [*given]
