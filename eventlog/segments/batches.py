"""Small functions on batches and tables of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.query.conditions import FAILURE

# Columns that Arrow's datasets add to each file: a scan fails if a column has such a name.
_SCANNER_NAMES = frozenset(
    ["__filename", "__fragment_index", "__batch_index", "__last_in_fragment"]
)

_ENOUGH_ROWS = 256 * 1024  # to be worth a call of Arrow


def holds_floats(kind: pa.DataType) -> bool:
    """Return whether a type is a float type or contains one."""
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind)) or any(map(holds_floats, inner))


def without_columns(rows: int) -> pa.RecordBatch:
    """Return a batch with this number of rows and no columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def join_tables(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the rows of one or more tables, all with the same schema."""
    parts = list(tables)
    if parts[0].column_names:
        return pa.concat_tables(parts)
    # Arrow loses the number of rows when it concatenates tables without columns.
    return pa.Table.from_batches([without_columns(sum(part.num_rows for part in parts))])


def gathered(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows as tables of one Arrow chunk, each gathered from enough batches.

    Args:
        batches: the rows.
        most_bytes: bytes that are enough; so are 262,144 rows.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _ENOUGH_ROWS or size >= most_bytes:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def take_tables(tables: Iterable[pa.Table], most_bytes: int) -> tuple[list[pa.Table], bool]:
    """Return the first tables, and whether they take more than `most_bytes` of Arrow data.

    Args:
        tables: an iterator. If the first tables take more, the rest stays in it.
        most_bytes: the bound.
    """
    first_tables: list[pa.Table] = []
    size = 0
    for table in tables:
        first_tables.append(table)
        size += table.nbytes
        if size > most_bytes:
            return first_tables, True
    return first_tables, False


def given_up(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables, and keep none that was yielded."""
    tables.reverse()
    while tables:
        yield tables.pop()


def has_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are text or contain some."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text) or any(has_text(kind.field(n).type) for n in range(kind.num_fields))


def retyped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, with its types.

    Nulls in columns that are not nullable, which another writer may have stored, stay (FORMAT.md
    4.4); a cast of the table would refuse them.

    Args:
        table: has at least these columns.
        schema: not empty.
    """
    columns = [table.column(field.name).cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def filtered(table: pa.Table, where: pc.Expression) -> pa.Table:
    """Return the rows for which the expression is true, in their order.

    Raises:
        pa.ArrowException: the expression fails on a row.
    """
    if not table.column_names:
        rows = filtered(pa.table({"": pa.nulls(table.num_rows)}), where).num_rows
        return pa.Table.from_batches([without_columns(rows)])
    return table.filter(passing(table, where))


def predicate_error(error: Exception, uri: str, key: str | None = None) -> InvalidInput:
    """Return the error of a predicate that fails on rows of the table at `uri`."""
    why = str(error).split("\n", 1)[0][:300]
    why = FAILURE if FAILURE in why else why  # without the words of Arrow's cast around it
    return InvalidInput(f"the predicate fails on the rows: {why}", table=uri, key=key)


def passing(table: pa.Table, where: pc.Expression) -> pa.Array:
    """Return for each row whether the expression is true; never null.

    Args:
        table: rows of one or more columns.
        where: the expression.

    Raises:
        pa.ArrowException: the expression fails on a row.
    """
    from pyarrow import acero  # noqa: PLC0415 - loads pandas where that is installed

    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions([where], ["wanted"])),
    ]
    # One thread, to keep the order; the pieces of a scan already run in parallel.
    mask = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
    combined = mask.column(0).combine_chunks()
    return pc.fill_null(combined, False)


def with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly this schema: types, nullability and no metadata."""
    if not schema.names or batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def clashes(schema: pa.Schema) -> bool:
    """Return whether a column has the name of one that Arrow's scanner adds to every file."""
    return not _SCANNER_NAMES.isdisjoint(schema.names)
