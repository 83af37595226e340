"""The first rows of a query, which a prompt shows as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from eventlog.display import Description
from eventlog.quantities import count_text
from eventlog.readers.row_stream import RowStream

_SHOWN = 20


@dataclass(frozen=True, slots=True, repr=False)
class FirstRows(RowStream):
    """Rows that were read, in memory.

    Attributes:
        rows: the rows.
    """

    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.rows.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        return iter(self.rows.to_batches())

    def to_table(self) -> pa.Table:
        """Return the rows."""
        return self.rows

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def _described(self) -> Description:
        shown = self.rows.slice(0, _SHOWN)
        columns = [_texts(column) for column in shown.columns]
        numbers = (
            n
            for n, field in enumerate(self.schema)
            if pa.types.is_primitive(field.type) and not pa.types.is_temporal(field.type)
        )
        more = len(self) - shown.num_rows
        return Description(
            count_text(len(self), "row"),
            header=self.schema.names,
            rows=list(zip(*columns, strict=True)),
            right=frozenset(numbers),
            left_out=f"… {count_text(more, 'more row')}" if more else "",
        )


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Return values as texts for display."""
    try:
        texts = column.cast(pa.string()).to_pylist()
    except pa.ArrowException:  # nested values, and bytes that are no text
        return [_text(value) for value in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        texts = [text and text.replace(".000000", "") for text in texts]
    return [_text(text) for text in texts]


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
