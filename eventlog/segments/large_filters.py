"""Large filters, evaluated on the rows of many segments at once.

Arrow hashes the values of a filter and compiles its patterns each time that it evaluates the
filter. If that is done once per segment, it can take longer than everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.query.expression_pruning import expression_bytes
from eventlog.segments.batches import filtered, gathered, predicate_error, without_columns

_SMALL_FILTER_BYTES = 32 * 1024
_MOST_BYTES = 32 * 2**20


def is_large(expression: pc.Expression | None, columns: AbstractSet[str]) -> bool:
    """Return whether a filter over these columns is large enough for `filter_in_bulk`.

    `filter_in_bulk` has a price: Arrow cannot skip row groups by their statistics.
    """
    if expression is None or not columns:
        return False
    return expression_bytes(expression) > _SMALL_FILTER_BYTES


def filter_in_bulk(
    batches: Iterable[pa.RecordBatch],
    expression: pc.Expression,
    names: Sequence[str],
    batch_rows: int,
    table: str,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that pass the filter, in order.

    Args:
        batches: rows with the requested columns and those of the filter.
        expression: the filter.
        names: names of the requested columns, which come first in the batches.
        batch_rows: the largest number of rows in a batch.
        table: the table's URI, for error messages.

    Raises:
        InvalidInput: the filter fails on the rows.
    """
    for rows in gathered(batches, _MOST_BYTES):
        try:
            passing = filtered(rows, expression)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise predicate_error(error, table) from error
        for batch in passing.to_batches(max_chunksize=batch_rows):
            yield batch.select(names) if names else without_columns(batch.num_rows)
