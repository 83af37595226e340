"""A program for `test_layouts`: appends arrays of every layout that Arrow's validation accepts.

Run in a process of its own, which a layout that Arrow cannot handle would end. Prints each layout
before it is appended, and at the end how many there were.
"""

import datetime as dt
import sys
from itertools import product

import pyarrow as pa

from eventlog import Table
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

AT = pa.timestamp("us", "UTC")
MOMENT = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
TYPES = [
    pa.string(),
    pa.binary(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.int32(),
    pa.bool_(),
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(pa.string_view()),
    pa.list_(pa.list_(pa.int32()), 2),
    pa.struct([("a", pa.string())]),
    pa.struct([("a", pa.list_(pa.int32())), ("b", pa.decimal128(5, 2))]),
    pa.map_(pa.string(), pa.int32()),
    pa.map_(pa.string(), pa.list_(pa.string())),
    pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string())),
]
EMPTY = pa.py_buffer(b"")
ZEROS = pa.py_buffer(bytes(64))
FIXED = (pa.string_view(), pa.int32(), pa.bool_(), pa.decimal128(5, 2))


def bare(kind, buffer):
    """An empty array of a type; `buffer` stands for each of its buffers, offsets included."""
    if pa.types.is_dictionary(kind):
        indices = pa.Array.from_buffers(kind.index_type, 0, [None, EMPTY])
        return pa.DictionaryArray.from_arrays(indices, pa.array([], kind.value_type))
    if pa.types.is_map(kind):
        inside = [bare(pa.struct([kind.key_field, kind.item_field]), buffer)]
    else:
        inside = [bare(kind.field(place).type, buffer) for place in range(kind.num_fields)]
    if kind in FIXED:
        buffers = [EMPTY]  # Arrow refuses values without a buffer
    elif not inside:
        buffers = [buffer, EMPTY]
    else:
        has_offsets = not (pa.types.is_struct(kind) or pa.types.is_fixed_size_list(kind))
        buffers = [buffer] * has_offsets
    return pa.Array.from_buffers(kind, 0, [None, *buffers], children=inside or None)


def around(inside):
    """Yield rows of nested types that span none of the items of an array."""
    kind = inside.type
    validity = pa.py_buffer(b"\1")
    middle = pa.Array.from_buffers(pa.list_(kind), 2, [validity, ZEROS], children=[inside])
    entries = pa.StructArray.from_arrays([pa.array([], pa.string()), inside], ["key", "value"])
    yield middle
    yield pa.Array.from_buffers(pa.large_list(kind), 2, [None, ZEROS], children=[inside])
    yield pa.Array.from_buffers(pa.map_(pa.string(), kind), 2, [None, ZEROS], children=[entries])
    yield pa.StructArray.from_arrays([middle], ["x"])
    yield pa.ListArray.from_arrays([0, 2, 2, 2], middle).slice(1)
    yield pa.ListArray.from_arrays([0, None, 2], middle)


def layouts():
    """Yield the arrays, each with its name."""
    for kind, (name, buffer) in product(TYPES, {"no": None, "an empty": EMPTY}.items()):
        inside = bare(kind, buffer)
        for number, made in enumerate([inside, *around(inside)]):
            yield f"{number}: {made.type} over {name} buffer", made
        values = pa.nulls(4, kind)
        yield f"a slice of {kind}", pa.ListArray.from_arrays([0, 1, 1, 4], values).slice(2)


def main():
    count = 0
    for name, values in layouts():
        sys.stdout.write(name + "\n")
        sys.stdout.flush()
        values.validate(full=True)
        schema = pa.schema([("at", AT), ("x", values.type)])
        rows = pa.record_batch([pa.array([MOMENT] * len(values), AT), values], schema=schema)
        store = MemoryStore()
        table = Table.create(store.uri, schema, time_column="at", store=store)
        append(table, rows)
        found = scan(table).to_table().column("x").to_pylist()
        assert found == values.to_pylist(), (name, found)
        count += 1
    sys.stdout.write(f"{count}\n")


if __name__ == "__main__":
    main()
