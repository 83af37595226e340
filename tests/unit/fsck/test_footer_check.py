"""The check of Parquet footers: sound ones of every kind pass, damaged ones raise one error."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventlog.fsck.contents.footer_check import check_footer

ROWS = pa.table(
    {
        "number": [1, 2, None],
        "text": ["x", None, "z"],
        "list": [[1], None, [2, 3]],
        "struct": [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "needed": pa.array([True, False, True]),
        **{f"more {n}": [1.5, 2.0, None] for n in range(20)},
    }
)


def file(**options):
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, row_group_size=2, **options)
    return sink.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"version": "1.0"},
        {"store_schema": False},
        {"write_page_index": True},
        {"write_statistics": False},
        {"use_dictionary": False},
        {"sorting_columns": [pq.SortingColumn(0)]},
    ],
)
def test_sound_footers_pass(options):
    body = file(**options)
    check_footer(body)
    check_footer(body[-(int.from_bytes(body[-8:-4], "little") + 8) :])


@pytest.mark.long
def test_every_change_of_a_byte_passes_or_is_a_value_error():
    body = file()[-2000:]
    start = len(file()) - 8 - int.from_bytes(body[-8:-4], "little")
    whole = file()[start:]
    refused = 0
    for at in range(0, len(whole) - 8, 3):
        changed = whole[:at] + bytes([whole[at] ^ 0x42]) + whole[at + 1 :]
        try:
            check_footer(changed)
        except ValueError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("body", [b"", b"PAR1", bytes(100), b"\x19" * 100, b"\x1c" * 100_000])
def test_what_is_no_footer_is_a_value_error(body):
    with pytest.raises(ValueError, match="footer"):
        check_footer(body + len(body).to_bytes(4, "little") + b"PAR1")
