"""Splits rows by time chunk, and into pieces of bounded size. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.model.chunks import DAY_MS, HOUR_MS, TimeChunk, chunk_of
from eventlog.model.columns.named_layout import NamedLayout
from eventlog.model.entries import Granularity
from eventlog.staging.compact_arrays import spanned

_NARROW_ITEM_BYTES = 12
_WIDTHS = {"hour": HOUR_MS * 1000, "day": DAY_MS * 1000}


def split_by_chunk(
    table: pa.Table, layout: NamedLayout
) -> Iterable[tuple[tuple[int, int], pa.Table]]:
    """Yield ((chunk start, chunk end) ms, rows) for each time chunk in the table.

    The rows of each chunk are a copy, so that their memory is freed once the chunk is written.
    """
    if layout.granularity == "all":
        chunk = chunk_of(0, "all")
        yield (chunk.start, chunk.end), table
        return
    times = table.column(layout.time_column)
    # Most appends are of one chunk: comparing the first and the last time is enough.
    ends = pc.min_max(times)
    first, last = (_bounds(_micros(ends[name]), layout) for name in ("min", "max"))
    if first == last:
        yield first, table
        return
    micros = chunk_starts(times, layout.granularity)
    order = pc.sort_indices(micros)
    runs = pc.run_end_encode(micros.combine_chunks().take(order))
    start = 0
    for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield _bounds(value, layout), table.take(order.slice(start, end - start))
        start = end


def chunk_sizes(table: pa.Table, layout: NamedLayout) -> dict[TimeChunk, int]:
    """Return about how many Arrow bytes of the rows lie in each time chunk."""
    if layout.granularity == "all" or not table.num_rows:
        return {chunk_of(0, "all"): table.nbytes} if table.num_rows else {}
    starts = chunk_starts(table.column(layout.time_column), layout.granularity)
    counted = pa.table({"start": starts}).group_by("start").aggregate([([], "count_all")])
    pairs = zip(*(counted.column(name).to_pylist() for name in counted.column_names), strict=True)
    return {
        TimeChunk(*_bounds(start, layout)): table.nbytes * rows // table.num_rows
        for start, rows in pairs
    }


def sort_rows(table: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return the rows in the order of the columns `by`, ascending, nulls last."""
    # Renamed to numbers: Arrow parses a name that starts with a dot as a path.
    aliases = [str(index) for index in range(len(by))]
    keys = pa.table([table.column(name) for name in by], names=aliases)
    return table.take(pc.sort_indices(keys, [(alias, "ascending") for alias in aliases]))


def weight(table: pa.Table) -> int:
    """Return the bytes of a table's rows, plus the memory for encoding narrow items of lists.

    The Parquet writer works on levels and 32-bit values, which take more than such items do.
    """
    items = sum(
        _narrow_items(part)
        for column in table.columns
        if pa.types.is_nested(column.type)
        for part in column.chunks
    )
    return int(table.nbytes) + _NARROW_ITEM_BYTES * items


def _narrow_items(values: pa.Array, *, within_list: bool = False) -> int:
    """Return the number of list items narrower than 32 bits, at any depth."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = [values.field(place) for place in range(kind.num_fields)]
        return sum(_narrow_items(field, within_list=within_list) for field in fields)
    if not pa.types.is_nested(kind):
        narrow = pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind.bit_width < 32)
        return len(values) if within_list and narrow else 0
    inside = [values.keys, values.items] if pa.types.is_map(kind) else [values.values]
    return sum(_narrow_items(spanned(values, part), within_list=True) for part in inside)


def within(table: pa.Table, most_bytes: int) -> int:
    """Return how many of the first rows take at most `most_bytes`; at least one row."""
    low, high = 1, int(table.num_rows)
    if weight(table) <= most_bytes:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if weight(table.slice(0, middle)) <= most_bytes:
            low = middle
        else:
            high = middle
    return low


def bounded(table: pa.Table, most_rows: int, most_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows in pieces bounded by rows and by bytes, unless a single row has more bytes."""
    if 0 < table.num_rows <= most_rows and weight(table) <= most_bytes:
        yield table
        return
    while table.num_rows:
        piece = table.slice(0, most_rows)
        piece = piece.slice(0, within(piece, most_bytes))
        yield piece
        table = table.slice(piece.num_rows)


def chunk_starts(times: pa.ChunkedArray, granularity: Granularity) -> pa.ChunkedArray:
    """Return the start of each time's chunk, in µs since 1970 UTC; not for granularity `all`."""
    if pa.types.is_date(times.type):
        times = times.cast(pa.timestamp("us"))
    width = _WIDTHS.get(granularity)
    if width is None:
        return pc.floor_temporal(times, unit=granularity).cast(pa.int64())
    micros = times.cast(pa.int64())  # several times faster than floor_temporal
    floor = pc.multiply(pc.divide(micros, width), width)  # rounds towards zero
    return pc.subtract(floor, pc.multiply(pc.greater(floor, micros).cast(pa.int64()), width))


def _micros(time: pa.Scalar) -> int:
    """Return a date or a timestamp in µs since 1970 UTC."""
    return int(time.value) * (DAY_MS * 1000 if pa.types.is_date(time.type) else 1)


def _bounds(micros: int, layout: NamedLayout) -> tuple[int, int]:
    chunk = chunk_of(micros // 1000, layout.granularity)
    return chunk.start, chunk.end
