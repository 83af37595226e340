"""The rows of many small segments since the last key frame are decoded together."""

import msgspec
import pyarrow as pa
import pytest
from support.builders import events, reopen
from support.foreign import KEYED, foreign, rows_of, stored, table_of
from support.inline_tables import forget, in_order, small

from eventlog.errors import DataLoss
from eventlog.keyed.rule import OP
from eventlog.model.columns.ids import OF_LOGS
from eventlog.model.entries import Column
from eventlog.readers import scan
from eventlog.writers import append, upsert

SELDOM = {"inline_bytes": "16384", "keyframe_commits": "64"}


def read(table, **question):
    """The batches of a scan by a process that has read nothing yet."""
    forget()
    return list(scan(reopen(table.store), **question).to_batches())


def test_rows_of_many_commits_are_one_batch():
    table = small(properties=SELDOM)
    for number in range(30):
        table.append(events(3, first=3 * number))
    (batch,) = read(table)
    assert pa.Table.from_batches([batch]) == events(90)
    (batch,) = read(table, where="value > 10 and value <= 20")
    assert pa.Table.from_batches([batch]) == events(20, first=21)
    (batch,) = read(table, columns=[])
    assert batch.num_rows == 90
    assert [batch.num_rows for batch in read(table, batch_rows=40)] == [40, 40, 10]


def test_deleted_rows_are_left_out():
    table = small(properties=SELDOM)
    for number in range(30):
        table.append(events(3, first=3 * number))
    table.delete(where="value > 10 and value <= 20")
    assert in_order(pa.Table.from_batches(read(table))) == in_order(
        pa.concat_tables([events(21), events(49, first=41)])
    )


def test_files_of_other_columns_are_joined_apart():
    table = small(properties=SELDOM)
    for number in range(5):
        table.append(events(3, first=3 * number))
    table.add_columns({"more": "int64"})
    for number in range(5, 10):
        rows = events(3, first=3 * number)
        table.append(rows.append_column("more", pa.array([number] * 3)))
    batches = read(table)
    assert [batch.num_rows for batch in batches] == [15, 15]
    rows = pa.Table.from_batches(batches)
    assert rows.drop_columns(["more"]) == events(30)
    assert rows.column("more").to_pylist() == [None] * 15 + [n for n in range(5, 10) for _ in "abc"]


def test_a_segment_of_two_row_groups_is_read_by_itself():
    table = table_of(properties=SELDOM)
    for number in range(3):
        append(table, rows_of([number]))
    rows = rows_of(range(3, 9))
    body = stored(rows, table.session.head().stored_schema, row_group_size=2)
    foreign(table, body, rows=6, inline=True)
    assert scan(table).to_table().column("id").to_pylist() == list(range(9))


@pytest.mark.hazard("W6")
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"seen": pa.nulls(1, pa.int64())}, "column 'seen' of the object has nulls"),
        ({"_op": pa.array(["x"])}, "'x' in '_op', which is no operation"),
        ({"seen": None}, "lacks column 'seen'"),
    ],
    ids=["nulls", "operation", "without"],
)
def test_an_unsound_segment_among_others_is_named(columns, words):
    table = table_of(properties=SELDOM, **KEYED)
    for number in range(3):
        upsert(table, rows_of([number]))
    schema = table.session.head().stored_schema
    with_op = msgspec.structs.replace(
        schema, columns=(*schema.columns, Column(OF_LOGS[OP], OP, "string"))
    )
    foreign(table, stored(rows_of([9], **columns), with_op), rows=1, inline=True)
    forget()
    with pytest.raises(DataLoss, match=words) as caught:
        scan(reopen(table.store)).to_table()
    assert caught.value.key is not None


@pytest.mark.hazard("W6")
def test_rows_of_another_number_than_the_entry_says_are_a_loss():
    table = table_of(properties=SELDOM)
    for number in range(3):
        append(table, rows_of([number]))
    foreign(table, rows_of([8, 9]), rows=3, inline=True)
    forget()
    with pytest.raises(DataLoss, match="has 2 rows, not 3"):
        scan(reopen(table.store)).to_table()


@pytest.mark.hazard("W16")
def test_rows_that_take_much_more_than_their_bytes_are_not_joined():
    columns = pa.schema([("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
    table = table_of(properties=SELDOM, schema=columns)
    times = pa.array([0] * 2000, columns.field("at").type)
    for number in range(8):
        text = f"{number}".ljust(5000)
        rows = pa.table([times, pa.array([text] * 2000)], columns)
        foreign(table, stored(rows, table.session.head().stored_schema), rows=2000, inline=True)
    assert table.refresh().totals.bytes < 32 * 1024
    batches = read(table, memory_bytes=32 * 2**20)
    assert sum(batch.num_rows for batch in batches) == 16_000
    assert max(batch.nbytes for batch in batches) < 12 * 2**20  # the rows of one segment
