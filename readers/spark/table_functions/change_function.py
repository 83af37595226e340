"""The function that returns the changes of a table's rows: one task computes them.

Imports eventlog, readers and pyspark (extra `spark`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from eventlog.arguments import parse_names, shown
from eventlog.errors import InvalidInput
from eventlog.readers.changefeed import changes
from eventlog.readers.changefeed.change_planning import change_question
from eventlog.readers.changefeed.reader import changed_range
from eventlog.readers.spark.changes import schema_of
from eventlog.readers.spark.table_functions.analysis import (
    Analysis,
    constants_of,
    opened_for,
    pinned_version,
)
from eventlog.readers.spark.types import declared, to_spark
from eventlog.segments.batches import retyped


class EventLogChanges:
    """The changes of a table's rows between two versions."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    @staticmethod
    def analyze(  # noqa: PLR0917 - the arguments of the function of SQL
        uri: Any,
        start: Any,
        end: Any = None,
        columns: Any = None,
        where: Any = None,
        storage: Any = None,
    ) -> Analysis:
        """Return the columns, which are those of `end`, and that version.

        Raises:
            InvalidInput: an argument is wrong, or is no constant.
            NotFound: there is no such table or version, or `start` was vacuumed.
        """
        given = constants_of(
            uri=uri, start=start, end=end, columns=columns, where=where, storage=storage
        )
        if given is None:
            raise InvalidInput(
                "the arguments of eventlog_changes must be constants, since its columns are those "
                "of the table: name the table and the versions in the query"
            )
        table = opened_for(given["uri"], given["storage"])
        _, last = changed_range(table, given["start"], given["end"])
        names = _names(given["columns"])
        change_question(last.state, names, given["where"])
        schema = to_spark(schema_of(last, names))
        return Analysis(schema, table=last.header.table, version=last.version)

    def eval(  # noqa: PLR0917 - the arguments of the function of SQL
        self,
        uri: Any,
        start: Any,
        end: Any = None,
        columns: Any = None,
        where: Any = None,
        storage: Any = None,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each change, in the order of `eventlog.readers.changes`."""
        table = opened_for(uri, storage, self._analysis)
        end = pinned_version(self._analysis, end)
        wanted = declared(self._analysis.schema)
        for batch in changes(table, start, end, _names(columns), where).to_batches():
            rows = retyped(pa.Table.from_batches([batch]), wanted)
            lists = [column.to_pylist(maps_as_pydicts="strict") for column in rows.columns]
            yield from zip(*lists, strict=True)


def _names(columns: Any) -> list[str] | None:
    """Return the columns that a call names.

    Raises:
        InvalidInput: they are no text, or not in the form of the data source's option.
    """
    if columns is None:
        return None
    if not isinstance(columns, str):
        raise InvalidInput(f"columns must be a,b or a JSON list of names, not {shown(columns)}")
    return parse_names(columns, "columns")
