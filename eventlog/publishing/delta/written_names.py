"""Which segments a Delta log can describe although the table's columns changed. No I/O.

Delta's readers find columns by their names in the files. Column mapping, Delta's way to say more,
is no way out: DuckDB and deltalake return nulls, without an error, where the names in the files
differ (docs/decisions/0040). So each segment must have the columns under the names and with the
types that the published version has.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UnsetType

from eventlog.model.entries import Schema


def is_evolved(schema: Schema) -> bool:
    """Return whether only field ids show which columns of older segments are which."""
    return not isinstance(schema.by_id, UnsetType)


def misread_column(schema: Schema, written: Schema) -> str | None:
    """Return a column of which readers by name return wrong values; None if there is none.

    Args:
        schema: of the version that is read.
        written: that segments were written with.
    """
    by_id = {column.id: column for column in written.columns}
    names = {column.name for column in written.columns}
    for column in schema.columns:
        old = by_id.get(column.id)
        if old is None:
            # against default-published-as-null
            if column.name in names or not isinstance(column.initial, UnsetType):
                return column.name
        elif (old.name, old.type) != (column.name, column.type):  # against renamed-read-as-null
            return column.name
    return None


def read_problem(schema: Schema, written: Mapping[int, Schema | None], version: int) -> str | None:
    """Return why readers by name would read segments of a version wrongly, or None.

    Args:
        schema: of the version.
        written: by id, the schemas that its segments were written with; None: it is not known.
        version: the version.
    """
    for number, old in sorted(written.items()):
        column = "" if old is None else misread_column(schema, old)
        if column is not None:
            which = f"column {column!r}" if column else "a column"
            return (
                f"version {version} is not published as Delta: {which} was renamed, replaced, "
                f"widened or added with a default after segments were written (schema {number}), "
                "and Delta's readers would return nulls for it"
            )
    return None
