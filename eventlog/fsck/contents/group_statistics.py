"""The statistics of row groups in a segment's footer, compared with the rows (FORMAT.md R7.4).

Scans with a predicate leave out row groups by them. The entry's checksum covers them as it covers
the rows, so nothing but the rows shows that a writer has stored wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.fsck.contents.footer_check import check_footer

_FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError)


class GroupStatistics:
    """Compares batches of rows with the statistics of their row group.

    Attributes:
        problems: what is wrong, by the name of the column.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def check_footer(self, end: bytes) -> None:
        """See `FileAudit.check_footer`."""
        check_footer(end)

    def look_at(self, group: Any, rows: pa.RecordBatch) -> None:
        """Compare some rows of one row group.

        Args:
            group: the row group's metadata in the footer.
            rows: in the types of the file.
        """
        for name, known in _flat(group, rows.schema):
            values = rows.column(name)
            problem = _problem(values, known)
            if problem is not None:
                self.problems.setdefault(name, problem)


def _flat(group: Any, schema: pa.Schema) -> Iterator[tuple[str, Any]]:
    """Yield the names of the columns by which row groups are left out, and their statistics."""
    for place in range(group.num_columns):
        column = group.column(place)
        at = schema.get_field_index(column.path_in_schema)  # -1 also of a name that is there twice
        if at < 0 or not column.is_stats_set:
            continue
        kind = schema.field(at).type
        # Filters on floats read every row group: their statistics do not record NaN.
        if not pa.types.is_nested(kind) and not pa.types.is_floating(kind):
            yield schema.field(at).name, column.statistics


def _problem(values: pa.Array, known: Any) -> str | None:
    if known.has_null_count and not known.null_count and values.null_count:
        return "record no nulls, and it has some"
    some = len(values) - values.null_count
    if known.has_null_count and not known.num_values and some:
        return "record nulls only, and it has values"
    if not known.has_min_max or not some:
        return None
    try:
        low, high = (pa.scalar(end, values.type) for end in (known.min, known.max))
        ends = pc.min_max(values)
        below, above = pc.less(ends["min"], low), pc.greater(ends["max"], high)
    except _FAILURES:  # of a type that no filter compares, or bounds of another one
        return None
    if below.as_py():
        return "begin above its least value"
    return "end below its greatest value" if above.as_py() else None
